"""The definitions that were in force at each offset; they may change while workers run.

The commit that first uses new definitions stores their offset in the owner's hash, so that
`dither verify` applies the same definitions to each message as the worker did.
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
"""Before the offset, in the owner's hash."""
RETIRED_PREFIX = "retired:"
"""The same, of the field that says of which questions open panes were closed, and until when."""
DIGEST_BYTES = 8


@dataclasses.dataclass(frozen=True)
class CountingDefinitions:
    """The definitions and limits that decide over a batch, besides the log."""

    metrics: Mapping[str, Metric]
    # Those of the settings in ``[aggregate]`` that do, ``future`` and ``past``.
    rules: dict[str, str]

    def encode(self) -> bytes:
        """Return them as JSON; equal ones are equal byte for byte."""
        tables = {name: definition_of(metric) for name, metric in self.metrics.items()}
        encoder = msgspec.json.Encoder(order="sorted", enc_hook=list)
        return encoder.encode({"metrics": tables, "aggregate": self.rules})

    @classmethod
    def decode(cls, document: bytes) -> CountingDefinitions:
        """Return what :meth:`encode` wrote.

        Raises
        ------
        ValueError
            If it is nothing of that kind.
        """
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
        """A name for them."""
        return hashlib.blake2b(self.encode(), digest_size=DIGEST_BYTES).hexdigest()


def counting_rules(settings: Aggregate) -> dict[str, str]:
    """Return those of the settings that decide over a batch."""
    return {"future": settings.future, "past": settings.past}


def definitions_by_offset(owner: Mapping[str, str]) -> list[tuple[int, str]]:
    """Return from which offset on which definitions were in force in a partition, ascending."""
    digests_by_offset = (
        (name.removeprefix(DEFINITIONS_PREFIX), digest)
        for name, digest in owner.items()
        if name.startswith(DEFINITIONS_PREFIX) and digest
    )
    return sorted(
        (int(offset), digest) for offset, digest in digests_by_offset if offset.isdecimal()
    )


def cleared_history(owner: Mapping[str, str]) -> dict[str, str]:
    """Return what to add to an owner's facts where offsets begin anew: none was in force."""
    return {name: "" for name in owner if name.startswith((DEFINITIONS_PREFIX, RETIRED_PREFIX))}


def retired_panes_by_offset(owner: Mapping[str, str]) -> list[tuple[int, dict[str, int]]]:
    """Return at which offsets open panes of old definitions were closed, ascending.

    Examples
    --------
    >>> retired_panes_by_offset({"retired:7": "delay@0000001f=60000", "retired:9": ""})
    [(7, {'delay@0000001f': 60000})]
    """
    retirements = []
    for name, text in owner.items():
        offset = name.removeprefix(RETIRED_PREFIX)
        if name.startswith(RETIRED_PREFIX) and offset.isdecimal() and text:
            pairs = (pair.rpartition("=") for pair in text.split(","))
            ends = {question: int(end) for question, _, end in pairs if end.isdecimal()}
            retirements.append((int(offset), ends))
    return sorted(retirements, key=lambda one: one[0])


def add_retired(owner: Mapping[str, str], offset: int, ends: Mapping[str, int]) -> dict[str, str]:
    """Return what to add to an owner's facts if open panes are closed.

    Parameters
    ----------
    owner : mapping of str to str
        The partition's facts as they are stored.
    offset : int
        The next offset.
    ends : mapping of str to int
        By question (a metric's key, or its round's): panes that end by then are closed, in ms.

    Examples
    --------
    >>> add_retired({"retired:7": "delay@0000001f=0"}, 7, {"delay@0000001f": 60_000})
    {'retired:7': 'delay@0000001f=60000'}
    """
    retired_ends = dict(retired_panes_by_offset(owner)).get(offset, {}) | dict(ends)
    return {
        f"{RETIRED_PREFIX}{offset}": ",".join(f"{name}={end}" for name, end in retired_ends.items())
    }


def changed_definitions(owner: Mapping[str, str], offset: int, digest: str) -> dict[str, str]:
    """Return what to add to an owner's facts if definitions are others than those before.

    Parameters
    ----------
    owner : mapping of str to str
        The partition's facts as they are stored.
    offset : int
        From which on the definitions are in force.
    digest : str

    Examples
    --------
    >>> changed_definitions({"definitions:0": "aa"}, 7, "bb")
    {'definitions:7': 'bb'}
    >>> changed_definitions({"definitions:0": "aa"}, 7, "aa")
    {}
    """
    history = definitions_by_offset(owner)
    return {} if history and history[-1][1] == digest else {f"{DEFINITIONS_PREFIX}{offset}": digest}
