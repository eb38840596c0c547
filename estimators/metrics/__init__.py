"""Metrics: their domains, their ways of collecting, and their definitions."""
