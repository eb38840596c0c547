"""Discovery of frequent strings from closed panes."""
