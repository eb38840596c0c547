"""Bounds on the share of one set of categories among another set: docs/proofs/shares.md."""
