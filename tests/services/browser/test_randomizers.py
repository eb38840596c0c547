"""The browser's randomizers are those of Python, bit for bit."""

import dataclasses
import json
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from aggregator.timestamps import LAST_MS
from estimators import DefinitionError, LocalMetric, define, limits
from estimators.exact.thresholds import miss_threshold
from estimators.mechanisms import MECHANISMS
from estimators.mechanisms.hadamard_response import block_count
from producers.http.definitions import read_served
from producers.wire.batch import encode_batch
from tests.services.browser.conftest import Modules
from tests.services.browser.test_strings import PIECES, discovered, sketched
from tests.support.paths import ROOT
from tests.support.prepared_words import PreparedWords, awkward_words
from tests.support.rows import row
from tests.support.running.served import definition

LEVELS = [0.0001, 0.1, 0.5, 1, 1.3863, 2, 4.25, 8, 16, 64]
SEED = 20261121
RANDOMIZE = """
([definition, cases]) => {
  const own = cases.map(({value, epsilon, words}) => {
    const prepared = BigUint64Array.from(words.map((word) => BigInt(word)));
    let used = 0;
    crypto.getRandomValues = (array) => {
      array.set(prepared.slice(used, used += array.length));
      return array;
    };
    const { level, report } = dither.randomize(definition, value, epsilon);
    return [level, Array.from(report), used];
  });
  delete crypto.getRandomValues; // that of the platform shows again
  return own;
}
"""
"""Of the platform's generator, as it is when nobody prepares its words."""


def binary(
    low: float = 0, high: float = 1, mechanism: str = "randomized_response", top: float = 64
) -> LocalMetric:
    levels = [level for level in LEVELS if 0.1 <= level <= top or top == 64]
    return define(name="late", kind="mean", mechanism=mechanism, range=(low, high), levels=levels)


def categorical(mechanism: str, categories: int) -> LocalMetric:
    names = [f"c{index}" for index in range(categories)]
    keys: dict[str, Any] = {"mechanism": mechanism, "categories": names, "levels": LEVELS}
    return LocalMetric.require(define(name="carrier", kind="frequency", **keys))


def binned(**bins: Any) -> LocalMetric:
    levels = [level for level in LEVELS if level <= 16]
    return LocalMetric.require(define(name="latency", kind="distribution", levels=levels, **bins))


def vector(mechanism: str) -> LocalMetric:
    keys: dict[str, Any] = {"coordinates": ["north", "east"], "radius": 2.5, "levels": [0.5, 2]}
    return LocalMetric.require(define(name="v", kind="vector_mean", mechanism=mechanism, **keys))


def thresholds_of(metric: LocalMetric) -> list[int]:
    mechanism: Any = metric.randomizer
    if metric.mechanism in ("laplace", "windows", "repetition", "hemisphere", "caps"):
        return [2**62]
    if hasattr(mechanism, "misses"):
        return list(mechanism.misses)
    if metric.mechanism == "dyadic_hadamard":
        return [level.threshold for level in mechanism.levels]
    return list(mechanism._flipped.flips)


def test_the_same_random_words_give_the_same_bytes(device: Modules) -> None:
    metrics = [binary(), binary(-60.5, 180.25)]
    metrics += [binary(-60.5, 180.25, other, 16) for other in ("laplace", "windows", "repetition")]
    metrics += [vector("hemisphere"), vector("caps")]
    metrics += [categorical("rappor", k) for k in (2, 7, 8, 9, 100, 1000)]
    metrics += [categorical("hadamard_response", k) for k in (2, 3, 31, 32, 33, 1000, 100_000)]
    metrics += [
        binned(range=(0, 1), bins=2),
        binned(range=(-60.5, 180.25), bins=100),
        binned(range=(1, 1e6), bins=256, scale="log"),
        binned(edges=[0, 0.1, 5, 250.5, 1e4, 1e5, 1e6]),
        binned(range=(0, 1), bins=4096),
        discovered([0.0001, 1, 2, 64], options={"last": 40}),
        sketched([0.0001, 1, 2, 64], options={"rows": 300, "seed": 3}),
    ]
    for metric in metrics:
        with row(metric.mechanism, metric.domain.parameters, metric.range):
            assert_same_bytes(device, metric)


def assert_same_bytes(device: Modules, metric: LocalMetric) -> None:
    generator = np.random.default_rng(SEED)
    thresholds = thresholds_of(metric)
    size = max(1, len(metric.labels))
    has_strings = metric.kind == "frequency" and not metric.labels
    cases: list[dict[str, Any]] = []
    expected, consumed = [], set()
    for _ in range(300 if has_strings else 100 if size < 1000 else 30):
        epsilon = float(generator.choice(metric.levels)) * float(generator.choice([1, 1.01]))
        if metric.kind == "vector_mean":  # some are beyond the radius in no coordinate
            value = generator.uniform(-3, 3, 2).tolist()
        elif has_strings:
            value = "".join(generator.choice(PIECES, int(generator.integers(0, 12))))
        elif metric.kind != "frequency":
            low, high = sorted(metric.domain.opposite)
            value = generator.choice([low, high, generator.uniform(low - 50, high + 50)]).item()
        else:
            value = generator.choice([0, size - 1, int(generator.integers(size))]).item()
        longest = 64 + (2 * -(-size // 8) + size if metric.mechanism == "rappor" else 0)
        words = PreparedWords(awkward_words(generator, thresholds, longest))
        level = metric.level_of([epsilon])
        report = metric.randomize([value], level, words)
        expected.append([int(level[0]), list(metric.randomizer.encode(report)), words.used])
        consumed.add(words.used)
        shown = [str(word) for word in words.words[: words.used].tolist()]
        if metric.kind == "frequency" and metric.labels and len(cases) % 2:
            value = metric.labels[value]
        cases.append({"value": value, "epsilon": epsilon, "words": shown})
    assert device.evaluate(RANDOMIZE, [definition(metric), cases]) == expected
    assert len(consumed) > 1, "no word tied or was rejected: the test is too tame"


def test_the_reports_and_fingerprints_are_those_of_the_vectors(device: Modules) -> None:
    text: dict[str, Any] = {"kind": "frequency", "categories": "open"}
    discovered = text | {"discover": True, "preset": None}
    found: list[tuple[Any, dict[str, Any]]] = [
        (vectors("mechanisms"), {}),
        (vectors("projective_sketch"), text),
        (vectors("prefix_tree")["reports"], discovered),
    ]
    for each, keys in found:
        for vector in each:
            name = "asked" if not keys else "page"
            metric = define(name=name, **(keys | vector["definition"]))
            assert_vector(device, LocalMetric.require(metric), vector)


def assert_vector(device: Modules, metric: LocalMetric, vector: dict[str, Any]) -> None:
    """Assert that the browser's reports and fingerprint of a metric are those of a vector."""
    given, cases, expected = definition(metric), [], []
    for value, level, words, report in vector["cases"]:
        shown = [str(int(word, 16)) for word in words]
        cases.append({"value": value, "epsilon": metric.levels[level], "words": shown})
        expected.append([level, list(bytes.fromhex(report)), len(words)])
    assert device.evaluate(RANDOMIZE, [given, cases]) == expected, vector["definition"]
    found = device.evaluate("(definition) => dither.fingerprintOf(definition)", given)
    assert found == vector["fingerprint"]


def vectors(name: str) -> Any:
    return json.loads((ROOT / "tests" / "vectors" / f"{name}.json").read_text())


def test_thresholds_are_those_of_python_at_every_level(device: Modules) -> None:
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
    for epsilon, told in zip(grid, found, strict=True):
        exact = Fraction(round(epsilon * 10**4), 10**4)
        expected = [miss_threshold(exact, *size) for size in sizes]
        expected.append(miss_threshold(exact / 2, 1, 1))
        expected += [block_count(exact, k) for k in (2, 1000, 2**20)]
        assert told == [str(threshold) for threshold in expected], epsilon


DOMAINS: dict[str, dict[str, Any]] = {
    "mean": {"range": (0, 1)},
    "frequency": {"categories": ["a", "b", "c"]},
    "vector_mean": {"coordinates": ["north", "east"], "radius": 2},
    "distribution": {"range": (0, 1), "bins": 16},
}
VALUES = {"mean": 0.5, "frequency": "b", "vector_mean": [1, -1], "distribution": 0.5}
OPEN = {"categories": "open"}


def test_the_browser_has_every_mechanism_and_so_does_the_page_to_try_it(device: Modules) -> None:
    seen = set()
    for name, kinds in MECHANISMS.usable():
        for kind in kinds:
            keys = DOMAINS[kind]
            if name in ("count_sketch", "projective_sketch", "prefix_tree"):
                tree: dict[str, Any] = {"discover": True, "preset": "text"}
                keys = OPEN | tree if name == "prefix_tree" else OPEN
            metric = define(name="asked", kind=kind, mechanism=name, levels=[0.5, 3], **keys)
            report, fingerprint = device.evaluate(
                """([definition, value]) => [
                  Array.from(dither.randomize(definition, value, 3).report),
                  dither.fingerprintOf(definition),
                ]""",
                [definition(metric), VALUES[kind]],
            )
            local = LocalMetric.require(metric)
            local.randomizer.check(bytes([1]), bytes(report))
            assert fingerprint == metric.fingerprint.hex(), name
            seen.add(name)
    assert seen == set(MECHANISMS), "a mechanism that no browser runs"


SLICED = dataclasses.replace(
    binary(),
    by=["version", "country", "a_very_long_name"],
    attributes={
        "version": ["1", "2"],
        "country": ["DE", "Österreich"],
        "a_very_long_name": ["\U0001f6a2" * 16],
    },
)


def test_a_batch_is_encoded_as_by_python(device: Modules) -> None:
    """Attributes are coarsened, and those that the metric does not have left out."""
    far = {"city": "Vaduz", "country": "Liechtenstein", "version": ""}
    ship = {"version": "2", "country": "Österreich", "a_very_long_name": "\U0001f6a2" * 16}
    odd = {"constructor": "1", "toString": "2"}
    plain = [categorical("rappor", 19), categorical("hadamard_response", 1000)]
    cases: list[tuple[LocalMetric, int, dict[str, str]]] = [(each, 7, {}) for each in plain]
    cases += [(binary(), time, {}) for time in (0, 1, 1_357_034_400_000, LAST_MS)]
    coarsened = (far, ship, odd, {"version": "2"}, {"country": "other", "version": "none"})
    cases += [(metric, 7, each) for each in coarsened for metric in (SLICED, binary())]
    key = bytes(range(16))
    for metric, time_ms, attributes in cases:
        level = metric.level_of(LEVELS * 3)
        values = np.arange(level.size) % max(2, len(metric.labels))
        reports = metric.randomize(values, level)
        rows = [list(metric.randomizer.encode(each)) for each in reports]
        options = {"time": time_ms, "attributes": attributes}
        found = device.evaluate(
            """([definition, levels, rows, options, key]) => hex(dither.encodeBatch(
              definition, levels, rows.map((row) => Uint8Array.from(row)),
              { ...options, batchId: Uint8Array.from(key) }))""",
            [definition(metric), level.tolist(), rows, options, list(key)],
        )
        expected = encode_batch(metric, level, reports, time_ms, key, attributes=attributes)
        with row(metric.mechanism, time_ms, attributes):
            assert found == expected.hex()
            assert b"Vaduz" not in expected
            assert b"Liecht" not in expected


def test_what_cannot_be_an_attribute_is_an_error_and_nothing_is_reported(device: Modules) -> None:
    for attributes, said in (
        ({"country": 49}, "TypeError: attribute country = 49: expected a text; leave out"),
        ({"country": None}, "TypeError: attribute country = null: expected a text"),
        ({"x": "ü" * 33}, f"attribute x = {'ü' * 33}: expected texts of 64 bytes at most"),
        ({"x" * 65: ""}, "expected texts of 64 bytes at most"),
        ({f"a{i}": "1" for i in range(17)}, "RangeError: 17 attributes: expected 16 at most"),
    ):
        for metric in (SLICED, binary()):
            found = device.error_of(
                """([definition, attributes]) =>
                  dither.report("http://device.test/posted", definition, 1, 1, { attributes })""",
                [definition(metric), attributes],
            )
            with row(said):
                assert said in found


WINDOWS = {"mechanism": "windows", "constants": {"window": [1] * 10, "z": [[-1, 0, 1]] * 10}}
BALL = {"mechanism": "hemisphere", "coordinates": ["north", "east"], "radius": 5}

MANY = {"candidates": [2**22] * 10, "inside": [1] * 10}
CAPS = {"mechanism": "caps", "coordinates": ["north"], "radius": 5, "constants": MANY}


REFUSED: list[tuple[dict[str, Any], Any, Any, str]] = [
    ({}, 1, 0.00005, "epsilon = 0.00005: metric late offers 0.0001, 0.1"),
    ({**BALL, "options": {"grid": 2**25}}, [1, 2], 1, "options of late: expected a grid of 1"),
    ({**BALL, "radius": 0}, [1, 2], 1, "late: expected a definition with coordinates and a"),
    ({"mechanism": "repetition", "options": {"of": "grr"}}, 1, 1, "of: randomized_response"),
    ({"mechanism": "laplace", "options": {"grid": 3}}, 1, 1, "expected a grid, a power of"),
    ({"mechanism": "laplace", "options": {"grid": 2**40}}, 1, 1, "expected another grid"),
    ({"mechanism": "rappor", "categories": 10**5}, 0, 1, "names of two or more categories"),
    ({"mechanism": "count_sketch"}, "a", 1, 'late: expected categories "open"'),
    ({**WINDOWS, "range": [0, 5e-324]}, 0, 1, "late: a definition without a range of finite"),
    ({**WINDOWS, "range": [-1.7e308, 1.7e308]}, 1e308, 1, "without a range of finite numbers"),
    (CAPS, [1], 1, "late: expected constants that fit level 0"),
    ({"levels": [0.5, 1e300]}, 1, 1, "levels of late: expected 1 to 255 ascending epsilons"),
    ({"levels": [1, 0.5]}, 1, 1, "levels of late: expected"),
    ({"trust": "central"}, 1, 1, "late is collected in trust: expected a metric that is"),
    ({"mechanism": "true_values"}, 1, 1, "mechanism true_values of late: this module has"),
    ({"levels": [0.00001, 1]}, 1, 1, "epsilon = 0.00001: expected above 0, at most 4 decimal"),
]
SPOILT: list[dict[str, Any]] = [
    {"constants": None},
    {"block_bits": [8] * 8},
    {"hash_bits": [3] * 8},
    {"depths": [[0] * 9] * 8},
    {"depths": [[65536] + [0] * 8] * 8},
    {"depths": [[0] * 8 + [65536.5]] * 8},
    {"depths": [[0] * 8 + [65536, 0]] * 8},
    {"edges": [0, 1, 1], "bins": None},
    {"bins": 1},
    {"scale": "cubic"},
]
"""Of a distribution."""


def test_what_cannot_be_randomized_is_an_error_that_says_so(device: Modules) -> None:
    given = definition(binary())
    for changed, value, epsilon, said in REFUSED:
        with row(changed, value, epsilon):
            assert said in raised(device, given | changed, value, epsilon)
    given = definition(binned(range=(1, 1e6), bins=256))
    for changed in SPOILT:
        if changed.keys() & given["constants"].keys():
            changed = {"constants": given["constants"] | changed}
        with row(changed):
            said = raised(device, given | changed, 1, 1)
            assert said.startswith("TypeError: latency: a definition w")
    # randomized at 0.0001, a report of the level 0.00005 would say twice as much as it may
    given["levels"] = [0.00005, *given["levels"][1:]]
    said = raised(device, given, 1, 0.00005)
    assert said == "RangeError: epsilon = 0.00005: expected above 0, at most 4 decimal digits"


REPORT = """
async ([definition, inputs]) => {
  const headers = { "Content-Type": "application/problem+json" };
  const own = globalThis.fetch;
  globalThis.fetch = async () => new Response("{}", { status: 422, headers });
  const hole = [1, , 1];
  const special = {
    NaN, Infinity, "-Infinity": -Infinity, "2^64": 2 ** 64, "10^400": 10n ** 400n, hole,
    set: new Set([1, 2]),
  };
  const read = (x) => Array.isArray(x) ? x.map(read) : x?.special ? special[x.special] : x;
  const told = [];
  for (const [value, epsilon] of inputs) {
    const posting = dither.report("http://device.test", definition, read(value), read(epsilon));
    told.push(await posting.catch((e) => e.name === "DeliveryError" ? null : e.message));
  }
  globalThis.fetch = own;
  return told;
}
"""


def test_the_browser_refuses_what_python_refuses_in_the_same_words(device: Modules) -> None:
    refusals = json.loads((ROOT / "tests/vectors/refusals.json").read_text())
    for entry in refusals["inputs"]:
        name, expected = entry["metric"], entry["expected"]
        words = expected and expected.format(
            number="Number()", list="Array.from()", text="String()"
        )
        metric = LocalMetric.require(define(name=name, **refusals["metrics"][name]))
        told = device.evaluate(REPORT, [definition(metric), entry["given"]])
        for given, message in zip(entry["given"], told, strict=True):
            with row(name, given, message):
                assert message is None if words is None else message.endswith(words)


ODD = [
    ("randomize(d, 10n, 1)", "value 10n of late: expected a number, as Number() makes; leave"),
    ("randomize(d, new Float64Array(2), 1)", "value 0,0 of late: expected a number or a list of"),
    ("randomize(d, new Float64Array(2), 1)", "of them, as Array.from"),
    ("randomize(d, Object.create(null), 1)", "value object of late: expected a number; leave"),
    ("randomize(d, new Number(1), 1)", "expected a number, as Number() makes"),
    ("randomize(d, { length: 1, 0: 1 }, 1)", "or a list of them, as Array.from() makes"),
    ("randomize(d, Promise.resolve(1), 1)", "expected a number, as await makes"),
    ("randomize(d, 'x'.repeat(2000), 1)", 'value "' + "x" * 499 + " ... of late"),
    ("report('', d, 1, 1, { time: 1767618307 })", "whole milliseconds"),
    # a hole would be sent as a zero that nothing has randomized
    ("encodeBatch(d, [0, 0], [new Uint8Array(1), ,])", "expected as many of both"),
    ("encodeBatch(d, [0, , 0], Array(3).fill(new Uint8Array(1)))", "expected as many of both"),
]


def test_what_only_browsers_have_is_refused_with_what_converts_it(device: Modules) -> None:
    for call, said in ODD:
        with row(call):
            assert said in device.error_of(f"(d) => dither.{call}", definition(binary()))


STRINGS: dict[str, Any] = {"kind": "frequency", "categories": "open", "range": None}
LISTED: dict[str, Any] = {"kind": "frequency", "options": {}, "range": None}
KEYS: dict[str, list[str]] = {f"key {i}": ["x"] for i in range(10**5)}
DEAR: list[tuple[str, dict[str, Any]]] = [
    ("levels", {"levels": [(i + 1) / 100 for i in range(256)]}),
    ("categories", {**LISTED, "categories": range(2**20 + 1)}),
    ("rappor", {**LISTED, "mechanism": "rappor", "categories": range(2**19 + 1)}),
    ("coordinates", {**BALL, "kind": "vector_mean", "range": None, "coordinates": range(16385)}),
    ("bins", {"kind": "distribution", "mechanism": "dyadic_hadamard", "bins": 4097}),
    ("edges", {"kind": "distribution", "edges": list(range(4098)), "range": None}),
    ("rounds", {"kind": "minimum", "rounds": 51, "split": "users"}),
    ("by", {"by": [f"a{i}" for i in range(17)], "attributes": {f"a{i}": ["x"] for i in range(17)}}),
    ("by", {"by": ["a"], "attributes": {"a": list(map(str, range(2**16 - 1)))}}),
    ("options", {**STRINGS, "mechanism": "projection", "options": {"rows": 2**24 + 1}}),
    ("options", {**STRINGS, "mechanism": "count_sketch", "options": {"rows": 2**19}}),
    ("options", {**STRINGS, "mechanism": "projective_sketch", "options": {"rows": 2**20}}),
]
"""What is one too large in a definition, and the key that the refusal names; of ranges, strings."""


@pytest.mark.more
def test_a_definition_that_would_cost_too_much_is_refused_as_in_python(device: Modules) -> None:
    given = definition(binary())
    for key, changed in DEAR:
        told = {
            k: list(map(str, v)) if isinstance(v, range) else v
            for k, v in (given | changed).items()
            if v is not None
        }
        with row(key, *changed):
            assert key in raised(device, told, 1, 1)
            with pytest.raises(DefinitionError, match=key):
                read_served(json.dumps(told).encode(), "late")
    for changed in ({"constants": KEYS}, {"constants": {"window": KEYS}}, {"options": KEYS}):
        told = given | changed
        found = device.error_of("(given) => dither.fingerprintOf(given)", told)
        assert "at most 512 keys" in found
    found = device.evaluate("async () => ({ ...(await load('checks.js')) })")
    names = ("LARGEST_TABLE", "LARGEST_REPORT", "LARGEST_DEFINITION", "LARGEST_ANSWER")
    assert {name: found[name] for name in names} == {name: getattr(limits, name) for name in names}


def raised(device: Modules, given: dict[str, Any], value: Any, epsilon: Any) -> str:
    """Return the error of a report, by a definition without the keys that are None."""
    kept = {key: one for key, one in given.items() if one is not None}
    return device.error_of("(given) => dither.randomize(...given)", [kept, value, epsilon])


def test_a_batch_carries_no_number_that_marks_a_browser(device: Modules) -> None:
    """A revision that a server made up for one browser would come back with each of its batches."""
    for metric in (binary(), categorical("rappor", 9)):
        for revision in (0, 1, 2**32, 2**53 - 1, None):
            found = device.error_of(
                """([definition, width]) =>
                  dither.encodeBatch(definition, [0], [new Uint8Array(width)])""",
                [{**definition(metric), "revision": revision}, metric.randomizer.width],
            )
            with row(metric.mechanism, revision):
                assert f"expected {metric.revision}, by what it says" in found
