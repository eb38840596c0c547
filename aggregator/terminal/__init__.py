"""The options, formats and output that commands share."""
