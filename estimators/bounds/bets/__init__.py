"""Bounds on means by bets on counts of symbols, whose variance need not be known."""
