"""Redis: keys, writes and reads."""
