"""The whole content of a Redis, to compare and to restore."""

from collections.abc import Mapping
from typing import Any

import redis

_DUMP = """
local found = {}
for _, key in ipairs(redis.call('KEYS', ARGV[1])) do
  found[#found + 1], found[#found + 2] = key, redis.call('DUMP', key)
end
return found
"""


def dumped(client: redis.Redis, pattern: str = "*") -> dict[bytes, bytes]:
    """Return the values of all keys of a pattern, as Redis serializes them."""
    found: Any = client.eval(_DUMP, 0, pattern)
    return dict(zip(found[::2], found[1::2], strict=True))


def restore(client: redis.Redis, values: Mapping[bytes, bytes]) -> None:
    """Replace the whole content by dumped values, none of which expires."""
    with client.pipeline() as pipeline:
        pipeline.flushdb()
        for key, value in values.items():
            pipeline.restore(key, 0, value)
        pipeline.execute()


_CONTENTS = """
local commands, found = {string = 'GET', hash = 'HGETALL', set = 'SMEMBERS', zset = 'ZRANGE'}, {}
for _, key in ipairs(redis.call('KEYS', ARGV[1])) do
  local kind = redis.call('TYPE', key).ok
  local words = kind == 'zset' and {key, 0, -1, 'WITHSCORES'} or {key}
  found[#found + 1] = {key, kind, redis.call(commands[kind], unpack(words))}
end
return found
"""


def _pairs(words: list[bytes]) -> dict[bytes, bytes]:
    return dict(zip(words[::2], words[1::2], strict=True))


def contents(client: redis.Redis, pattern: str = "*") -> dict[bytes, Any]:
    """Return the values of all keys of a pattern: bytes, sets, and dicts of fields or scores."""
    found: Any = client.eval(_CONTENTS, 0, pattern)
    shapes: dict[bytes, Any] = {b"set": frozenset, b"hash": _pairs, b"zset": _pairs}
    return {key: shapes.get(kind, bytes)(value) for key, kind, value in found}
