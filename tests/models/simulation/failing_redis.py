"""A Redis server that fails, and a client that talks to it: Redis is real, its faults are made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import redis

from tests.models.simulation.ledger import Ledger
from tests.models.simulation.world import Process, World
from tests.support.redis_contents import dumped, restore

SNAPSHOTS = 6
"""How many older states a failover may fall back to."""
RETRY_SECONDS = 2.0
TAKE_ARGUMENTS = 3
"""Of taking a partition over: the worker, its token and its group."""
LEAST_ARGUMENTS = 4
"""Of a commit: the epoch, the offset it was built on, its own, and the token."""
Words = tuple[bytes, ...]
"""Of a command, as a client sends it."""
FAILING = """
local left, own, writes = %d, redis, {}
for name in string.gmatch('SET SETRANGE PEXPIREAT HSET HDEL HINCRBY SADD SREM ZADD DEL UNLINK', '%%S+') do
  writes[name] = true
end
local function fails(name)
  if writes[name] then left = left - 1 end
  return writes[name] and left == 0
end
local full = "OOM command not allowed when used memory > 'maxmemory'"
local redis = setmetatable({
  call = function(...) if fails(...) then error({err = full}) end return own.call(...) end,
  pcall = function(...) if fails(...) then return {err = full} end return own.pcall(...) end,
}, {__index = own})
"""  # noqa: E501
"""Before a script: one of its writes fails, with what was written before in place, as in Redis."""


def _script_call(words: Words) -> tuple[bytes, Words]:
    """Return the partition's tag and the arguments of a call of a script; else nothing."""
    if words[0] != b"EVALSHA":
        return b"", ()
    return words[3].removesuffix(b":owner"), words[3 + int(words[2]) :]


class RedisServer:
    """A Redis, which is emptied, its older states, and what goes wrong with it."""

    def __init__(self, world: World, ledger: Ledger, client: Any) -> None:
        self.world, self.ledger, self.client = world, ledger, client
        self.away = False
        self._synced: dict[bytes, bytes] = {}
        self._snapshots: list[dict[bytes, bytes]] = [{}]
        self._scripts: dict[bytes, bytes] = {}
        self._restart({})

    # -- What a client asks ---------------------------------------------------------------------

    def ask(self, process: Process, words: Words) -> Any:
        """Answer a command; the worker may die before it, after it, or never hear the answer."""
        world, who = self.world, process.name
        process.pause()
        if self.away:
            process.pause(world.rng.random() * RETRY_SECONDS)
            raise redis.ConnectionError("connection refused")
        if world.strikes("redis call lost", who):
            raise redis.ConnectionError("connection reset before the command")
        if world.strikes("redis call late", who):
            world.later(world.rng.random() * 20, lambda: self._run_late(who, words))
            raise redis.TimeoutError("no answer yet")
        if world.strikes("redis call repeated", who):
            self._run(who, words)
        reply = self._run(who, words)
        process.pause()
        if world.strikes("redis reply lost", who):
            raise redis.ConnectionError("connection reset before the reply")
        tag, arguments = _script_call(words)
        if len(arguments) == TAKE_ARGUMENTS:
            epoch = dict(zip(reply[0][::2], reply[0][1::2], strict=True))[b"epoch"]
            self.ledger.acquired(who, tag, int(epoch))
        return reply

    def _run_late(self, who: str, words: Words) -> None:
        if not self.away:
            self.world.note(who, "a late call arrives", words[:3])
            try:
                self._run(who, words)
            except redis.ResponseError as error:
                self.world.note(who, "and fails", error)

    def _run(self, who: str, words: Words) -> Any:
        if words[0] == b"SCRIPT LOAD":
            sha = self._execute(words)
            self._scripts[sha.encode()] = words[1]
            return sha
        tag, arguments = _script_call(words)
        if len(arguments) < LEAST_ARGUMENTS:
            return self._execute(words)
        owner = tag + b":owner"
        before = self.client.hgetall(owner)
        if words[1] in self._scripts and self.world.strikes("redis write failed", who):
            failing = FAILING % self.world.rng.randrange(1, 11)
            words = (b"EVAL", failing.encode() + self._scripts[words[1]], *words[2:])
        try:
            reply = self._execute(words)
        finally:
            if self.client.hget(owner, "next") == b"-2":
                self.ledger.torn(tag)
        self.ledger.committed(who, tag, arguments[:LEAST_ARGUMENTS], before, reply)
        return reply

    def _execute(self, words: Words) -> Any:
        name, *arguments = words
        return self.client.execute_command(name.decode(), *arguments)

    # -- What happens to it ---------------------------------------------------------------------

    def sync(self) -> None:
        """Write the log of writes to disk; now and then keep a copy of what there is."""
        self._synced = dumped(self.client)
        if self.world.rng.random() < 0.3:
            self._snapshots = [*self._snapshots[-SNAPSHOTS:], self._synced]

    def lose_last_second(self) -> None:
        """Come back with what had been written to disk."""
        self._restart(self._synced)
        self.sync()

    def fail_over(self) -> None:
        """Come back as an older state."""
        index = self.world.rng.randrange(len(self._snapshots))
        older = self._snapshots[index]
        self._restart(older)
        self._snapshots = [*self._snapshots[:index], older]
        self.sync()

    def _restart(self, values: Mapping[bytes, bytes]) -> None:
        """Come back with these values; as after any restart, the scripts are unknown."""
        restore(self.client, values)
        self.client.script_flush("SYNC")
        self._scripts.clear()

    def flush(self) -> None:
        """Lose everything."""
        self.client.flushdb()
        self.sync()


class RedisClient(redis.Redis):
    """redis-py's commands and scripts, which go through what lets them fail."""

    def __init__(self, server: RedisServer, process: Process) -> None:
        super().__init__(connection_pool=server.client.connection_pool)
        self._server, self._process = server, process
        self._encoder: Any = self.get_encoder()

    def execute_command(self, *args: Any, **options: Any) -> Any:
        if args[0] == "INFO":  # no fault strikes
            return super().execute_command(*args, **options)  # type: ignore[no-untyped-call]
        words = tuple([bytes(self._encoder.encode(word)) for word in args])
        return self._server.ask(self._process, words)

    def pipeline(self, *_: Any, **__: Any) -> Any:
        return RedisPipeline(self)

    def close(self) -> None:
        """Nothing is open."""


class RedisPipeline:
    """Commands that are sent together; faults strike between them."""

    def __init__(self, client: RedisClient) -> None:
        self._client, self._waiting = client, list[tuple[Any, ...]]()

    def __enter__(self) -> RedisPipeline:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is open."""

    def execute_command(self, *args: Any) -> None:
        self._waiting.append(args)

    def execute(self, raise_on_error: bool = True) -> list[Any]:
        assert not raise_on_error
        return [self._client.execute_command(*words) for words in self._waiting]
