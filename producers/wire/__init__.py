"""The wire format: the report batch."""
