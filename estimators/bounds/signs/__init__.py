"""Laws and bounds of sums of signs, and of values with Laplace noise."""
