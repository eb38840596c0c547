"""Laws and bounds of sums of reports that are +1, -1 or 0: docs/proofs/differences.md."""
