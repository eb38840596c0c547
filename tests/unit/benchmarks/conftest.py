from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from benchmarks.places import Places


@pytest.fixture
def places() -> Iterator[Places]:
    """Places of the smallest sizes, in this process."""
    with ExitStack() as stack:
        yield Places(stack, scale=0.001, in_process=True)
