"""The mechanism of distributions beside its rivals, which are simulated here and used nowhere."""
