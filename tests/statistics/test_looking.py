"""What is promised of answers while a window grows, and of its final answer.

How beta is shared by several windows, and by weights that are chosen after looking, is tested in
`tests/unit/aggregator/reading/test_coverage.py`.
"""

import numpy as np
import pytest
from scipy.signal import fftconvolve
from scipy.stats import binom

from aggregator.features.reader import Reader
from aggregator.reading.query import Query
from aggregator.reading.window import Window, WindowStatistic
from tests.support.metrics import mean_metric
from tests.support.rows import row

pytestmark = pytest.mark.more

BETA = 0.05
FAIR = mean_metric("fair", "randomized_response", (-1, 1), [4], pane="1d")
"""Of the values +1 and -1 with mean 0, whose reports are fair signs."""


def edges(reports: int, status: str, windows: int) -> tuple[int, int]:
    """Return the counts of +1, out of so many reports, from which an answer excludes the mean 0.

    At most the first, or at least the second: from answers as readers get them.
    """

    def excludes(ones: int) -> bool:
        sums = WindowStatistic(np.array([reports, ones]))
        seen = Window(metric=FAIR, start_ms=0, end_ms=86_400_000, status=status, content=sums)
        return float(Reader.answer(seen, Query(beta=BETA, windows=windows)).lower) > 0

    low, high = reports // 2, reports + 1
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if middle > reports or excludes(middle) else (middle + 1, high)
    return reports - low, low


def test_answers_while_windows_grow_and_final_answers_are_two_statements() -> None:
    """Exactly, for one window and for thirty that are promised together: no draws.

    The law of the counts of +1 on paths that were never excluded is carried from look to look.
    """
    last = 20_000
    looks = sorted({round(1.15**i) for i in range(25, 71)} | {last})
    for windows in (1, 30):
        growing, before = np.ones(1), 0
        for reports in looks:
            more = binom.pmf(np.arange(reports - before + 1), reports - before, 0.5)
            growing, before = fftconvolve(growing, more), reports
            least, most = edges(reports, "provisional", windows)
            growing[: least + 1] = growing[most:] = 0.0
        law = binom.pmf(np.arange(last + 1), last, 0.5)
        least, most = edges(last, "final", windows)
        kept = [growing.sum(), law[least + 1 : most].sum(), growing[least + 1 : most].sum()]
        grown, final, either = (1 - float(one) ** windows for one in kept)
        with row(windows, grown, final, either):
            assert 0.1 * BETA < grown <= BETA
            assert 0.8 * BETA < final <= BETA
            assert BETA < either <= 2 * BETA, "which is why it is not said of both together"
