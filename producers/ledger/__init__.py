"""A device's storage: the budget that it has spent, and the answers that it repeats."""
