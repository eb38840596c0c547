"""Questions that are asked in rounds."""
