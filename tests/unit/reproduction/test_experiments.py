"""The papers' experiments come out as printed, or as docs/reproduction.md says."""

import pytest

from reproduction.experiments import EXPERIMENTS, Experiment, Number, Outcome

pytestmark = pytest.mark.more

RUNS = {
    "adpm-fig1a": 400,
    "adpm-fig1b": 10,
    "adpm-fig3": 200,
    "hdpwc-table4": 4,
    "hdpwc-table5": 8,
    "hdpwc-fig1": 3,
    "hdpwc-fig2": 8,
    "hist-fig2": 6,
    "hist-fig3": 4,
    "hist-fig4": 3,
    "min-tasks": 3,
    "bounds-coverage": 40,
    "bounds-width": 2,
    "hist-shuffle": 1,
    "hist-crowd": 3,
    "errata": 20,
}
"""Enough for what they claim; the slow tests have all, with all their runs."""


def run(experiment: Experiment, runs: int, seed: int = 0) -> Outcome:
    shares: list[float] = []
    outcome = experiment.run(runs, seed, shares.append)
    assert shares == sorted(shares), "progress goes forwards"
    assert shares[-1] <= 1
    return outcome


def told(outcome: Outcome) -> list[str]:
    """Return what is not as it should be."""
    wrong = [
        f"{n.name}: {n.ours} instead of {n.paper}" for n in outcome.numbers if n.agrees is False
    ]
    return wrong + [f"{c.name}: {c.measured}" for c in outcome.claims if not c.holds]


@pytest.mark.parametrize(("name", "runs"), RUNS.items())
def test_it_comes_out(name: str, runs: int) -> None:
    assert told(run(EXPERIMENTS[name], runs)) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_it_comes_out_with_all_its_runs(name: str) -> None:
    experiment = EXPERIMENTS[name]
    assert told(run(experiment, experiment.runs, seed=1)) == []


def test_the_same_seed_gives_the_same_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reproduction.experiments.minimum.SIZES", [64, 256])
    monkeypatch.setattr("reproduction.experiments.hldp.SIZES", [64, 256])
    monkeypatch.setattr("reproduction.experiments.hldp.DIMENSIONS", [2, 4])
    monkeypatch.setattr("reproduction.experiments.adpm.DRAWS", 2)
    monkeypatch.setattr("reproduction.experiments.hldp.PEEKED", 300)
    for name in ("adpm-table2", "min-fig1", "min-fig2", "hldp-rates", "peeking"):
        once, again, other = (run(EXPERIMENTS[name], 3, seed) for seed in (5, 5, 6))
        assert once == again, name
        assert once != other, name


def test_a_number_agrees_within_its_margin_and_three_standard_errors() -> None:
    assert Number("", 1.0, 0.1, paper=1.5, within=0.2).agrees is True
    assert Number("", 1.0, 0.1, paper=1.6, within=0.2).agrees is False
    assert Number("", 1.0, 0.1, paper=1.6).agrees is None
    assert not Outcome([Number("", 1.0, 0.0, 2.0, 0.5)]).agrees
