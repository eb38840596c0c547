"""Decodes untrusted JSON and MessagePack from a topic, a server, Redis or a file.

msgspec's decoders raise RecursionError, which is not a ValueError, for thousands of nested
brackets; this module raises DecodeError instead.
"""

from __future__ import annotations

import functools
import threading
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")
MAX_DECODERS = 1024
_making = threading.Lock()
"""A lock, as two threads that make the first decoder of a class together crash the interpreter."""


def decode_json(text: bytes | str, kind: type[T]) -> T:
    """Decode JSON to a value of a type.

    Raises
    ------
    msgspec.DecodeError
        If the text is not JSON, or nested too deeply. It is a ValueError.
    msgspec.ValidationError
        If the JSON is not of this type. It is a DecodeError.

    Examples
    --------
    >>> decode_json('{"policy": "optimal"}', dict[str, str])
    {'policy': 'optimal'}
    >>> decode_json("[" * 5000, list)
    Traceback (most recent call last):
    msgspec.DecodeError: maximum recursion depth exceeded while deserializing an object
    """
    value: T = _decode(msgspec.json.Decoder, kind, text)
    return value


def decode_msgpack(data: bytes, kind: type[T]) -> T:
    """Decode MessagePack to a value of a type; the errors are those of :func:`decode_json`."""
    value: T = _decode(msgspec.msgpack.Decoder, kind, data)
    return value


def _decode(decoder: Any, kind: Any, data: bytes | str) -> Any:
    try:
        return _made(decoder, kind).decode(data)
    except (RecursionError, UnicodeDecodeError) as error:
        raise msgspec.DecodeError(str(error)) from None


@functools.lru_cache(MAX_DECODERS)
def _made(decoder: Any, kind: Any) -> Any:
    with _making:
        return decoder(kind)
