"""Events in the envelope that Kafka Connect's JsonConverter reads with ``schemas.enable``.

The envelope is ``{"schema": ..., "payload": ...}``. The payload is the event's data, byte for byte,
so that whoever reads the topic finds the same event with and without it. The schema is a function
of the event's type and of whether its answer is one number or several: it is the same for all
events of a metric.
"""

from __future__ import annotations

import functools
from typing import Any

import msgspec
from msgspec import inspect

from producers.wire.decoding import decode_json

BEGIN, MIDDLE, END = b'{"schema":', b',"payload":', b"}"
SEVERAL = ".several"
"""Ends the name of the schema of answers that have several numbers."""
TYPES: dict[type[inspect.Type], str] = {
    inspect.StrType: "string",
    inspect.BoolType: "boolean",
    inspect.IntType: "int64",
    inspect.FloatType: "double",
}

Schema = dict[str, Any]


class _Envelope(msgspec.Struct):
    payload: msgspec.Raw


class _Numbers(msgspec.Struct):
    """What tells whether an answer has several numbers."""

    value: Any = None
    now: dict[str, Any] = {}


def enveloped(name: str, kind: type, data: bytes) -> bytes:
    """Return an event's data in the envelope.

    Parameters
    ----------
    name : str
        The event's type, which names the schema.
    kind : type
        The struct that the data are of.
    data : bytes
        In JSON.
    """
    found = decode_json(data, _Numbers)
    has_several = isinstance(found.value, list) or isinstance(found.now.get("value"), list)
    return BEGIN + _encoded(name, kind, has_several) + MIDDLE + data + END


def without_envelope(value: bytes) -> bytes:
    """Return an event's data, with or without the envelope.

    Examples
    --------
    >>> without_envelope(b'{"schema":{"type":"struct"},"payload":{"metric":"delay"}}')
    b'{"metric":"delay"}'
    >>> without_envelope(b'{"metric":"delay"}')
    b'{"metric":"delay"}'
    """
    if not value.startswith(BEGIN):
        return value
    try:
        return bytes(decode_json(value, _Envelope).payload)
    except ValueError:  # somebody else's
        return value


def connect_schema(name: str, kind: type, *, has_several: bool) -> Schema:
    """Return the schema of a struct in the words of Kafka Connect.

    Parameters
    ----------
    name : str
        The event's type.
    kind : type
        The struct.
    has_several : bool
        Whether its numbers are arrays: one for each category, coordinate or quantile.
    """
    found = _schema(inspect.type_info(kind), has_several)
    return {**found, "name": name + SEVERAL * has_several, "optional": False}


@functools.cache
def _encoded(name: str, kind: type, has_several: bool) -> bytes:
    return msgspec.json.encode(connect_schema(name, kind, has_several=has_several))


def _schema(found: inspect.Type, has_several: bool) -> Schema:
    """Return a type's schema.

    Raises
    ------
    TypeError
        If Kafka Connect has no such type.
    """
    match found:
        case inspect.Metadata():
            return _schema(found.type, has_several)
        case inspect.StructType():
            fields = [
                {
                    "field": field.encode_name,
                    "optional": not field.required,
                    **_schema(field.type, has_several),
                }
                for field in found.fields
            ]
            return {"type": "struct", "fields": fields}
        case inspect.ListType() | inspect.VarTupleType():
            return {"type": "array", "items": _item(found.item_type, has_several)}
        case inspect.TupleType():
            return {"type": "array", "items": _item(found.item_types[0], has_several)}
        case inspect.DictType():
            keys = {"type": "string", "optional": False}
            return {"type": "map", "keys": keys, "values": _item(found.value_type, has_several)}
        case inspect.LiteralType():
            return {"type": "boolean" if isinstance(found.values[0], bool) else "string"}
        case inspect.UnionType():
            return {**_schema(_one_of(found, has_several), has_several), "optional": True}
    if type(found) not in TYPES:
        raise TypeError(f"{found}: Kafka Connect has no such type")
    return {"type": TYPES[type(found)]}


def _item(found: inspect.Type, has_several: bool) -> Schema:
    return {"optional": False, **_schema(found, has_several)}


def _one_of(union: inspect.UnionType, has_several: bool) -> inspect.Type:
    """Return the type of a field that may also be null or missing; without unions in Connect."""
    kinds: dict[type, inspect.Type] = {
        type(one): one for one in union.types if not isinstance(one, inspect.NoneType)
    }
    if len(kinds) == 1:
        return next(iter(kinds.values()))
    if kinds.keys() == {inspect.FloatType, inspect.ListType}:
        return kinds[inspect.ListType if has_several else inspect.FloatType]
    if kinds.keys() == {inspect.StrType, inspect.StructType}:
        return kinds[inspect.StrType]  # an attribute's value: one that is not declared is null
    raise TypeError(f"{union}: Kafka Connect has no such type")
