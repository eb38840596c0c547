"""A lease in Redis, which lets only one process at a time do a task."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import redis
import structlog

from aggregator.errors import StateUnreadable
from aggregator.storage.commands import script
from aggregator.storage.failures import explain_redis_error

RENEWALS_PER_LEASE = 3
"""How often a lease is renewed within its length, so that two renewals may fail."""
EXPIRY_MARGIN = 0.1
"""A holder gives up its lease early by this share of its length, as clocks differ in speed."""

Word = str | bytes | int

log = structlog.get_logger("dither.lease")


class LeaseLost(Exception):  # noqa: N818
    """Raised if another process may hold the lease now: the protected task must stop."""


class Lease:
    """The right to do a task alone, for a while.

    A holder that was frozen or cut off from Redis knows by its monotonic clock that its lease is
    over, a tenth of the lease's length before Redis would give it to another process.

    Parameters
    ----------
    key : str
        A prefix with a hash tag: `key:lease`, `key:epoch` and all keys of :meth:`write` must be in
        one slot of a Redis Cluster.
    name : str
        The name of this holder, which no other holder may have.
    seconds : float
        The length of the lease.
    """

    def __init__(
        self,
        client: redis.Redis,
        key: str,
        name: str,
        seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name, self.seconds, self._milliseconds = name, seconds, round(1000 * seconds)
        self._keys = [f"{key}:lease", f"{key}:epoch"]
        self._script = client.register_script(script("lease"))
        self._clock = clock
        self._token = ""
        self._held_until = float("-inf")

    @property
    def held(self) -> bool:
        """Whether no other process can hold the lease now."""
        return self._clock() < self._held_until

    @property
    def epoch(self) -> int:
        """The epoch from the last :meth:`acquire`, which grows each time; 0 if it failed."""
        return int(self._token.partition(":")[0] or 0)

    def acquire(self) -> bool:
        """Take the lease if nobody holds it; return whether it was taken."""
        began = self._clock()
        self._token = self._call(["acquire", "", self._milliseconds, self.name]).decode()
        return self._extend(began, bool(self._token))

    def renew(self) -> bool:
        """Renew the lease for its full length; return False if it is lost."""
        began = self._clock()
        return self._extend(began, bool(self._run("renew")))

    def release(self) -> None:
        """Give the lease back, so that another process need not wait for its end."""
        self._held_until = float("-inf")
        self._run("release")

    def write(
        self,
        commands: Iterable[Sequence[Word]],
        key: str = "",
        expected: Mapping[str, str | bytes] | None = None,
    ) -> bool:
        """Run Redis commands atomically if the lease is held; else raise LeaseLost and run none.

        `commands`: the commands; `key`: the key of a hash; `expected`: the values that its fields
        must have, "" for a field that must not exist.

        Returns
        -------
        bool
            False if a field has another value; then no command was run.
        """
        fields = [word for field in (expected or {}).items() for word in field]
        keys: dict[Word, None] = {key: None} if key else {}
        words: list[Word] = []
        for command in commands:
            words += [len(command), *command]
            keys[command[1]] = None
        if not words:
            return True
        outcome = self._run("write", len(fields) // 2, *fields, *words, keys=[*keys])
        if not outcome:
            self._held_until = float("-inf")
            raise LeaseLost(f"another process holds the lease; this one had epoch {self.epoch}")
        return outcome > 0

    @contextlib.contextmanager
    def renewals(self) -> Iterator[None]:
        """Renew the lease in the background while the body runs, and release it afterwards."""
        over = threading.Event()

        def renew() -> None:
            while not over.wait(self.seconds / RENEWALS_PER_LEASE) and self.held:
                try:
                    self.renew()
                except (redis.RedisError, StateUnreadable) as error:
                    log.warning("lease not renewed", error=explain_redis_error(error))

        thread = threading.Thread(target=renew, name="dither-lease", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
            with contextlib.suppress(redis.RedisError, StateUnreadable):
                self.release()

    def _run(self, verb: str, *words: Word, keys: Sequence[Word] = ()) -> int:
        return int(self._call([verb, self._token, self._milliseconds, *words], keys))

    def _call(self, words: Sequence[Word], keys: Sequence[Word] = ()) -> Any:
        """Return the script's reply; raise StateUnreadable if a key holds what cannot be used."""
        all_keys: list[Any] = [*self._keys, *keys]
        reply: Any = self._script(all_keys, words)
        if isinstance(reply, list):
            raise StateUnreadable(*(word.decode(errors="replace") for word in reply))
        return reply

    def _extend(self, began: float, granted: bool) -> bool:
        self._held_until = began + self.seconds * (1 - EXPIRY_MARGIN) if granted else float("-inf")
        return granted
