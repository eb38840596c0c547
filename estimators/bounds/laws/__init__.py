"""The laws of sums of reports, as far as they are known."""
