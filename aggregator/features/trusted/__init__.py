"""Trusted collection: a release of each pane is drawn once, and shown."""
