"""What mechanisms share: laws of signs and symbols, and estimators that fit several of them."""
