"""Bounds on means by bets on counts of symbols: docs/proofs/bets.md."""
