"""Mutations of product code: each breaks one thing, and the tests have to notice."""
