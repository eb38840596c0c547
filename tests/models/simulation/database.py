"""A model of Redis: a dictionary, the commands that the scripts use, and Lua 5.1 to run them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import redis
from lupa.lua51 import LuaRuntime

Word = bytes
Keys = dict[bytes, Any]
"""Strings are bytes, sets are dicts without values (so that their order is known)."""

_lua = LuaRuntime(encoding=None)
_load = _lua.eval(
    b"function(text) return assert(loadstring('local KEYS, ARGV, redis = ... ' .. text)) end"
)


class Database:
    """One Redis server's keys and scripts.

    Parameters
    ----------
    disturb : callable
        Called with the name of each command that writes, before it runs; what it raises ends the
        script there, with what was written before in place, as in Redis.

    Attributes
    ----------
    on_script : callable
        Called with the text of a script, its keys, its arguments, a copy of the keys' owner hashes
        before, and its reply, after each run.
    """

    def __init__(self) -> None:
        self.keys: Keys = {}
        self._texts: dict[bytes, bytes] = {}
        self.disturb: Callable[[bytes], None] | None = None
        calls = {b"call": self._call_from_lua, b"pcall": self._pcall_from_lua}
        self._table = _lua.table_from(calls)

    def copy(self) -> Keys:
        """Return what is stored, as a snapshot for :meth:`restore`."""
        return {k: v if isinstance(v, bytes | tuple) else v.copy() for k, v in self.keys.items()}

    def restore(self, snapshot: Keys) -> None:
        """Go back to a snapshot; as after any restart, the scripts are unknown."""
        self.keys = snapshot
        self._texts.clear()

    def text(self, sha: bytes) -> bytes:
        """Return the text of a script that was loaded."""
        try:
            return self._texts[sha]
        except KeyError:
            raise redis.exceptions.NoScriptError("No matching script") from None

    def run(self, *words: Word) -> Any:
        """Run a command as a client sends it; return the reply."""
        name = words[0].upper()
        if name == b"SCRIPT LOAD":
            sha = hashlib.sha1(words[1], usedforsecurity=False).hexdigest().encode()
            self._texts[sha] = words[1]
            return sha
        if name == b"EVALSHA":
            split = 3 + int(words[2])
            return self._script(self.text(words[1]), words[3:split], words[split:])
        return COMMANDS[name](self, *words[1:])

    def _script(self, text: bytes, keys: tuple[Word, ...], arguments: tuple[Word, ...]) -> Any:
        function = _compiled.get(text)
        if function is None:
            function = _compiled[text] = _load(text)
        table = _lua.table_from
        return _from_lua(function(table(keys), table(arguments), self._table))

    def _call_from_lua(self, *words: Any) -> Any:
        name, *rest = [w if type(w) is bytes else b"%d" % w for w in words]
        if self.disturb is not None and name in WRITES:
            self.disturb(name)
        reply = COMMANDS[name](self, *rest)
        if type(reply) is list:
            return _lua.table_from([False if item is None else item for item in reply])
        return False if reply is None else reply

    def _pcall_from_lua(self, *words: Any) -> Any:
        try:
            return self._call_from_lua(*words)
        except redis.ResponseError as error:
            return _lua.table_from({b"err": str(error).encode()})

    # -- Commands, as Redis documents them ------------------------------------------------------

    def _of(self, key: Word, kind: type, create: bool = False) -> Any:
        value = self.keys.get(key)
        if value is None:
            value = kind()
            if create:
                self.keys[key] = value
        elif type(value) is not kind:
            raise redis.ResponseError(
                "WRONGTYPE Operation against a key holding the wrong kind of value"
            )
        return value

    def redis_get(self, key: Word) -> bytes | None:
        return self._of(key, bytes) if key in self.keys else None

    def redis_set(self, key: Word, value: Word, *_: Word) -> bytes:
        self.keys[key] = value
        return b"OK"

    def redis_setrange(self, key: Word, offset: Word, value: Word) -> int:
        before, start = self._of(key, bytes), int(offset)
        after = before[start + len(value) :]
        self.keys[key] = before[:start].ljust(start, b"\0") + value + after
        return len(self.keys[key])

    def redis_strlen(self, key: Word) -> int:
        return len(self._of(key, bytes))

    def redis_getrange(self, key: Word, first: Word, last: Word) -> bytes:
        found: bytes = self._of(key, bytes)
        return found[int(first) : int(last) + 1]

    def redis_del(self, *keys: Word) -> int:
        return sum(self.keys.pop(key, None) is not None for key in keys)

    redis_unlink = redis_del

    def redis_exists(self, *keys: Word) -> int:
        return sum(key in self.keys for key in keys)

    def redis_pttl(self, key: Word) -> int:
        return -1 if key in self.keys else -2

    def redis_pexpireat(self, key: Word, _: Word) -> int:
        return int(key in self.keys)

    def redis_hset(self, key: Word, *pairs: Word) -> int:
        fields = self._of(key, Hash, create=True)
        before = len(fields)
        fields.update(zip(pairs[::2], pairs[1::2], strict=True))
        return len(fields) - before

    def redis_hmget(self, key: Word, *names: Word) -> list[bytes | None]:
        fields = self._of(key, Hash)
        return [fields.get(name) for name in names]

    def redis_hlen(self, key: Word) -> int:
        return len(self._of(key, Hash))

    def redis_hdel(self, key: Word, *names: Word) -> int:
        fields = self._of(key, Hash)
        gone = sum(fields.pop(name, None) is not None for name in names)
        if not fields:
            self.keys.pop(key, None)
        return gone

    def redis_hgetall(self, key: Word) -> list[bytes]:
        return [word for pair in self._of(key, Hash).items() for word in pair]

    def redis_hscan(self, key: Word, *_: Word) -> list[Any]:
        return [b"0", self.redis_hgetall(key)]

    def redis_hincrby(self, key: Word, name: Word, more: Word) -> int:
        fields = self._of(key, Hash, create=True)
        value = int(fields.get(name, b"0")) + int(more)
        fields[name] = b"%d" % value
        return value

    def redis_sadd(self, key: Word, *members: Word) -> int:
        found = self._of(key, Members, create=True)
        before = len(found)
        found.update(dict.fromkeys(members))
        return len(found) - before

    def redis_srem(self, key: Word, *members: Word) -> int:
        found = self._of(key, Members)
        gone = [member for member in members if found.pop(member, self) is None]
        if not found:
            self.keys.pop(key, None)
        return len(gone)

    def redis_scard(self, key: Word) -> int:
        return len(self._of(key, Members))

    def redis_smembers(self, key: Word) -> list[bytes]:
        return list(self._of(key, Members))

    def redis_zadd(self, key: Word, *ranks: Word) -> int:
        found = self._of(key, Ranks, create=True)
        before = len(found)
        for score, member in zip(ranks[::2], ranks[1::2], strict=True):
            found[member] = int(score)
        return len(found) - before

    def redis_zcard(self, key: Word) -> int:
        return len(self._of(key, Ranks))


class Hash(dict[bytes, bytes]):
    """A hash's fields."""

    def copy(self) -> Hash:
        return Hash(self)


class Members(dict[bytes, None]):
    """A set's members."""

    def copy(self) -> Members:
        return Members(self)


class Ranks(dict[bytes, int]):
    """A sorted set's members and scores."""

    def copy(self) -> Ranks:
        return Ranks(self)


_compiled: dict[bytes, Any] = {}
COMMANDS: dict[bytes, Callable[..., Any]] = {
    name.removeprefix("redis_").upper().encode(): command
    for name, command in vars(Database).items()
    if name.startswith("redis_")
}
WRITES = {b"SET", b"SETRANGE", b"PEXPIREAT", b"HSET", b"HDEL", b"HINCRBY", b"SADD", b"SREM"}
WRITES |= {b"ZADD", b"DEL", b"UNLINK"}


def _from_lua(value: Any) -> Any:
    kind = type(value)
    if kind is bytes or kind is int:
        return value
    if kind is float:
        return int(value)
    if value is None or value is False:
        return None
    return [_from_lua(value[i]) for i in range(1, len(value) + 1)]
