"""Decodes untrusted JSON and MessagePack from a topic, a server, Redis or a file.

Every decoder raises RecursionError, which is no ValueError, for thousands of nested brackets; this
module raises DecodeError instead.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import msgspec

T = TypeVar("T")


def decode_json(text: bytes | str, kind: type[T]) -> T:
    """Decode a JSON text to a type.

    Raises
    ------
    msgspec.DecodeError
        If it is no JSON, or nested too deeply; a ValueError.
    msgspec.ValidationError
        If it is JSON of another kind; a DecodeError.

    Examples
    --------
    >>> decode_json('{"policy": "optimal"}', dict[str, str])
    {'policy': 'optimal'}
    >>> decode_json("[" * 5000, list)
    Traceback (most recent call last):
    msgspec.DecodeError: maximum recursion depth exceeded while deserializing an object
    """
    return _decode(msgspec.json.decode, text, kind)


def decode_msgpack(data: bytes, kind: type[T]) -> T:
    """Return the value that is in MessagePack; the errors are those of :func:`decode_json`."""
    return _decode(msgspec.msgpack.decode, data, kind)


def _decode(decode: Callable[..., T], data: bytes | str, kind: type[T]) -> T:
    try:
        return decode(data, type=kind)
    except (RecursionError, UnicodeDecodeError) as error:
        raise msgspec.DecodeError(str(error)) from None
