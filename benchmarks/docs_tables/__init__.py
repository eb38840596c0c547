"""Commands that print the tables of docs/."""
