"""Describes one dead letter in full: its content, the refusal, and the remedy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from aggregator.dead_letters.reader import DeadLetter, printable
from aggregator.dead_letters.reasons import remedy
from aggregator.timestamps import iso
from estimators import Metric

SHOWN_BYTES = 64


def letter_facts(
    letter: DeadLetter,
    metrics: Mapping[str, Metric],
    refused: tuple[str, str] | None,
    *,
    handled: bool,
) -> dict[str, Any]:
    """Return all facts of a dead letter, ready for JSON.

    `letter`: the dead letter; `metrics`: the current definitions, by name; `refused`: the reason
    and detail with which a worker would refuse the message now; None if it would count the message;
    `handled`: whether the letter was replayed or dropped.
    """
    means, do = remedy(letter.reason)
    fields: dict[str, Any] = {
        "place": str(letter.position),
        "topic": letter.topic,
        "origin": str(letter.origin),
        "arrived": iso(letter.arrived),
        "reason": printable(letter.reason),
        "detail": printable(letter.detail, 500),
        "means": means,
        "do": do if refused is None or refused[0] == letter.reason else remedy(refused[0]).do,
        "metric": letter.metric,
        "bytes": letter.whole_bytes or len(letter.value or b""),
        "truncated": letter.whole_bytes is not None,
        "key": None if letter.key is None else letter.key[:SHOWN_BYTES].hex(),
        "replays": letter.replays,
        "handled": handled,
        "now": "counted, unless a copy of it was" if refused is None else ": ".join(refused),
    }
    if (batch := letter.batch) is None:
        fields["begins_with"] = (letter.value or b"")[:SHOWN_BYTES].hex()
        return fields
    metric = metrics.get(batch.metric)
    fields["revision"] = f"{batch.revision:08x}"
    fields["revision_here"] = None if metric is None else f"{metric.revision:08x}"
    fields["batch_id"] = batch.batch_id[:SHOWN_BYTES].hex()
    fields["event_time"] = iso(batch.time_ms or letter.arrived)
    fields["reports"] = len(batch.levels)
    counts = np.bincount(np.frombuffer(batch.levels, dtype=np.uint8), minlength=1)
    levels = np.flatnonzero(counts).tolist()
    fields["levels"] = {_level(metric, index): int(counts[index]) for index in levels}
    return fields


def _level(metric: Metric | None, index: int) -> str:
    """Return the epsilon of a privacy level; the index of the level if its epsilon is unknown."""
    if metric is None or index >= len(metric.levels):
        return f"level {index}"
    return f"{metric.levels[index]:g}"


def letter_lines(fields: Mapping[str, Any]) -> list[str]:
    """Return the facts of a dead letter, from :func:`letter_facts`, as lines of text."""
    revision = ""
    if "revision" in fields:
        current = fields["revision_here"]
        notes = {None: " (not defined here)", fields["revision"]: ""}
        revision = f", revision {fields['revision']}{notes.get(current, f' (here: {current})')}"
    rows = [
        ("dead letter", fields["place"] + (", dealt with" if fields["handled"] else "")),
        ("came from", f"{fields['topic']}, partition {fields['origin'].replace(':', ', offset ')}"),
        ("arrived", fields["arrived"]),
        ("reason", f"{fields['reason']}: {fields['means']}"),
        ("detail", fields["detail"]),
        ("metric", (fields["metric"] or "none that can be read") + revision),
    ]
    if "reports" in fields:
        levels = ", ".join(f"{n} at {level}" for level, n in fields["levels"].items())
        rows += [
            ("event time", fields["event_time"]),
            ("reports", f"{fields['reports']}" + (f" ({levels})" if levels else "")),
            ("batch id", fields["batch_id"] or "none"),
        ]
    else:
        rows.append(("begins with", fields["begins_with"] or "nothing"))
    cut = ", of which this letter has the beginning" if fields["truncated"] else ""
    rows += [
        ("size", f"{fields['bytes']} bytes{cut}"),
        ("key", fields["key"] or "none"),
        ("sent again", f"{fields['replays']} times"),
        ("now", fields["now"]),
        ("what to do", fields["do"]),
    ]
    return [f"{name:<12} {text}" for name, text in rows]
