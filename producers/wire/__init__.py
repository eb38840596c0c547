"""What is on the wire: the report batch."""
