"""Peers: what they are asked, in environments of their own, and why one cannot run."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks.measure import Benchmark, CannotRunError, NotRun
from benchmarks.metrics import CATEGORIES
from benchmarks.peers import environments, libraries, process, streams
from benchmarks.places import Places

PEERS = (*libraries.TASKS, *streams.PEERS)


def given(folder: Path) -> dict[str, object]:
    np.save(folder / "values.npy", np.arange(500) % CATEGORIES)
    return {
        "values": str(folder / "values.npy"),
        "epsilon": 1.0,
        "categories": CATEGORIES,
        "reports": 500,
    }


@pytest.mark.parametrize("peer", PEERS)
def test_every_peer_has_a_script_and_pinned_versions(peer: str) -> None:
    pinned = environments.pins()[peer]["packages"]
    assert all("==" in package for package in pinned)
    assert peer in [package.partition("==")[0] for package in pinned]
    script = f"with_{peer.replace('-', '_')}.py"
    assert Path(environments.__file__).with_name(script).exists()


@pytest.mark.slow
@pytest.mark.parametrize("peer", libraries.TASKS)
def test_a_peer_does_each_of_its_tasks(peer: str, tmp_path: Path) -> None:
    if not environments.is_installed(peer):
        pytest.skip(f"{peer} is not installed: dither bench --quick --only peers")
    with process.serving(peer, given(tmp_path)) as found:
        for what, mechanisms in libraries.TASKS[peer].items():
            for mechanism in mechanisms:
                assert found.side(f"{what} {mechanism}")(0) > 0, (what, mechanism)


def test_a_peer_that_ends_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "python_of", lambda _: Path(sys.executable))
    with (
        process.serving("opendp", given(tmp_path)) as found,
        pytest.raises(CannotRunError, match=r"opendp ended, and said .*No module named 'opendp'"),
    ):
        found.side("randomize grr")(0)


def test_an_environment_that_cannot_be_made_is_a_reason(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(
        environments, "pins", lambda: {"nprr": {"python": "3.99", "packages": ["nprr==0.1.4"]}}
    )
    with pytest.raises(environments.NotInstalledError, match=r"needs python3\.99 on the PATH"):
        environments.python_of("nprr")
    assert not environments.is_installed("nprr")


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


def test_only_the_peers_that_are_wanted_are_started(
    monkeypatch: pytest.MonkeyPatch, places: Places
) -> None:
    started = []

    def python_of(name: str) -> Path:
        started.append(name)
        return Path(sys.executable)

    monkeypatch.setattr(process, "python_of", python_of)
    places.wanted = lambda name: name.endswith("/opendp")
    assert all(isinstance(one, Benchmark) for one in libraries.benchmarks(places))
    assert started == ["opendp"]
