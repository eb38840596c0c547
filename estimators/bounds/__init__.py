"""Confidence bounds that hold for every number of reports, each in a file of its own."""
