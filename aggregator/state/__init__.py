"""Pure: a log becomes state, with no clock and no network."""
