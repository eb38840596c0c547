"""Answers by attributes of devices."""
