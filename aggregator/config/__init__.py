"""The configuration of a deployment: settings, definitions, logging."""
