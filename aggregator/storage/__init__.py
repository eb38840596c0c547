"""Redis: what is kept, how it is written, and how it is read."""
