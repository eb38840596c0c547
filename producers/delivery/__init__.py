"""The parts that all ways of sending reports share: batches, totals, the error, and closing."""
