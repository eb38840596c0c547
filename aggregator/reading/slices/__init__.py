"""Answers by devices' attributes."""
