"""A crowd leaves the relay's folder in random order, each report once, or not at all."""

from __future__ import annotations

import dataclasses
import errno
import resource
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from estimators import define
from estimators.auditing import epsilon_bound
from estimators.shuffling.crowds import shuffled_epsilon
from producers.relay import crowd_folder
from producers.relay.crowd_folder import CrowdFolder, CrowdTerms, OpenCrowd
from producers.sealing import decode_crowd
from tests.support.rows import row
from tests.unit.producers.relay.crowds import (
    LABEL,
    NEXT_LABEL,
    REPORT_BYTES,
    TERMS,
    closed,
    files,
    numbers,
    sealed,
    sent,
)

Order = Callable[[int], NDArray[np.intp]]


def within_parts(size: int) -> Order:
    """Return an order that permutes only within parts of `size` reports."""

    def order(count: int) -> NDArray[np.intp]:
        firsts = range(0, count, size)
        parts = [f + crowd_folder_order(min(size, count - f)) for f in firsts]
        return np.concatenate(parts)

    return order


crowd_folder_order = crowd_folder.random_order
MUTANTS: dict[str, Order] = {"append": np.arange, "within parts": within_parts(2)}


def correlation(path: Path, count: int) -> float:
    """Return the rank correlation of arrival and place in the parts, in standard deviations."""
    places = numbers(sent(closed(path, sealed(count))))
    assert sorted(places) == list(range(count))
    return float(abs(np.corrcoef(places, np.arange(count))[0, 1]) * np.sqrt(count - 1))


def test_the_order_of_what_is_sent_says_nothing_of_the_order_of_arrival(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """5 standard deviations: a false alarm in 2 million runs; 20,000 reports show 0.04."""
    assert correlation(tmp_path / "ours", 20_000) < 5
    for name, order in MUTANTS.items():
        with row(name):
            monkeypatch.setattr(crowd_folder, "random_order", order)
            assert correlation(tmp_path / name, 1_000) > 5


def chi_square(order: Order, crowds: int = 24_000) -> float:
    """Return chi-square of the 24 orders of crowds of 4, with 23 degrees of freedom."""
    counts = np.bincount(
        [order(4) @ np.array([64, 16, 4, 1]) for _ in range(crowds)], minlength=256
    )
    expected = crowds / 24
    return float(((counts[counts > 0] - expected) ** 2).sum() / expected) + expected * (
        24 - np.count_nonzero(counts)
    )


def test_all_orders_are_equally_likely() -> None:
    """77 is passed once in ten million runs; it finds an order that is 25% too frequent."""
    assert chi_square(crowd_folder.random_order) < 77
    for name, order in MUTANTS.items():
        with row(name):
            assert chi_square(order, 480) > 77


LEVEL, OTHERS, DELTA, TRIALS = 2.0, 299, 1e-3, 1_500


def leaked(order: Order) -> float:
    """Return a lower bound on epsilon' from an attack on the first of 300 people, at delta.

    It compares the number of ones in the first 4 reports, and in all; the others hold 0. A bound
    fails once in ten million.
    """
    generator = np.random.default_rng(1)
    keep = np.exp(LEVEL) / (1 + np.exp(LEVEL))
    hits = []
    for value in (1, 0):
        ones = np.zeros((2, OTHERS + 2))
        for _ in range(TRIALS):
            reports = generator.random(OTHERS + 1) < 1 - keep
            reports[0] ^= bool(value)
            shuffled = reports[order(OTHERS + 1)]
            ones[0, shuffled[:4].sum()] += 1
            ones[1, shuffled.sum()] += 1
        hits.append(ones[:, ::-1].cumsum(axis=1).ravel())
    hits[0] = np.maximum(hits[0] - np.ceil(DELTA * TRIALS), 0)
    return float(epsilon_bound(hits[0], TRIALS, hits[1], TRIALS, 1 - 1e-7 / hits[0].size).max())


def test_an_attack_on_one_person_stays_within_the_proved_epsilon() -> None:
    """An honest relay is convicted once in ten million runs at most.

    The proved epsilon' is 0.325. One that permutes only within parts of 4 shows more than 0.5.
    """
    metric = define(
        name="on_time", kind="mean", mechanism="randomized_response", range=(0, 1), levels=[LEVEL]
    )
    proved = shuffled_epsilon(metric.randomizer.set_laws(0), OTHERS + 1, DELTA)
    assert leaked(crowd_folder.random_order) < proved
    assert leaked(within_parts(4)) > proved


def test_a_crowd_that_is_too_small_leaves_nothing(tmp_path: Path) -> None:
    reports = sealed(100)
    rows = {
        "one fewer": (reports[:99], (99, 0, 0)),
        "one fewer, and retries": (reports[:99] + reports[:40], (99, 40, 0)),
        "none": ([], (0, 0, 0)),
        "enough, and retries": (reports + reports[30:], (100, 70, 100)),
    }
    for name, (arrived, (different, repeated, left)) in rows.items():
        with row(name):
            crowd = closed(tmp_path / name, arrived)
            assert (crowd.repeated, crowd.damaged) == (repeated, 0)
            assert crowd.too_few == (0 if left else different)
            assert sorted(sent(crowd)) == sorted(reports[:left])
            assert files(tmp_path / name) == [f"out/{TERMS.name}.0"] * bool(left)


def test_a_large_crowd_is_cut_into_parts_that_are_crowds_themselves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(crowd_folder, "MAX_CROWD_BYTES", 220 * REPORT_BYTES)
    reports = sealed(450)
    crowd = closed(tmp_path, reports)
    bodies = [decode_crowd(part.body()) for part in crowd.parts]
    assert [len(part_reports) for _, _, part_reports in bodies] == [150] * 3
    assert [part.reports for part in crowd.parts] == [150] * 3
    assert len({crowd_id for crowd_id, _, _ in bodies}) == 3
    assert {label for _, label, _ in bodies} == {LABEL}
    assert sorted(sent(crowd)) == sorted(reports)
    assert sorted(numbers(bodies[0][2])) != list(range(150))


def test_a_crowd_too_large_for_memory_is_divided_by_a_secret_hash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """5 standard deviations: a false alarm in 2 million runs. Mutant: groups by time of arrival.

    There are more retries than reports; a group of fewer than the minimum is dropped.
    """
    monkeypatch.setattr(crowd_folder, "GROUP_REPORTS", 1_000)
    monkeypatch.setattr(crowd_folder, "ROWS_AT_ONCE", 300)
    assert correlation(tmp_path / "large", 5_000) < 5
    reports = sealed(1_000)
    crowd = closed(tmp_path / "retries", reports + reports[:400] * 5)
    assert sorted(sent(crowd)) == sorted(reports)
    assert (crowd.repeated, len(crowd.parts)) == (2_000, 3)
    assert closed(tmp_path / "few", reports[:200] + reports[:100] * 20).too_few == 200
    monkeypatch.setattr(crowd_folder, "ROWS_AT_ONCE", 1_500)
    halves = np.repeat(np.arange(2, dtype=np.uint64), 750)
    monkeypatch.setattr(crowd_folder, "hashes_of", lambda *_: halves)
    assert correlation(tmp_path / "by time", 1_500) > 5


def test_unfinished_parts_are_not_posted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next run may cut the crowd in another way."""
    reports = sealed(450)

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(crowd_folder, "MAX_CROWD_BYTES", 220 * REPORT_BYTES)
        patch.setattr(Path, "unlink", killed)
        with pytest.raises(KeyboardInterrupt):
            closed(tmp_path, reports)
    with closing(CrowdFolder(tmp_path)) as folder:
        assert len(files(tmp_path)) == 4
        assert folder.parts() == []
        assert sorted(sent(folder.shuffle(TERMS.name))) == sorted(reports)
        assert [part.reports for part in folder.parts()] == [450]


def test_a_torn_record_is_not_a_report(tmp_path: Path) -> None:
    """After a loss of power: a half record at the end, or a whole one of zeros or of other bytes.

    A part of one is cut off when the file is opened again; the others have no checksum.
    """
    reports = sealed(150)
    torn = {"half": b"\0" * 30, "zeros": bytes(2 * (REPORT_BYTES + 4)), "other": b"x" * 53}
    for name, tail in torn.items():
        with row(name):
            path = tmp_path / name
            with closing(CrowdFolder(path)) as folder:
                crowd = OpenCrowd(folder, TERMS)
                crowd.append(reports[:100])
                with folder.path("open", TERMS.name).open("ab") as file:
                    file.write(tail)
            with closing(CrowdFolder(path)) as folder:
                (crowd,) = folder.open_crowds()
                assert crowd.terms == TERMS
                crowd.append(reports[100:])
                folder.end_intake(TERMS)
                assert sorted(sent(folder.shuffle(TERMS.name))) == sorted(reports)


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """Have the kernel refuse longer files, within a write."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_what_a_full_disk_has_not_taken_is_not_there(tmp_path: Path) -> None:
    reports = sealed(150)
    with closing(CrowdFolder(tmp_path)) as folder:
        crowd = OpenCrowd(folder, TERMS)
        with largest_file(20), pytest.raises(OSError, match="large"):
            crowd.append(reports[:50])
        assert files(tmp_path) == []
        crowd.append(reports[:50])
        size = folder.path("open", TERMS.name).stat().st_size
        with largest_file(size + 1_000), pytest.raises(OSError, match="large") as caught:
            crowd.append(reports[50:])
        assert caught.value.errno == errno.EFBIG
        assert folder.path("open", TERMS.name).stat().st_size == size
        crowd.append(reports[50:])
        folder.end_intake(TERMS)
        with largest_file(1_000), pytest.raises(OSError, match="large"):
            folder.shuffle(TERMS.name)
        assert folder.parts() == []
        assert sorted(sent(folder.shuffle(TERMS.name))) == sorted(reports)


def test_a_folder_has_one_relay_and_whole_files(tmp_path: Path) -> None:
    with closing(CrowdFolder(tmp_path)) as folder:
        with pytest.raises(BlockingIOError):
            CrowdFolder(tmp_path)
        crowd = OpenCrowd(folder, dataclasses.replace(TERMS, minimum=7))
        crowd.append(sealed(1))
        path = folder.path("open", TERMS.name)
        data = bytearray(path.read_bytes())
        for place in (0, 20, 40, 100):
            with row(place):
                path.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
                with pytest.raises(ValueError, match="damaged: restore it"):
                    CrowdTerms.read(path)


def test_crowds_may_be_more_than_open_files(tmp_path: Path) -> None:
    with closing(CrowdFolder(tmp_path)) as folder:
        descriptors = sum(1 for _ in Path("/proc/self/fd").iterdir())
        for terms in (TERMS, dataclasses.replace(TERMS, label=NEXT_LABEL)):
            OpenCrowd(folder, terms).append(sealed(1))
        assert sum(1 for _ in Path("/proc/self/fd").iterdir()) == descriptors


def test_a_crowd_that_waits_to_be_shuffled_keeps_its_room_on_the_disk(tmp_path: Path) -> None:
    with closing(CrowdFolder(tmp_path)) as folder:
        OpenCrowd(folder, dataclasses.replace(TERMS, label=NEXT_LABEL)).append(sealed(1))
        OpenCrowd(folder, TERMS).append(sealed(100))
        size = folder.path("open", TERMS.name).stat().st_size
        folder.end_intake(TERMS)
        assert folder.largest_bytes() == size
