"""Laws and bounds of sums of piecewise reports: the mechanism `windows`."""
