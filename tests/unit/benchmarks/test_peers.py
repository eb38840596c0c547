"""Peers: what they are asked, in environments of their own, and why one cannot run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks import users
from benchmarks.measure import CannotRunError, NotRun
from benchmarks.metrics import CATEGORIES
from benchmarks.peers import environments, libraries, process, streams
from benchmarks.places import Places
from tests.support.rows import row


def test_every_peer_has_a_script_and_pinned_versions() -> None:
    for peer in (*libraries.TASKS, *streams.PEERS):
        pinned = environments.pins()[peer]["packages"]
        with row(peer):
            assert all("==" in package for package in pinned)
            assert peer in [package.partition("==")[0] for package in pinned]
            script = f"with_{peer.replace('-', '_')}.py"
            assert Path(environments.__file__).with_name(script).exists()


@pytest.mark.slow
@pytest.mark.parametrize("peer", sorted({*libraries.TASKS, *users.THEIRS}))
def test_a_peer_does_each_of_its_tasks(peer: str, tmp_path: Path) -> None:
    if not environments.is_installed(peer):
        pytest.skip(f"{peer} is not installed: dither bench --quick --only peers")
    np.save(tmp_path / "values.npy", np.arange(500) % CATEGORIES)
    given = {"values": str(tmp_path / "values.npy"), "epsilon": 1.0, "categories": CATEGORIES}
    own = libraries.TASKS.get(peer, {}).items()
    tasks = [f"{what} {mechanism}" for what, mechanisms in own for mechanism in mechanisms]
    tasks += [
        f"noise {data} {mechanism} {epsilon:g}"
        for data, mechanisms in users.THEIRS.get(peer, {}).items()
        for mechanism in mechanisms
        for epsilon in users.EPSILONS[data]
    ]
    with process.serving(peer, {**given, "reports": 500}) as found:
        for task in tasks:
            assert found.side(task)(0) > 0, task
        with pytest.raises(CannotRunError):
            found.side("noise of nothing")(0)


def test_peers_that_cannot_be_installed_are_listed_and_not_asked(
    monkeypatch: pytest.MonkeyPatch, places: Places
) -> None:
    def refuse(name: str) -> Path:
        raise environments.NotInstalledError(f"no {name} here")

    monkeypatch.setattr(process, "python_of", refuse)
    found = list(libraries.benchmarks(places))
    expected = sum(len(names) for tasks in libraries.TASKS.values() for names in tasks.values())
    assert len(found) == expected
    assert all(isinstance(one, NotRun) and one.reason.startswith("no ") for one in found)
