"""Bounds on tails from the modulus of a characteristic function: docs/proofs/fourier.md."""
