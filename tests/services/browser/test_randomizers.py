"""The browser's randomizers are those of Python: bit for bit, and in their law."""

from __future__ import annotations

import dataclasses
import json
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Page

from aggregator.timestamps import LAST_MS
from estimators import LocalMetric, define
from estimators.exact.thresholds import miss_threshold
from estimators.mechanisms import MECHANISMS
from estimators.mechanisms.hadamard_response import block_count
from producers.wire.batch import encode_batch
from tests.support.browser_module import RANDOMIZE, assert_vector
from tests.support.paths import ROOT
from tests.support.prepared_words import PreparedWords, awkward_words
from tests.support.running import served

LEVELS = [0.0001, 0.1, 0.5, 1, 1.3863, 2, 4.25, 8, 16, 64]
SEED = 20261121


def binary(low: float = 0, high: float = 1) -> LocalMetric:
    return define(
        name="late",
        kind="mean",
        mechanism="randomized_response",
        range=(low, high),
        levels=LEVELS,
    )


def categorical(mechanism: str, categories: int, levels: list[float] = LEVELS) -> LocalMetric:
    return define(
        name="carrier",
        kind="frequency",
        mechanism=mechanism,
        categories=[f"c{index}" for index in range(categories)],
        levels=levels,
    )


def binned(**bins: Any) -> LocalMetric:
    levels = [level for level in LEVELS if level <= 16]
    return LocalMetric.require(define(name="latency", kind="distribution", levels=levels, **bins))


BINNED = [
    binned(range=(0, 1), bins=2),
    binned(range=(-60.5, 180.25), bins=100),
    binned(range=(1, 1e6), bins=256, scale="log"),
    binned(edges=[0, 0.1, 5, 250.5, 1e4, 1e5, 1e6]),
    binned(range=(0, 1), bins=4096),
]


def definition(metric: LocalMetric) -> dict[str, Any]:
    """What a device gets from `GET /v1/metrics/NAME`, as far as it needs it."""
    if metric.kind == "distribution":
        return served.definition(metric)
    found: dict[str, Any] = {
        "name": metric.name,
        "kind": metric.kind,
        "mechanism": metric.mechanism,
        "levels": list(metric.levels),
        "revision": metric.revision,
    }
    if metric.kind == "mean":
        assert metric.range is not None
        return found | {"range": list(metric.range)}
    return found | {"categories": list(metric.category_names)}


def thresholds_of(metric: LocalMetric) -> list[int]:
    mechanism: Any = metric.randomizer
    if metric.mechanism == "hadamard_response":
        return list(mechanism.misses)
    if metric.mechanism == "dyadic_hadamard":
        return [level.threshold for level in mechanism.levels]
    return list(mechanism._flipped.flips)


@pytest.mark.parametrize(
    "metric",
    [
        binary(),
        binary(-60.5, 180.25),
        *(categorical("rappor", k) for k in (2, 7, 8, 9, 100, 1000)),
        *(categorical("hadamard_response", k) for k in (2, 3, 31, 32, 33, 1000, 100_000)),
        *BINNED,
    ],
    ids=lambda metric: f"{metric.mechanism}-{metric.domain.parameters or metric.range}",
)
def test_the_same_random_words_give_the_same_bytes(device: Page, metric: LocalMetric) -> None:
    generator = np.random.default_rng(SEED)
    thresholds = thresholds_of(metric)
    size = max(1, len(metric.labels))
    count = 300 if size < 1000 else 60
    cases, expected, consumed = [], [], []
    for _ in range(count):
        epsilon = float(generator.choice(LEVELS)) * float(generator.choice([1, 1.01]))
        if metric.kind != "frequency":
            low, high = sorted(metric.domain.opposite)
            value = generator.choice([low, high, generator.uniform(low - 50, high + 50)]).item()
        else:
            value = generator.choice([0, size - 1, int(generator.integers(size))]).item()
        longest = 64 + (2 * -(-size // 8) + size if metric.mechanism == "rappor" else 0)
        words = PreparedWords(awkward_words(generator, thresholds, longest))
        level = metric.level_of([epsilon])
        report = metric.randomize([value], level, words)
        expected.append([int(level[0]), list(metric.randomizer.encode(report)), words.used])
        consumed.append(words.used)
        shown = [str(word) for word in words.words[: words.used].tolist()]
        cases.append({"value": value, "epsilon": epsilon, "words": shown})
    assert device.evaluate(RANDOMIZE, [definition(metric), cases]) == expected
    assert len(set(consumed)) > 1, "no word tied or was rejected: the test is too tame"


def test_the_reports_and_fingerprints_are_those_of_the_vectors(device: Page) -> None:
    for vector in json.loads((ROOT / "tests" / "vectors" / "mechanisms.json").read_text()):
        metric = LocalMetric.require(define(name="asked", **vector["definition"]))
        assert_vector(device, metric, vector)


def test_thresholds_are_those_of_python_at_every_level(device: Page) -> None:
    generator = np.random.default_rng(SEED)
    grid = [0.0001, 0.6931, 1, 64, *np.round(generator.uniform(0.0001, 64, 150), 4).tolist()]
    grid += np.round(np.exp(generator.uniform(-9, 0, 150)), 4).tolist()
    grid = sorted({epsilon for epsilon in grid if epsilon > 0})
    sizes = [(1, 1), (1, 2**40 - 1), (3, 7), (2**19, 2**20)]
    found = device.evaluate(
        """([grid, sizes]) => grid.map((epsilon) => [
          ...sizes.map(([a, b]) => String(dither.missThreshold(epsilon, BigInt(a), BigInt(b)))),
          String(dither.missThreshold(epsilon, 1n, 1n, 2n)),
          ...[2, 1000, 2 ** 20].map((k) => String(dither.blockCount(epsilon, k))),
        ])""",
        [grid, [[a, b] for a, b in sizes]],
    )
    for epsilon, row in zip(grid, found, strict=True):
        exact = Fraction(round(epsilon * 10**4), 10**4)
        expected = [miss_threshold(exact, *size) for size in sizes]
        expected.append(miss_threshold(exact / 2, 1, 1))
        expected += [block_count(exact, k) for k in (2, 1000, 2**20)]
        assert row == [str(threshold) for threshold in expected], epsilon


DOMAINS: dict[str, dict[str, Any]] = {
    "mean": {"range": (0, 1)},
    "frequency": {"categories": ["a", "b", "c"]},
    "vector_mean": {"coordinates": ["north", "east"], "radius": 2},
    "distribution": {"range": (0, 1), "bins": 16},
}
VALUES = {"mean": 0.5, "frequency": "b", "vector_mean": [1, -1], "distribution": 0.5}
OPEN = {"categories": "open"}


def test_the_browser_has_every_mechanism_and_so_does_the_page_to_try_it(device: Page) -> None:
    seen = set()
    for name, kinds in MECHANISMS.usable():
        for kind in kinds:
            keys = DOMAINS[kind]
            if name in ("count_sketch", "projective_sketch", "prefix_tree"):
                keys = OPEN | (
                    {"discover": True, "preset": "text"} if name == "prefix_tree" else {}
                )
            metric = define(name="asked", kind=kind, mechanism=name, levels=[0.5, 3], **keys)
            report, fingerprint = device.evaluate(
                """([definition, value]) => [
                  Array.from(dither.randomize(definition, value, 3).report),
                  dither.fingerprintOf(definition),
                ]""",
                [served.definition(metric), VALUES[kind]],
            )
            local = LocalMetric.require(metric)
            local.randomizer.check(bytes([1]), bytes(report))
            assert fingerprint == metric.fingerprint.hex(), name
            seen.add(name)
    assert seen == set(MECHANISMS), "a mechanism that no browser runs"


def test_a_browsers_vectors_have_the_law_of_python(device: Page) -> None:
    """The mean of B U / g is the value, in each coordinate, at each of three levels.

    A coordinate of a report is at most B, and has at most that deviation: |z| > 4.9 has a
    probability of about 1e-6; 3 x 3 numbers: below 1e-4 for a false alarm.
    """
    keys: dict[str, Any] = {"dimension": 3, "radius": 2.0}
    metric = define(name="v", kind="vector_mean", mechanism="hemisphere", levels=LEVELS, **keys)
    mechanism: Any = LocalMetric.require(metric).randomizer
    value, devices = [1.2, -0.4, 0.0], 6000
    for epsilon in (0.5, 2, 4.25):
        found = device.evaluate(
            """([definition, value, epsilon, n]) => Array.from({ length: n }, () =>
              dither.randomize(definition, value, epsilon).report.toHex()).join("")""",
            [served.definition(metric), value, epsilon, devices],
        )
        values, index = bytes.fromhex(found), int(metric.level_of(epsilon))
        mechanism.check(bytes([index]) * devices, values)
        reports = mechanism.decode(values) / mechanism.grid * mechanism.scale[index] * 2.0
        spread = reports.std(axis=0) / math.sqrt(devices)
        assert np.all(np.abs(reports.mean(axis=0) - value) <= 4.9 * spread), epsilon


@pytest.mark.parametrize("time_ms", [0, 1, 1_357_034_400_000, LAST_MS])
@pytest.mark.parametrize(
    "metric",
    [binary(), categorical("rappor", 19), categorical("hadamard_response", 1000)],
    ids=lambda metric: metric.mechanism,
)
def test_a_batch_is_encoded_as_by_python(device: Page, metric: LocalMetric, time_ms: int) -> None:
    level = metric.level_of(LEVELS * 30)
    values = np.arange(level.size) % max(2, len(metric.labels))
    reports = metric.randomize(values, level)
    rows = [list(metric.randomizer.encode(row)) for row in reports]
    key = bytes(range(16))
    found = device.evaluate(
        """([definition, levels, rows, time, key]) => Array.from(dither.encodeBatch(
          definition, levels, rows.map((row) => Uint8Array.from(row)),
          { time, batchId: Uint8Array.from(key) }))""",
        [served.definition(metric), level.tolist(), rows, time_ms, list(key)],
    )
    assert bytes(found) == encode_batch(metric, level, reports, time_ms, key)


SLICED = dataclasses.replace(
    binary(),
    by=["version", "country", "a_very_long_name"],
    attributes={
        "version": ["1", "2"],
        "country": ["DE", "Österreich"],
        "a_very_long_name": ["\U0001f6a2" * 16],
    },
)


@pytest.mark.parametrize("metric", [SLICED, binary()], ids=["sliced", "plain"])
@pytest.mark.parametrize(
    "attributes",
    [
        {},
        {"version": "2"},
        {"version": "2", "country": "Österreich", "a_very_long_name": "\U0001f6a2" * 16},
        {"city": "Vaduz", "country": "Liechtenstein", "version": ""},
        {"country": "other", "version": "none"},
        {"constructor": "1", "toString": "2"},
    ],
)
def test_attributes_are_coarsened_and_encoded_as_by_python(
    device: Page, metric: LocalMetric, attributes: dict[str, str]
) -> None:
    key = bytes(range(16))
    found = device.evaluate(
        """([definition, attributes, key]) => Array.from(dither.encodeBatch(
          definition, [1, 2], [Uint8Array.of(1), Uint8Array.of(0)],
          { time: 7, batchId: Uint8Array.from(key), attributes }))""",
        [served.definition(metric), attributes, list(key)],
    )
    expected = encode_batch(metric, [1, 2], [1, 0], 7, key, attributes=attributes)
    assert bytes(found) == expected
    assert b"Vaduz" not in expected
    assert b"Liecht" not in expected


@pytest.mark.parametrize("metric", [SLICED, binary()], ids=["sliced", "plain"])
@pytest.mark.parametrize(
    ("attributes", "said"),
    [
        ({"country": 49}, "attribute country = 49: expected a text; leave out"),
        ({"country": None}, "attribute country = null: expected a text"),
        ({"x": "ü" * 33}, f"attribute x = {'ü' * 33}: expected texts of 64 bytes at most"),
        ({"x" * 65: ""}, "expected texts of 64 bytes at most"),
        ({f"a{i}": "1" for i in range(17)}, "17 attributes: expected 16 at most"),
    ],
)
def test_what_cannot_be_an_attribute_is_an_error_and_nothing_is_reported(
    device: Page, metric: LocalMetric, attributes: dict[str, Any], said: str
) -> None:
    found = device.evaluate(
        """([definition, attributes]) =>
          dither.report("/posted", definition, 1, 1, { attributes })
            .then(() => "", (error) => `${error.name}: ${error.message}`)""",
        [served.definition(metric), attributes],
    )
    assert found.startswith(("TypeError", "RangeError"))
    assert said in found


@pytest.mark.parametrize(
    "metric",
    [binary(), categorical("rappor", 9), categorical("hadamard_response", 9)],
    ids=lambda metric: metric.mechanism,
)
def test_reports_of_the_browser_are_unbiased(device: Page, metric: LocalMetric) -> None:
    """Each cell of the statistic is binomial with a known mean at each of three levels.

    |z| > 4.9 has probability 1e-6; at most 3 x 16 cells a metric: below 5e-5 for a false alarm.
    """
    devices, epsilons = 6000, [0.5, 1, 4.25]
    value = 1 if metric.kind == "mean" else 5
    statistic = metric.zero()
    for epsilon in epsilons:
        found = device.evaluate(
            """([definition, value, epsilon, n]) => Array.from({ length: n }, () =>
              dither.randomize(definition, value, epsilon).report.toHex()).join("")""",
            [definition(metric), value, epsilon, devices],
        )
        values = bytes.fromhex(found)
        level = np.full(devices, metric.level_of(epsilon))
        metric.randomizer.check(level.astype(np.uint8).tobytes(), values)
        metric.accumulate_checked(statistic, level, metric.randomizer.decode(values))
    table = statistic.reshape(len(metric.levels), -1)
    for epsilon in epsilons:
        index = int(metric.level_of(epsilon))
        expected = cell_probabilities(metric, index, value)
        assert table[index, 0] == devices
        for observed, p in zip(table[index, 1:], expected, strict=False):
            z = (observed - devices * p) / math.sqrt(devices * p * (1 - p))
            assert abs(z) < 4.9, (epsilon, observed, devices * p)


def cell_probabilities(metric: LocalMetric, level: int, value: int) -> list[float]:
    """Return the chance that a report adds to each cell, from Python's thresholds."""
    mechanism: Any = metric.randomizer
    miss = thresholds_of(metric)[level] / 2**64
    if metric.kind == "mean":
        return [1 - miss]
    if metric.mechanism == "rappor":
        return [1 - miss if i == value else miss for i in range(len(metric.labels))]
    blocks, size = mechanism.blocks[level], mechanism.block_sizes[level]
    block, row = value % blocks, 1 + value // blocks
    own = [
        symbol // size == block and (symbol % size & row).bit_count() % 2 == 0
        for symbol in range(blocks * size)
    ]
    inside = sum(own)
    return [(1 - miss) / inside if held else miss / (len(own) - inside) for held in own]


WINDOWS = {"mechanism": "windows", "constants": {"window": [1] * 10, "z": [[-1, 0, 1]] * 10}}
BALL = {"mechanism": "hemisphere", "coordinates": ["north", "east"], "radius": 5}

MANY = {"candidates": [2**22] * 10, "inside": [1] * 10}
CAPS = {"mechanism": "caps", "coordinates": ["north"], "radius": 5, "constants": MANY}


@pytest.mark.parametrize(
    ("changed", "value", "epsilon", "said"),
    [
        ({}, 1, 0.00005, "epsilon = 0.00005: metric late offers 0.0001, 0.1"),
        ({}, 1, None, "epsilon = null"),
        ({}, "yes", 1, "value yes of late: expected a number"),
        ({"mechanism": "hemisphere"}, 1, 1, "late: expected a definition with coordinates and a"),
        ({**BALL, "options": {"grid": 2**25}}, [1, 2], 1, "options of late: expected a grid of 1"),
        ({**BALL, "radius": 0}, [1, 2], 1, "late: expected a definition with coordinates and a"),
        (BALL, 1, 1, "value 1 of late: expected a list of 2 numbers"),
        (BALL, [1, 2, 3], 1, "value 1,2,3 of late: expected a list of 2 numbers"),
        (BALL, [1, "2"], 1, "value 2 of late: expected a number"),
        ({"mechanism": "repetition", "options": {"of": "grr"}}, 1, 1, "of: randomized_response"),
        ({"mechanism": "repetition", "options": {"off": 1}}, 1, 1, "options of late: expected of"),
        ({"mechanism": "laplace", "options": {"grid": 3}}, 1, 1, "expected a grid, a power of"),
        ({"mechanism": "laplace", "options": {"grid": 2**40}}, 1, 1, "expected another grid"),
        ({"mechanism": "grr", "categories": ["a"]}, 0, 1, "names of two or more categories"),
        ({"mechanism": "rappor", "categories": 10**9}, 0, 1, "names of two or more categories"),
        ({"mechanism": "count_sketch"}, "a", 1, 'late: expected categories "open"'),
        ({"range": None}, 1, 1, "late: a definition without a range"),
        ({**WINDOWS, "range": [0, 5e-324]}, 0, 1, "late: a definition without a range of finite"),
        ({**WINDOWS, "range": [-1.7e308, 1.7e308]}, 1e308, 1, "without a range of finite numbers"),
        ({**WINDOWS, "range": ["0", "1"]}, 1, 1, "late: a definition without a range of finite"),
        (CAPS, [1], 1, "late: expected constants that fit level 0"),
        ({"levels": [0.5, 1e300]}, 1, 1, "levels of late: expected 1 to 255 ascending epsilons"),
        ({"levels": [1, 0.5]}, 1, 1, "levels of late: expected"),
        ({"levels": ["0.5"]}, 1, 1, "levels of late: expected"),
        ({"trust": "central"}, 1, 1, "late is collected in trust: expected a metric that is"),
        ({"mechanism": "true_values"}, 1, 1, "mechanism true_values of late: this module has"),
        ({"levels": [0.00001, 1]}, 1, 1, "epsilon = 0.00001: expected above 0, at most 4 decimal"),
        ({"mechanism": "rappor", "categories": ["a", "b"]}, "c", 1, "category c of late: expected"),
        ({"mechanism": "rappor", "categories": ["a", "b"]}, 2, 1, "an index from 0 to 1"),
    ],
)
def test_what_cannot_be_randomized_is_an_error_that_says_so(
    device: Page, changed: dict[str, Any], value: Any, epsilon: Any, said: str
) -> None:
    given = {k: v for k, v in (definition(binary()) | changed).items() if v is not None}
    found = device.evaluate(
        """([definition, value, epsilon]) => {
          try { return dither.randomize(definition, value, epsilon); }
          catch (error) { return error.message; }
        }""",
        [given, value, epsilon],
    )
    assert isinstance(found, str), found
    assert said in found


def test_a_category_may_be_given_by_its_name(device: Page) -> None:
    metric = categorical("rappor", 9, [64])
    found = device.evaluate(
        "(definition) => Array.from(dither.randomize(definition, 'c4', 64).report)",
        definition(metric),
    )
    assert found == [16, 0]  # flipped by none: e^-32 for each bit


@pytest.mark.parametrize("revision", [0, 1, 2**32, 2**53 - 1, None])
@pytest.mark.parametrize("metric", [binary(), categorical("rappor", 9)], ids=lambda m: m.mechanism)
def test_a_batch_carries_no_number_that_marks_a_browser(
    device: Page, metric: LocalMetric, revision: int | None
) -> None:
    """A revision that a server made up for one browser would come back with each of its batches."""
    found = device.evaluate(
        """([definition, width]) => {
          try { return dither.encodeBatch(definition, [0], [new Uint8Array(width)]); }
          catch (error) { return error.message; }
        }""",
        [{**served.definition(metric), "revision": revision}, metric.randomizer.width],
    )
    assert f"expected {metric.revision}, by what it says" in found


def test_a_browsers_distributions_have_the_law_of_python(device: Page) -> None:
    """The depths, and how often the true symbol is sent, are binomial at each of three levels.

    |z| > 4.9 has probability 1e-6; at most 3 x 9 numbers: below 3e-5 for a false alarm.
    """
    metric, devices, value = binned(range=(0, 1), bins=200), 6000, 0.61803
    mechanism: Any = metric.randomizer
    for epsilon in (0.5, 2, 4.25):
        found = device.evaluate(
            """([definition, value, epsilon, n]) => Array.from({ length: n }, () =>
              dither.randomize(definition, value, epsilon).report.toHex()).join("")""",
            [definition(metric), value, epsilon, devices],
        )
        values, index = bytes.fromhex(found), int(metric.level_of(epsilon))
        mechanism.check(bytes([index]) * devices, values)
        reports, level = mechanism.decode(values), mechanism.levels[index]
        own = mechanism.log_likelihood(reports, index, int(200 * value)) > 0
        depths = np.bincount(reports[:, 0] & 15, minlength=9)
        kept = level.threshold / 2**64
        expected = [chance / 2**16 for chance in level.chances] + [
            kept + (1 - kept) / level.symbols
        ]
        for observed, p in zip([*depths.tolist(), int(own.sum())], expected, strict=True):
            spread = math.sqrt(devices * p * (1 - p))
            assert abs(observed - devices * p) <= 4.9 * spread, (epsilon, observed, devices * p)


@pytest.mark.parametrize(
    "changed",
    [
        {"constants": None},
        {"block_bits": [-1] * 8},
        {"block_bits": [8] * 8},
        {"hash_bits": [3] * 8},
        {"depths": [[0] * 9] * 8},
        {"depths": [[65536] + [0] * 8] * 8},
        {"depths": [[0] * 8 + [65536.5]] * 8},
        {"depths": [[0] * 8 + [65536, 0]] * 8},
        {"edges": [0, 1, 1], "bins": None},
        {"bins": 1},
        {"bins": 5000},
        {"bins": 1e15},
        {"edges": {"length": 1e9}, "bins": None},
        {"range": [0, 1, 2]},
        {"scale": "cubic"},
    ],
    ids=str,
)
def test_a_distribution_that_cannot_be_reported_is_an_error(
    device: Page, changed: dict[str, Any]
) -> None:
    given = definition(binned(range=(1, 1e6), bins=256))
    if changed.keys() & given["constants"].keys():
        changed = {"constants": given["constants"] | changed}
    given = {key: one for key, one in (given | changed).items() if one is not None}
    found = device.evaluate(
        """(definition) => { try { dither.randomize(definition, 1, 1); return ""; }
          catch (error) { return `${error.name}: ${error.message}`; } }""",
        given,
    )
    assert found.startswith("TypeError: latency: a definition w")


def test_a_level_that_would_be_rounded_up_is_refused(device: Page) -> None:
    """Randomized at 0.0001, a report of the level 0.00005 would say twice as much as it may."""
    given = definition(binned(range=(1, 1e6), bins=256))
    given["levels"] = [0.00005, *given["levels"][1:]]
    found = device.evaluate(
        """(definition) => { try { dither.randomize(definition, 1, 0.00005); return ""; }
          catch (error) { return `${error.name}: ${error.message}`; } }""",
        given,
    )
    assert found == "RangeError: epsilon = 0.00005: expected above 0, at most 4 decimal digits"
