"""The schema registry: what is registered there, and its HTTP interface."""
