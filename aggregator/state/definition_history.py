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

FIELD = "definitions:"
"""Before the offset, in the owner's hash."""
RETIRED = "retired:"
"""The same, of the field that says of which questions open panes were closed, and until when."""
DIGEST_BYTES = 8


@dataclasses.dataclass(frozen=True)
class Definitions:
    """The definitions and limits that decide over a batch, besides the log.

    Attributes
    ----------
    metrics : mapping of str to Metric
    rules : dict of str to str
        Those of the settings in ``[aggregate]`` that do, ``future`` and ``past``.
    """

    metrics: Mapping[str, Metric]
    rules: dict[str, str]

    def encode(self) -> bytes:
        """Return them as JSON; equal ones are equal byte for byte."""
        tables = {name: definition_of(metric) for name, metric in self.metrics.items()}
        encoder = msgspec.json.Encoder(order="sorted", enc_hook=list)
        return encoder.encode({"metrics": tables, "aggregate": self.rules})

    @classmethod
    def decode(cls, document: bytes) -> Definitions:
        """Return what :meth:`encode` wrote.

        Raises
        ------
        ValueError
            If it is nothing of that kind.
        """
        found = decode_json(document, dict[str, Any])
        try:
            tables, rules = found["metrics"], found["aggregate"]
            return cls(
                {name: read_definition(name, table) for name, table in tables.items()}, dict(rules)
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"no definitions: {error!r}") from None

    @property
    def digest(self) -> str:
        """A name for them."""
        return hashlib.blake2b(self.encode(), digest_size=DIGEST_BYTES).hexdigest()


def rules(settings: Aggregate) -> dict[str, str]:
    """Return those of the settings that decide over a batch."""
    return {"future": settings.future, "past": settings.past}


def in_force(owner: Mapping[str, str]) -> list[tuple[int, str]]:
    """Return from which offset on which definitions were in force in a partition, ascending."""
    found = (
        (name.removeprefix(FIELD), digest)
        for name, digest in owner.items()
        if name.startswith(FIELD) and digest
    )
    return sorted((int(offset), digest) for offset, digest in found if offset.isdecimal())


def forgotten(owner: Mapping[str, str]) -> dict[str, str]:
    """Return what to add to an owner's facts where offsets begin anew: none was in force."""
    return {name: "" for name in owner if name.startswith((FIELD, RETIRED))}


def retired(owner: Mapping[str, str]) -> list[tuple[int, dict[str, int]]]:
    """Return at which offsets open panes of old definitions were closed, ascending.

    Examples
    --------
    >>> retired({"retired:7": "delay@0000001f=60000,age@0000002e=0", "retired:9": ""})
    [(7, {'delay@0000001f': 60000, 'age@0000002e': 0})]
    """
    found = []
    for name, text in owner.items():
        offset = name.removeprefix(RETIRED)
        if name.startswith(RETIRED) and offset.isdecimal() and text:
            pairs = (pair.rpartition("=") for pair in text.split(","))
            ends = {question: int(end) for question, _, end in pairs if end.isdecimal()}
            found.append((int(offset), ends))
    return sorted(found, key=lambda one: one[0])


def add_retired(owner: Mapping[str, str], offset: int, until: Mapping[str, int]) -> dict[str, str]:
    """Return what to add to an owner's facts if open panes are closed.

    Parameters
    ----------
    owner : mapping of str to str
        The partition's facts as they are stored.
    offset : int
        The next offset.
    until : mapping of str to int
        By question (a metric's key, or its round's): panes that end by then are closed, in ms.

    Examples
    --------
    >>> add_retired({"retired:7": "delay@0000001f=0"}, 7, {"delay@0000001f": 60_000})
    {'retired:7': 'delay@0000001f=60000'}
    """
    known = dict(retired(owner)).get(offset, {}) | dict(until)
    return {f"{RETIRED}{offset}": ",".join(f"{name}={end}" for name, end in known.items())}


def changed(owner: Mapping[str, str], offset: int, digest: str) -> dict[str, str]:
    """Return what to add to an owner's facts if definitions are others than those before.

    Parameters
    ----------
    owner : mapping of str to str
        The partition's facts as they are stored.
    offset : int
        From which on the definitions are in force.
    digest : str
        Of the definitions.

    Examples
    --------
    >>> changed({"definitions:0": "aa"}, 7, "bb"), changed({"definitions:0": "aa"}, 7, "aa")
    ({'definitions:7': 'bb'}, {})
    """
    known = in_force(owner)
    return {} if known and known[-1][1] == digest else {f"{FIELD}{offset}": digest}
