"""The schemas that a deployment registers, and the registry's HTTP interface."""
