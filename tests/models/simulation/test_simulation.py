"""Whatever fails, and whenever: every report is counted once, or a partition says what it lacks."""

import functools
from collections import Counter

import pytest
import redis

from tests.models.simulation.clients import STALE
from tests.models.simulation.schedule import AT_A_CALL, BETWEEN_CALLS, Schedule

PARTS = (range(20), range(20, 50), range(50, 80))
"""Seeds of schedules; `make test` has the first, each test a limit of time."""
MANY, AT_ONCE = 20_000, 5_000


@functools.cache
def run(seeds: range, redis_url: str) -> tuple[Counter[str], Counter[str]]:
    """Run schedules; return how often each fault was injected, and what they did."""
    injected, did = Counter[str](), Counter[str]()
    with redis.Redis.from_url(redis_url) as client:
        for seed in seeds:
            outcome = Schedule(seed, client).run()
            assert not outcome.violation, "\n".join(
                [f"seed {seed}", *outcome.trace, outcome.violation]
            )
            injected += outcome.injected
            did += outcome.did
    return injected, did


@pytest.mark.parametrize(
    "seeds",
    [pytest.param(seeds, marks=pytest.mark.more if seeds[0] else ()) for seeds in PARTS],
    ids=str,
)
def test_every_report_is_counted_once_whatever_fails(seeds: range, redis_url: str) -> None:
    """A fault that one schedule in 27 shows is found with 95% by all parts."""
    assert run(seeds, redis_url)[1]["messages"] > len(seeds)


@pytest.mark.more
def test_every_kind_of_fault_strikes(redis_url: str) -> None:
    injected, did = Counter[str](), Counter[str]()
    for seeds in PARTS:
        of_part, effects = run(seeds, redis_url)
        injected += of_part
        did += effects
    assert injected.keys() == AT_A_CALL.keys() | BETWEEN_CALLS.keys() | {STALE}
    assert did["commits known again"] > 0
    assert did["partitions halted"] > 0
    assert did["panes seen as final"] > 0
    assert did["offsets named as missing"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("begin", range(PARTS[-1].stop, MANY, AT_ONCE))
def test_every_report_is_counted_once_in_thousands_of_schedules(begin: int, redis_url: str) -> None:
    run(range(begin, min(MANY, begin + AT_ONCE)), redis_url)
