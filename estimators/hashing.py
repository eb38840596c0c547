"""Public hash functions of 64-bit keys: the same on every device, of every language.

Steele, Lea and Flood, "Fast splittable pseudorandom number generators" (2014): the finaliser of
SplitMix64 (Stafford's variant 13), which is a bijection of 64-bit words, and its sequence.
"""

from __future__ import annotations

import numpy as np

from estimators.randomness import Words

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


def mix(words: Words) -> Words:
    """Return a word for each word: any change of one changes about half the bits of the other.

    Parameters
    ----------
    words : ndarray of uint64

    Returns
    -------
    ndarray of uint64, same shape
    """
    mixed = words ^ (words >> np.uint64(30))
    mixed *= _FIRST
    mixed ^= mixed >> np.uint64(27)
    mixed *= _SECOND
    mixed ^= mixed >> np.uint64(31)
    return mixed


def row_constants(seed: int, rows: int) -> Words:
    """Return what makes one hash function differ from another: words 1 to `rows` of SplitMix64.

    Parameters
    ----------
    seed : int
        The generator's state before the first word, in [0, 2^64).
    rows : int

    Examples
    --------
    >>> [hex(word) for word in row_constants(0, 2).tolist()]
    ['0xe220a8397b1dcdaf', '0x6e789e6aa1b965f4']
    """
    return mix(np.uint64(seed) + np.arange(1, rows + 1, dtype=np.uint64) * _GOLDEN)
