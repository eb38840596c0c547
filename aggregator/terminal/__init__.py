"""Shared by commands: options, formats, output."""
