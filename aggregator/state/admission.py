"""How much one key may add to a pane: batches judged one after the other.

Only for metrics with a limit: what a batch may add depends on which of those before it were
counted, so that columns cannot be judged at once.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from aggregator.state.decoder import DecodedBatches, Integers
from estimators import Metric

if TYPE_CHECKING:
    from aggregator.state.watermark import Watermark

DIGEST_BYTES = 16
Bools = NDArray[np.bool_]
Uses = dict[bytes, int]
"""How many reports of each key were counted, by :func:`digest`."""


@dataclasses.dataclass(frozen=True)
class Verdict:
    """What becomes of batches whose times are possible.

    Attributes
    ----------
    late, repeated : ndarray of bool, shape (n,)
    passed : dict of int to int
        Of the batches that are late: the watermark before them.
    over : dict of int to int
        Of the batches whose key has reached the limit: how many reports it has in the pane.
    """

    late: Bools
    repeated: Bools
    passed: Mapping[int, int]
    over: Mapping[int, int] = dataclasses.field(default_factory=dict)


def digest(key: bytes | None) -> bytes:
    """Return what is kept of a message's key; messages without one have the same.

    Of one length, however long a key somebody sends: a collision takes 2^64 attempts.

    Examples
    --------
    >>> len(digest(b"x" * 1_000_000)), digest(None) == digest(b"")
    (16, True)
    """
    return hashlib.blake2b(key or b"", digest_size=DIGEST_BYTES).digest()


def judge_in_turn(
    metric: Metric,
    batches: DecodedBatches,
    keys: Sequence[bytes],
    reached: Integers,
    start: Integers,
    wrong: Bools,
    beats: Bools,
    watermark: Watermark,
    seen: defaultdict[int, set[bytes]],
    used: Mapping[int, Uses],
) -> tuple[Verdict, dict[int, Uses]]:
    """Judge a metric's batches by those before them, and count what their keys add.

    A batch is counted whole or not at all. One that is over the limit is not remembered: it moves
    no watermark, and a copy of it is over the limit again.

    Parameters
    ----------
    keys : sequence of bytes
        The digest of each batch's key.
    reached : ndarray of int64
        Up to where a batch moves the watermark, if it is counted.
    start : ndarray of int64
        Of each batch's pane.
    wrong : ndarray of bool
        Refused already.
    beats : ndarray of bool
        Without a report: they only move the watermark.
    watermark : Watermark
        Before the first one; it is moved by those that count.
    seen : defaultdict by pane start
        The ids counted; those of batches that are counted now are added.
    used : mapping by pane start
        Of the open panes, the reports of each key.

    Returns
    -------
    Verdict
    dict of int to Uses
        By pane start: the new numbers of reports of the keys that added some.
    """
    limit = metric.max_key_reports
    assert limit is not None  # noqa: S101
    over: dict[int, int] = {}
    late, repeated = np.zeros((2, len(keys)), dtype=np.bool_)
    passed: dict[int, int] = {}
    uses: defaultdict[int, Uses] = defaultdict(dict)
    for row, (begin, key, identity) in enumerate(
        zip(start.tolist(), keys, batches.ids, strict=True)
    ):
        if wrong[row]:
            continue
        if beats[row]:
            watermark.take(int(reached[row]))
            watermark.close(metric)
            continue
        if begin + metric.pane_ms <= watermark.closed:
            late[row], passed[row] = True, watermark.time
            continue
        if identity in seen[begin]:
            repeated[row] = True
            continue
        counted = uses[begin].get(key, used.get(begin, {}).get(key, 0))
        if counted + batches.size(row) > limit:
            over[row] = counted
            continue
        uses[begin][key] = counted + batches.size(row)
        seen[begin].add(identity)
        watermark.take(int(reached[row]))
        watermark.close(metric)
    return Verdict(late, repeated, passed, over), uses
