"""The definitions in force at each offset; they may change while workers run.

The commit that first uses new definitions stores their offset in the owner's hash, so that
`dither verify` judges each message by the definitions of the worker that counted it.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping
from typing import Any

import msgspec

from aggregator.config.settings import Aggregate
from estimators import Metric
from estimators.metrics.loading import definition_of, read_definition
from producers.wire.decoding import decode_json

DEFINITIONS_PREFIX = "definitions:"
"""Prefix of a field of the owner's hash, before an offset: the digest of definitions in force."""
RETIRED_PREFIX = "retired:"
"""Prefix of a field of the owner's hash, before an offset: the questions whose panes were
closed."""
DIGEST_BYTES = 8


@dataclasses.dataclass(frozen=True)
class CountingDefinitions:
    """The definitions and limits that, with the log, decide whether a batch counts."""

    metrics: Mapping[str, Metric]
    rules: dict[str, str]  # `future` and `past` of [aggregate]

    @classmethod
    def current(cls, metrics: Mapping[str, Metric], settings: Aggregate) -> CountingDefinitions:
        """Return the definitions and limits of a worker with these settings."""
        return cls(metrics, {"future": settings.future, "past": settings.past})

    def encode(self) -> bytes:
        """Return canonical JSON, equal for equal definitions: keys are sorted, except the axes."""
        tables = {name: definition_of(metric) for name, metric in self.metrics.items()}
        for table in tables.values():
            if isinstance(axes := table.get("categories"), Mapping):
                table["categories"] = msgspec.Raw(msgspec.json.encode(axes))  # their order matters
        encoder = msgspec.json.Encoder(order="sorted", enc_hook=list)
        return encoder.encode({"metrics": tables, "aggregate": self.rules})

    @classmethod
    def decode(cls, document: bytes) -> CountingDefinitions:
        """Return the definitions that :meth:`encode` wrote; raise ValueError for other bytes."""
        decoded = decode_json(document, dict[str, Any])
        try:
            tables, rules = decoded["metrics"], decoded["aggregate"]
            return cls(
                {name: read_definition(name, table) for name, table in tables.items()}, dict(rules)
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"no definitions: {error!r}") from None

    @property
    def digest(self) -> str:
        """The digest of the JSON, which names the definitions."""
        return hashlib.blake2b(self.encode(), digest_size=DIGEST_BYTES).hexdigest()


def definitions_by_offset(owner: Mapping[str, str]) -> list[tuple[int, str]]:
    """Return the digests of a partition's definitions with their first offsets, ascending."""
    return _by_offset(owner, DEFINITIONS_PREFIX)


def _by_offset(owner: Mapping[str, str], prefix: str) -> list[tuple[int, str]]:
    """Return the offsets and values of the owner's fields with a prefix, ascending."""
    return sorted(
        (int(offset), text)
        for name, text in owner.items()
        if name.startswith(prefix) and text and (offset := name.removeprefix(prefix)).isdecimal()
    )


def cleared_history(owner: Mapping[str, str]) -> dict[str, str]:
    """Return "" for each of the owner's fields with the history, as offsets begin again at 0."""
    return {name: "" for name in owner if name.startswith((DEFINITIONS_PREFIX, RETIRED_PREFIX))}


def retired_panes_by_offset(owner: Mapping[str, str]) -> list[tuple[int, dict[str, int]]]:
    """Return the questions whose panes closed at each offset, with the end of these panes in ms.

    >>> retired_panes_by_offset({"retired:7": "delay@0000001f=60000", "retired:9": ""})
    [(7, {'delay@0000001f': 60000})]
    """
    retirements = []
    for offset, text in _by_offset(owner, RETIRED_PREFIX):
        pairs = (pair.rpartition("=") for pair in text.split(","))
        ends = {question: int(end) for question, _, end in pairs if end.isdecimal()}
        retirements.append((offset, ends))
    return retirements


def add_retired(owner: Mapping[str, str], offset: int, ends: Mapping[str, int]) -> dict[str, str]:
    """Return the owner's field which says that open panes of old definitions are closed.

    Parameters
    ----------
    owner : mapping of str to str
        The stored facts of the partition.
    offset : int
        The next offset.
    ends : mapping of str to int
        By question (the key of a metric or round): the time in ms up to which panes are closed.

    Examples
    --------
    >>> add_retired({"retired:7": "delay@0000001f=0"}, 7, {"delay@0000001f": 60_000})
    {'retired:7': 'delay@0000001f=60000'}
    """
    retired_ends = dict(retired_panes_by_offset(owner)).get(offset, {}) | dict(ends)
    ends_text = ",".join(f"{name}={end}" for name, end in retired_ends.items())
    return {f"{RETIRED_PREFIX}{offset}": ends_text}


def changed_definitions(owner: Mapping[str, Any], offset: int, digest: str) -> dict[str, str]:
    """Return the owner's field with the digest of new definitions; {} if they did not change.

    `owner`: the stored facts of the partition; `offset`: the first offset at which the definitions
    are in force; `digest`: the digest of the new definitions.

    >>> changed_definitions({"definitions:0": "aa"}, 7, "bb")
    {'definitions:7': 'bb'}
    >>> changed_definitions({"definitions:0": "aa"}, 7, "aa")
    {}
    """
    history = definitions_by_offset(owner)
    return {} if history and history[-1][1] == digest else {f"{DEFINITIONS_PREFIX}{offset}": digest}
