"""Answers become events, each final one exactly once."""
