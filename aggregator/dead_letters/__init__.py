"""What could not be counted: written, read, explained, sent again."""
