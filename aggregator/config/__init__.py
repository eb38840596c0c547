"""What a deployment was told: settings, definitions, logging."""
