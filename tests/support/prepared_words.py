"""Random words that are prepared, so that two implementations can use the same ones."""

import dataclasses

import numpy as np
from numpy.typing import NDArray


@dataclasses.dataclass
class PreparedWords:
    """Prepared random words, and the number of words used so far."""

    words: NDArray[np.uint64]
    used: int = 0

    def integers(self, n: int) -> NDArray[np.uint64]:
        """Return the next words."""
        taken = self.words[self.used : self.used + n].copy()
        assert taken.size == n, "too few prepared words"
        self.used += n
        return taken


def awkward_words(
    generator: np.random.Generator, thresholds: list[int], count: int
) -> NDArray[np.uint64]:
    """Return words of which many tie with a threshold's first byte, or are rejected."""
    words = generator.integers(0, 2**64, count, dtype=np.uint64)
    view = words.view(np.uint8)
    first = np.array([threshold >> 56 for threshold in thresholds], dtype=np.uint8)
    tied = generator.random(view.size) < 0.3
    view[tied] = generator.choice(first, int(tied.sum()))
    words[generator.random(count) < 0.1] = 2**64 - 1
    words[generator.random(count) < 0.05] = 0
    return words
