"""What the browser's module gives for prepared random words, beside what Python gives for them."""

from fractions import Fraction
from typing import Any, Protocol

import numpy as np

from estimators import LocalMetric
from estimators.exact.geometries import best_geometry
from tests.support.prepared_words import PreparedWords, awkward_words
from tests.support.running import served

RANDOMIZE = """
([definition, cases]) => cases.map(({value, epsilon, words}) => {
  let used = 0;
  const prepared = BigUint64Array.from(words.map((word) => BigInt(word)));
  const bits = { integers: (n) => { used += n; return prepared.slice(used - n, used); } };
  const { level, report } = dither.randomize(definition, value, epsilon, bits);
  return [level, Array.from(report), used];
})
"""
GEOMETRIES = """
async ([epsilons, limits, aim]) => {
  const { bestGeometry, membersOf } = await load("geometry.js");
  return epsilons.map((epsilon) => {
    const found = bestGeometry(epsilon, limits, aim);
    const sum = membersOf(found).reduce((all, i, rank) => (all * 31 + i * (rank + 1)) % 1e9, 0);
    return [found.order, found.coordinates, found.variance, String(found.threshold), sum];
  });
}
"""
PIECES = [*"abcAZ09 /.-?=&%", "the", "ing", "http://", "é", "e\u0301", "ß", "я", "東", "\U0001f6a2"]
"""Of strings at random: characters of one to four bytes, and two ways to write one."""


class Device(Protocol):
    """What evaluates a function of JavaScript beside the module, as `dither`."""

    def evaluate(self, script: str, given: object = None) -> Any: ...


def assert_vector(device: Device, metric: LocalMetric, vector: dict[str, Any]) -> None:
    """Assert that the browser's reports and fingerprint of a metric are those of a vector."""
    given, cases, expected = served.definition(metric), [], []
    for value, level, words, report in vector["cases"]:
        shown = [str(int(word, 16)) for word in words]
        cases.append({"value": value, "epsilon": metric.levels[level], "words": shown})
        expected.append([level, list(bytes.fromhex(report)), len(words)])
    assert device.evaluate(RANDOMIZE, [given, cases]) == expected, vector["definition"]
    found = device.evaluate("(definition) => dither.fingerprintOf(definition)", given)
    assert found == vector["fingerprint"]


def assert_same_bytes_of_strings(device: Device, metric: LocalMetric, seed: int) -> None:
    """Assert that 300 strings at random become the same reports in the browser as in Python."""
    mechanism: Any = metric.randomizer
    generator, cases, expected = np.random.default_rng(seed), [], []
    for _ in range(300):
        level = int(generator.integers(len(metric.levels)))
        text = "".join(generator.choice(PIECES, int(generator.integers(0, 12))))
        words = PreparedWords(awkward_words(generator, mechanism.misses, 64))
        report = metric.randomize([text], [level], words)
        expected.append([level, list(metric.randomizer.encode(report)), words.used])
        shown = [str(word) for word in words.words[: words.used].tolist()]
        cases.append({"value": text, "epsilon": metric.levels[level], "words": shown})
    assert device.evaluate(RANDOMIZE, [served.definition(metric), cases]) == expected
    assert len({used for _, _, used in expected}) > 1, "no word was rejected: the test is too tame"


def assert_same_geometries(
    device: Device, epsilons: list[float], limits: tuple[int, int], aim: int
) -> None:
    """Assert that the browser chooses Python's geometry at each level."""
    found = device.evaluate(GEOMETRIES, [epsilons, list(limits), aim])
    for epsilon, row in zip(epsilons, found, strict=True):
        geometry = best_geometry(Fraction(round(epsilon * 10**4), 10**4), limits, aim)
        space, total = geometry.space, 0
        for rank, member in enumerate(space.members.tolist()):
            total = (total * 31 + member * (rank + 1)) % 10**9
        missed = (1 - geometry.p) * 2**64
        expected = [space.order, space.coordinates, geometry.variance, str(missed), total]
        assert row == expected, epsilon
