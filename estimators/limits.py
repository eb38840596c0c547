"""Limits of all definitions, which keep the cost of reading a definition and reporting small.

A server may send any definition, so each limit is checked before anything of that size is created.
The error names the key. The browser's module has the same numbers (``LIMITS`` in
``producers/browser/checks.js``). docs/privacy.md says what a definition costs at most.
"""

MOST_LEVELS = 255
"""The most epsilons of a metric: a report names its level in a byte."""
LARGEST_LEVEL = 64
LEVEL_DIGITS = 4
"""The most decimals of an epsilon."""
MOST_CATEGORIES = 2**20
MOST_COORDINATES = 2**14
MOST_BINS = 4096
MOST_ROUNDS = 50
"""The most rounds of a search: midpoints of a range of a few binary digits are exact doubles."""
MOST_ATTRIBUTES = 16
"""The most attributes of a batch, and of a metric."""
MOST_SLICES = 2**16
LARGEST_TABLE = 2**24
"""The most cells of a mechanism for strings: rows, times the cells of a row."""
LARGEST_REPORT = 2**16
"""The most bytes of a report."""
LARGEST_DEFINITION = 2**22
"""The most bytes of a server's answer about a metric."""
LARGEST_ANSWER = 2**20
"""The most bytes of a server's other answers: to a batch, or about a round."""
