"""A metric: what is asked, how it is collected, and how it is loaded."""
