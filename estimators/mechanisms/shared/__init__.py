"""Shared parts of mechanisms: laws of signs and symbols, and estimators."""
