"""Describes one dead letter in full: its content, why it was refused, and what to do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from aggregator.dead_letters.reader import DeadLetter, printable
from aggregator.dead_letters.reasons import remedy
from aggregator.timestamps import iso
from estimators import Metric

SHOWN_BYTES = 64


def facts(
    letter: DeadLetter,
    metrics: Mapping[str, Metric],
    refused: tuple[str, str] | None,
    *,
    handled: bool,
) -> dict[str, Any]:
    """Return what is known of a dead letter, ready for JSON.

    Parameters
    ----------
    letter : DeadLetter
        As it was read.
    metrics : mapping of str to Metric
        As they are defined now.
    refused : (str, str) or None
        Reason and detail for which it would not be counted now.
    handled : bool
        Whether it was sent again or dropped.
    """
    means, do = remedy(letter.reason)
    found: dict[str, Any] = {
        "place": str(letter.place),
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
        found["begins_with"] = (letter.value or b"")[:SHOWN_BYTES].hex()
        return found
    metric = metrics.get(batch.metric)
    found["revision"] = f"{batch.revision:08x}"
    found["revision_here"] = None if metric is None else f"{metric.revision:08x}"
    found["batch_id"] = batch.batch_id[:SHOWN_BYTES].hex()
    found["event_time"] = iso(batch.time_ms or letter.arrived)
    found["reports"] = len(batch.levels)
    counts = np.bincount(np.frombuffer(batch.levels, dtype=np.uint8), minlength=1)
    found["levels"] = {
        _level(metric, int(index)): int(counts[index]) for index in np.flatnonzero(counts)
    }
    return found


def _level(metric: Metric | None, index: int) -> str:
    """Return a privacy level as its epsilon, or as the index that the batch has."""
    if metric is None or index >= len(metric.levels):
        return f"level {index}"
    return f"{metric.levels[index]:g}"


def lines(found: Mapping[str, Any]) -> list[str]:
    """Return the facts as text."""
    revision = ""
    if "revision" in found:
        here = found["revision_here"]
        notes = {None: " (not defined here)", found["revision"]: ""}
        revision = f", revision {found['revision']}{notes.get(here, f' (here: {here})')}"
    rows = [
        ("dead letter", found["place"] + (", dealt with" if found["handled"] else "")),
        ("came from", f"{found['topic']}, partition {found['origin'].replace(':', ', offset ')}"),
        ("arrived", found["arrived"]),
        ("reason", f"{found['reason']}: {found['means']}"),
        ("detail", found["detail"]),
        ("metric", (found["metric"] or "none that can be read") + revision),
    ]
    if "reports" in found:
        levels = ", ".join(f"{n} at {level}" for level, n in found["levels"].items())
        rows += [
            ("event time", found["event_time"]),
            ("reports", f"{found['reports']}" + (f" ({levels})" if levels else "")),
            ("batch id", found["batch_id"] or "none"),
        ]
    else:
        rows.append(("begins with", found["begins_with"] or "nothing"))
    cut = ", of which this letter has the beginning" if found["truncated"] else ""
    rows += [
        ("size", f"{found['bytes']} bytes{cut}"),
        ("key", found["key"] or "none"),
        ("sent again", f"{found['replays']} times"),
        ("now", found["now"]),
        ("what to do", found["do"]),
    ]
    return [f"{name:<12} {text}" for name, text in rows]
