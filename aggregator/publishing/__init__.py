"""Publishes answers as events, each final event exactly once."""
