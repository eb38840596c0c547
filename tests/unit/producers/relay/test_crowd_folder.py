"""A crowd leaves the relay's folder in random order, each report once, or not at all."""

import dataclasses
import errno
import os
import resource
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from numpy.typing import NDArray

from estimators.auditing import epsilon_bound
from estimators.shuffling.amplification import shuffled_epsilon
from producers.relay import crowd_folder
from producers.relay.crowd_folder import CrowdFolder, CrowdTerms, OpenCrowd, random_order
from producers.sealing import CROWD_ID_BYTES
from tests.support.metrics import mean_metric
from tests.support.rows import row
from tests.unit.producers.relay.crowds import (
    LABEL,
    NEXT_LABEL,
    REPORT_BYTES,
    TERMS,
    closed,
    files,
    numbers,
    parts,
    sealed,
    sent,
)

Order = Callable[[int], NDArray[np.intp]]


def within_parts(size: int) -> Order:
    """Return an order that permutes only within parts of `size` reports."""

    def order(count: int) -> NDArray[np.intp]:
        firsts = range(0, count, size)
        return np.concatenate([f + random_order(min(size, count - f)) for f in firsts])

    return order


MUTANTS: dict[str, Order] = {"append": np.arange, "within parts": within_parts(2)}


def correlation(path: Path, count: int) -> float:
    """Return the rank correlation of arrival and place in the parts, in standard deviations."""
    closed(path, sealed(count))
    places = numbers(sent(path))
    assert sorted(places) == list(range(count))
    return float(abs(np.corrcoef(places, np.arange(count))[0, 1]) * np.sqrt(count - 1))


def test_the_order_sent_hides_the_arrival(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """5 standard deviations: a false alarm in 2 million runs; 20,000 reports show 0.04.

    Mutants: no shuffle, within parts alone, and groups of a large crowd by time of arrival.
    """
    assert correlation(tmp_path / "ours", 20_000) < 5
    for name, order in MUTANTS.items():
        with row(name), monkeypatch.context() as patch:
            patch.setattr(crowd_folder, "random_order", order)
            assert correlation(tmp_path / name, 1_000) > 5
    monkeypatch.setattr(crowd_folder, "GROUP_REPORTS", 1_000)
    monkeypatch.setattr(crowd_folder, "ROWS_AT_ONCE", 300)
    assert correlation(tmp_path / "large", 5_000) < 5
    monkeypatch.setattr(crowd_folder, "ROWS_AT_ONCE", 1_500)
    halves = np.repeat(np.arange(2, dtype=np.uint64), 750)
    monkeypatch.setattr(crowd_folder, "hashes_of", lambda *_: halves)
    assert correlation(tmp_path / "by time", 1_500) > 5


def chi_square(order: Order, crowds: int) -> float:
    """Return chi-square of the 24 orders of crowds of 4, with 23 degrees of freedom."""
    drawn = [order(4) @ np.array([64, 16, 4, 1]) for _ in range(crowds)]
    counts = np.unique(drawn, return_counts=True)[1]
    return float((counts**2).sum() * 24 / crowds - crowds)


def test_all_orders_are_equally_likely() -> None:
    """77 is passed once in ten million runs; it finds an order that is 25% too frequent."""
    assert chi_square(random_order, 24_000) < 77
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
    metric = mean_metric("on_time", "randomized_response", (0, 1), [LEVEL])
    proved = shuffled_epsilon(metric.randomizer.set_laws(0), OTHERS + 1, DELTA)
    assert leaked(random_order) < proved < leaked(within_parts(4))


def test_a_crowd_is_sent_in_small_crowds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last two crowds are too large for memory, by their retries."""
    reports = sealed(1_000)
    rows: dict[str, tuple[list[bytes], dict[str, int], list[int] | None]] = {
        "one fewer": (reports[:99], {"too_few": 99}, []),
        "and retries": (reports[:99] + reports[:40], {"too_few": 99, "repeated": 40}, []),
        "none": ([], {}, []),
        "enough, and retries": (reports[:100] + reports[30:100], {"repeated": 70}, [100]),
        "three parts": (reports[:450], {}, [150] * 3),
        "large": (reports + reports[:400] * 5, {"repeated": 2_000}, None),
        "large, too few": (reports[:200] * 11, {"too_few": 200, "repeated": 2_000}, []),
    }
    monkeypatch.setattr(crowd_folder, "MAX_CROWD_BYTES", 220 * REPORT_BYTES)
    for name, (arrived, outcomes, sizes) in rows.items():
        if name == "large":
            monkeypatch.setattr(crowd_folder, "GROUP_REPORTS", 1_000)
            monkeypatch.setattr(crowd_folder, "ROWS_AT_ONCE", 300)
        with row(name):
            assert closed(tmp_path / name, arrived) == outcomes
            crowds = parts(tmp_path / name)
            assert sorted(sent(tmp_path / name)) == ([] if sizes == [] else sorted({*arrived}))
            assert sizes in (None, [len(part) for _, _, part in crowds])
            assert len({crowd_id for crowd_id, _, _ in crowds}) == len(crowds)
            assert {label for _, label, _ in crowds} <= {LABEL}
            assert len(files(tmp_path / name)) == len(crowds)


def test_a_torn_record_is_not_a_report(tmp_path: Path) -> None:
    """After a loss of power: a half record at the end, or a whole one of zeros or of other bytes.

    A part of one is cut off when the file is opened again; the others have no checksum.
    """
    reports = sealed(150)
    torn = {"half": b"\0" * 30, "zeros": bytes(2 * (REPORT_BYTES + 4)), "other": b"x" * 53}
    for name, tail in torn.items():
        with row(name), closing(CrowdFolder(tmp_path / name)) as folder:
            OpenCrowd(folder, TERMS).append(reports[:100])
            with folder.path("open", TERMS.name).open("ab") as file:
                file.write(tail)
            (crowd,) = folder.open_crowds()
            assert crowd.terms == TERMS
            crowd.append(reports[100:])
            folder.end_intake(TERMS)
            folder.shuffle(TERMS.name)
        assert sorted(sent(tmp_path / name)) == sorted(reports)


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """Have the kernel refuse longer files, within a write."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_what_a_full_disk_refused_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A crowd that is not shuffled keeps its room: the relay refuses posts before it is short."""
    reports = sealed(150)
    with closing(CrowdFolder(tmp_path)) as folder:
        crowd, path = OpenCrowd(folder, TERMS), folder.path("open", TERMS.name)
        with largest_file(20), pytest.raises(OSError, match="large"):
            crowd.append(reports[:50])
        assert files(tmp_path) == []
        crowd.append(reports[:50])
        size = path.stat().st_size
        with largest_file(size + 1_000), pytest.raises(OSError, match="large") as caught:
            crowd.append(reports[50:])
        assert (caught.value.errno, path.stat().st_size) == (errno.EFBIG, size)
        crowd.append(reports[50:])
        size = path.stat().st_size
        OpenCrowd(folder, dataclasses.replace(TERMS, label=NEXT_LABEL)).append(reports[:1])
        folder.end_intake(TERMS)
        monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_bavail=10, f_frsize=4096))
        assert folder.free_bytes() == 40_960 - size
        with largest_file(1_000), pytest.raises(OSError, match="large"):
            folder.shuffle(TERMS.name)
        assert folder.parts() == {}
        folder.shuffle(TERMS.name)
    assert sorted(sent(tmp_path)) == sorted(reports)


def open_files(folder: Path) -> list[str]:
    """Return the files of a folder that this process has open."""
    names = []
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # of the loop itself
            names.append(os.readlink(descriptor))  # noqa: PTH115
    return [name for name in names if name.startswith(str(folder))]


def test_a_folder_has_one_relay_whole_files_and_few_open_ones(tmp_path: Path) -> None:
    with closing(CrowdFolder(tmp_path)) as folder:
        with pytest.raises(BlockingIOError):
            CrowdFolder(tmp_path)
        opened = open_files(tmp_path)
        for terms in (TERMS, dataclasses.replace(TERMS, label=NEXT_LABEL)):
            OpenCrowd(folder, terms).append(sealed(1))
        assert open_files(tmp_path) == opened
        path = folder.path("open", TERMS.name)
        data = path.read_bytes()
        for place in (0, 5, 40, 100):
            path.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
            with row(place), pytest.raises(ValueError, match="damaged: restore it"):
                CrowdTerms.read(path)


def test_a_damaged_file_is_named_and_harms_no_other(tmp_path: Path) -> None:
    """The foreign file in closing/ has a name that is a pattern for all others."""
    path = tmp_path / "relay"
    closed(path, sealed(100))
    with closing(CrowdFolder(path)) as folder:
        ((part, terms),) = folder.parts().items()
        folder.path("closing", "*").touch()
        with pytest.raises(ValueError, match="damaged: restore it"):
            folder.shuffle("*")
        folder.path("out", "foreign").touch()
        assert list(folder.parts()) == [part]
        data, head = part.read_bytes(), len(terms.encode())
        label = head + CROWD_ID_BYTES + 10
        damaged = {
            "cut": data[:-60],
            "shorter reports": data[:-100],
            "another label": data[:label] + bytes([data[label] ^ 1]) + data[label + 1 :],
        }
        for name, changed in damaged.items():
            part.write_bytes(changed)
            with row(name), pytest.raises(ValueError, match=str(part)):
                folder.read_part(part, terms)
    for name in ("out", "closed"):
        closed(path := tmp_path / name, sealed(100))
        (file,) = (path / name).iterdir()
        file.write_bytes(b"")
        (path / "other").mkdir()
        (letter := path / "other/letter.new").touch()
        with row(name), pytest.raises(ValueError, match=str(file)):
            CrowdFolder(path)
        assert letter.exists()


def test_no_part_is_listed_while_shuffling(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another thread begins between two looks. Mutant: closing/ is listed before out/."""
    with closing(CrowdFolder(tmp_path)) as folder:
        OpenCrowd(folder, TERMS).append(sealed(100))
        list_closing = folder.closing

        def begin_meanwhile() -> set[str]:
            names = list_closing()
            folder.end_intake(TERMS)
            folder._write_parts(folder.path("closing", TERMS.name), TERMS)
            return names

        monkeypatch.setattr(folder, "closing", begin_meanwhile)
        assert folder.parts() == {}
