"""What every way of sending reports shares: batches, totals, the error, and closing."""
