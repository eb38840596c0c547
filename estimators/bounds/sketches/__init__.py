"""Bounds for hashed values, whose estimates have collisions or interference."""
