"""What a device keeps: the budget that it has spent, and the answers that it repeats."""
