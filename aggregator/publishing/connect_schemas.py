"""Events in the envelope that Kafka Connect's JsonConverter reads with ``schemas.enable``.

The envelope is ``{"schema": ..., "payload": ...}``, and the payload is the event's unchanged data.
The schema depends only on the event's type and on whether its answer has several numbers, so all
events of a metric share it.
"""

from __future__ import annotations

import functools
from typing import Any

import msgspec
from msgspec import inspect

from producers.wire.decoding import decode_json

ENVELOPE_START, PAYLOAD_START, ENVELOPE_END = b'{"schema":', b',"payload":', b"}"
SEVERAL_NUMBERS_SUFFIX = ".several"
"""The end of a schema's name if an answer has several numbers."""
CONNECT_TYPES: dict[type[inspect.Type], str] = {
    inspect.StrType: "string",
    inspect.BoolType: "boolean",
    inspect.IntType: "int64",
    inspect.FloatType: "double",
}

Schema = dict[str, Any]


class _Envelope(msgspec.Struct):
    payload: msgspec.Raw


class _Numbers(msgspec.Struct):
    """The fields that are arrays if an answer has several numbers."""

    value: Any = None
    now: dict[str, Any] = {}


def enveloped(name: str, kind: type, data: bytes) -> bytes:
    """Return an event's data in the envelope.

    `name`: the event's type, which names the schema; `kind`: the struct of the data; `data`: the
    data, as JSON.
    """
    numbers = decode_json(data, _Numbers)
    has_several = isinstance(numbers.value, list) or isinstance(numbers.now.get("value"), list)
    return ENVELOPE_START + _encoded(name, kind, has_several) + PAYLOAD_START + data + ENVELOPE_END


def without_envelope(value: bytes) -> bytes:
    """Return an event's data, given a message's value with or without the envelope.

    Examples
    --------
    >>> without_envelope(b'{"schema":{"type":"struct"},"payload":{"metric":"delay"}}')
    b'{"metric":"delay"}'
    >>> without_envelope(b'{"metric":"delay"}')
    b'{"metric":"delay"}'
    """
    if not value.startswith(ENVELOPE_START):
        return value
    try:
        return bytes(decode_json(value, _Envelope).payload)
    except ValueError:  # not JSON: another producer's message
        return value


def connect_schema(name: str, kind: type, *, has_several: bool) -> Schema:
    """Return the Kafka Connect schema of a struct.

    `name`: the schema's name; `kind`: the class of the struct; `has_several`: whether the struct's
    numbers are arrays, by category, coordinate or quantile.
    """
    schema = _schema(inspect.type_info(kind), has_several)
    return {**schema, "name": name + SEVERAL_NUMBERS_SUFFIX * has_several, "optional": False}


@functools.cache
def _encoded(name: str, kind: type, has_several: bool) -> bytes:
    return msgspec.json.encode(connect_schema(name, kind, has_several=has_several))


def _schema(field_type: inspect.Type, has_several: bool) -> Schema:
    """Return the Kafka Connect schema of a field's type.

    Raises TypeError if Kafka Connect has no such type.
    """
    match field_type:
        case inspect.Metadata():
            return _schema(field_type.type, has_several)
        case inspect.StructType():
            fields = [
                {
                    "field": field.encode_name,
                    "optional": not field.required,
                    **_schema(field.type, has_several),
                }
                for field in field_type.fields
            ]
            return {"type": "struct", "fields": fields}
        case inspect.ListType() | inspect.VarTupleType():
            return {"type": "array", "items": _item(field_type.item_type, has_several)}
        case inspect.TupleType():
            return {"type": "array", "items": _item(field_type.item_types[0], has_several)}
        case inspect.DictType():
            values = _item(field_type.value_type, has_several)
            return {"type": "map", "keys": {"type": "string", "optional": False}, "values": values}
        case inspect.LiteralType():
            return {"type": "boolean" if isinstance(field_type.values[0], bool) else "string"}
        case inspect.UnionType():
            return {**_schema(_one_of(field_type, has_several), has_several), "optional": True}
    if type(field_type) not in CONNECT_TYPES:
        raise TypeError(f"{field_type}: Kafka Connect has no such type")
    return {"type": CONNECT_TYPES[type(field_type)]}


def _item(item_type: inspect.Type, has_several: bool) -> Schema:
    return {"optional": False, **_schema(item_type, has_several)}


def _one_of(union: inspect.UnionType, has_several: bool) -> inspect.Type:
    """Return the type that stands for a union, since Kafka Connect has no unions."""
    kinds: dict[type, inspect.Type] = {
        type(member): member for member in union.types if not isinstance(member, inspect.NoneType)
    }
    if len(kinds) == 1:
        return next(iter(kinds.values()))
    if kinds.keys() == {inspect.FloatType, inspect.ListType}:
        return kinds[inspect.ListType if has_several else inspect.FloatType]
    if kinds.keys() == {inspect.StrType, inspect.StructType}:
        return kinds[inspect.StrType]  # an attribute's value, which may be null
    raise TypeError(f"{union}: Kafka Connect has no such type")
