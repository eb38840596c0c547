"""Mutations written by hand: what an attentive reader would break."""

from pathlib import Path

from tests.mutations.mutation import Mutation

EQUIVALENT: dict[tuple[str, str, str], str] = {
    ("estimators/exact/laplace_sampler.py", "drawn < digits", "(drawn <= digits)"): (
        "it is reached only where the two differ"
    ),
    ("aggregator/reading/plans/local.py", "3_000_000", "(3000000 // 2)"): (
        "how much a cache keeps changes no answer"
    ),
    ("estimators/bounds/ranked_directions/noise.py", "128", "129"): (
        "how much a cache keeps changes no answer"
    ),
}
"""Drawn mutations that change nothing that anybody can see, each with its reason."""

WRITTEN: tuple[tuple[str, str, str], ...] = (
    # Watermarks, retention, ids, dead letters, scopes, levels, bounds, finality.
    (
        "aggregator/state/watermark.py: one batch fewer confirms a watermark",
        "CONFIRMING_BATCHES = 8",
        "CONFIRMING_BATCHES = 7",
    ),
    (
        "aggregator/state/pane_keys.py: slices are kept as long as panes",
        "return metric.by_retention_ms if grain == SLICES else metric.retention_ms",
        "return metric.retention_ms",
    ),
    (
        "aggregator/state/admission.py: what comes again is counted again, where keys are limited",
        "was_counted[row] or identity in counted_now[pane_start]",
        "was_counted[row]",
    ),
    (
        "aggregator/dead_letters/writer.py: a letter that Kafka did not take is lost",
        "            self._waiting.append(smaller if is_too_large else alternatives)\n",
        "",
    ),
    (
        "aggregator/web/http/access.py: any scope opens every route",
        "caller.scopes.intersection(scopes)",
        "caller.scopes",
    ),
    (
        "estimators/shuffling/lattice_sums.py: the sums have the opposite sign",
        "np.exp(-2j * math.pi",
        "np.exp(2j * math.pi",
    ),
    (
        "estimators/shuffling/amplification.py: an excess is rounded to the nearest point",
        "((below, below + 1 - quotient), (below + 1, quotient - below))",
        "((round(quotient), 1),)",
    ),
    (
        "estimators/shuffling/amplification.py: all others alike are taken for the worst dataset",
        "            ones += width\n",
        "            ones += reports\n",
    ),
    (
        "estimators/weights.py: the noisiest level is dropped",
        "shares: Floats = counts * (per_report / per_report.max())",
        "shares: Floats = counts * (per_report > per_report.min()) * per_report / per_report.max()",
    ),
    (
        "estimators/bounds/signs/limits.py: the bounds are swapped where the law is not symmetric",
        "lower = _lower_limits(law, observed, log_p, totals)\n"
        "    return lower, -_lower_limits(mirrored, -observed, log_p, totals)",
        "lower = _lower_limits(mirrored, observed, log_p, totals)\n"
        "    return lower, -_lower_limits(law, -observed, log_p, totals)",
    ),
    (
        "aggregator/storage/progress.py: a pane is final when the first partition has closed it",
        "return min((NO_TIME if mark is None else mark.closed for mark in marks), default=NO_TIME)",
        "return max((NO_TIME if mark is None else mark.closed for mark in marks), default=NO_TIME)",
    ),
    (
        "producers/ledger/ledger.py: the budget of all is not charged where a metric has its own",
        "for name in (name for name in (metric, ALL_METRICS) if name in budgets):",
        "for name in [name for name in (metric, ALL_METRICS) if name in budgets][:1]:",
    ),
    (
        "aggregator/counting/committer.py: sums are committed before their dead letters are safe",
        "        self._dead_letters.flush(DEAD_LETTER_SECONDS)\n",
        "",
    ),
    # JavaScript: devices in browsers, and the dashboard.
    (
        "producers/browser/sampling.js: the threshold of a miss is rounded down",
        "(e, one) => ceilDiv(WORD * outside * one, inside * e + outside * one), parts,",
        "(e, one) => (WORD * outside * one) / (inside * e + outside * one), parts,",
    ),
    (
        "producers/browser/definition.js: an attribute that nobody listed is sent",
        "declared[name]?.includes(value) ? value : OTHER",
        "declared[name] ? value : OTHER",
    ),
    (
        "producers/browser/deny.js: a denied string is reported",
        "  return { value: denied ? OTHER : value, denied };",
        "  return { value, denied };",
    ),
    (
        "producers/browser/rounds.js: a round is answered twice",
        "const takes = isOwn && round.number > turn.answered;",
        "const takes = isOwn && round.number >= turn.answered;",
    ),
    (
        "producers/browser/device/ledger.js: a report is not charged",
        '    await transaction.put(["spent", now, await transaction.next()], charge);',
        "    await transaction.next();",
    ),
    (
        "producers/browser/device/queue.js: a batch is dropped at the first error",
        "if (failed.refusals >= this.#receiver.mostRefusals || (isProblem && isOld)) {",
        "if (failed.refusals >= this.#receiver.mostRefusals || isProblem) {",
    ),
    (
        "producers/browser/device/roll_up.js: a roll-up forgets what came before",
        'if (held !== undefined && this.#how !== "last") {',
        "if (held === null) {",
    ),
    (
        "aggregator/web/static/stream.js: the dashboard does not connect again",
        "      if (stopped) return;",
        "      if (stopped || problem === null) return;",
    ),
    (
        "aggregator/web/static/metric.js: the bounds of a metric are swapped",
        "lower: lower?.[i] ?? null, upper: upper?.[i] ?? null",
        "lower: upper?.[i] ?? null, upper: lower?.[i] ?? null",
    ),
    (
        "aggregator/web/static/dom.js: a name is markup",
        "if (element.textContent !== text) element.textContent = text;",
        "if (element.textContent !== text) element.innerHTML = text;",
    ),
)
"""File and what the mutation breaks, the text before (once in the file), and the text after."""


def written(root: Path) -> list[Mutation]:
    """Return the mutations that were written by hand."""
    return [_found(root, *entry) for entry in WRITTEN]


def _found(root: Path, broken: str, before: str, after: str) -> Mutation:
    path, _, what = broken.partition(": ")
    source = (root / path).read_bytes()
    if source.count(before.encode()) != 1:
        raise ValueError(f"{path}: expected {before!r} once, for the mutation {what!r}")
    offset = source.index(before.encode())
    return Mutation(path, source[:offset].count(b"\n") + 1, before, after, offset, what)
