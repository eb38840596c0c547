"""Messages that could not be counted: written, read, explained, and replayed."""
