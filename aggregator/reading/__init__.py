"""From sums to answers."""
