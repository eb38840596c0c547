"""Alarms: what final panes say about whether a metric has moved."""
