"""Who posts how often: a limit on the rate of each client, in bounded memory."""

from __future__ import annotations

import ipaddress
import time
from collections.abc import Callable, MutableMapping
from http import HTTPStatus
from typing import Any

from limits import RateLimitItem, parse
from limits.storage import Storage
from limits.strategies import FixedWindowRateLimiter

from producers.problems import Problem

MOST_CLIENTS = 100_000
"""Counted at a time; beyond it the one that was first seen is forgotten. About 30 MB."""

CALLER = "dither.caller"

IPV6_NETWORK = 64
"""Bits of an address that name a client: the rest is its own to change."""


class Counts(Storage):
    """Counts of one kind of limit, forgotten when they expire, or oldest first above `most`.

    All keys expire after the same time, so that they do so in the order in which they came.
    """

    STORAGE_SCHEME = None

    def __init__(self, most: int, clock: Callable[[], float] = time.time) -> None:
        super().__init__()
        self._most, self._clock = most, clock
        self._counts: dict[str, tuple[int, float]] = {}

    @property
    def base_exceptions(self) -> type[Exception]:
        """Nothing here fails."""
        return ValueError

    def incr(self, key: str, expiry: float, amount: int = 1) -> int:
        """Add to a key's count, which expires `expiry` seconds after its first, and return it."""
        now = self._clock()
        count, expires = self._counts.get(key, (0, 0.0))
        if expires <= now:
            self._counts.pop(key, None)
            count, expires = 0, now + expiry
            self._forget(now)
        self._counts[key] = count + amount, expires
        return count + amount

    def _forget(self, now: float) -> None:
        while self._counts:
            oldest = next(iter(self._counts))
            if self._counts[oldest][1] > now and len(self._counts) < self._most:
                break
            del self._counts[oldest]

    def get(self, key: str) -> int:
        """Return a key's count."""
        count, expires = self._counts.get(key, (0, 0.0))
        return count if expires > self._clock() else 0

    def get_expiry(self, key: str) -> float:
        """Return when a key's count expires, in seconds since the epoch."""
        return self._counts.get(key, (0, self._clock()))[1]

    def check(self) -> bool:
        """Say that it works."""
        return True

    def reset(self) -> int:
        """Forget everything; return how many keys that were."""
        size = len(self._counts)
        self._counts.clear()
        return size

    def clear(self, key: str) -> None:
        """Forget a key."""
        self._counts.pop(key, None)


class Clients:
    """The limit on each client's rate of posts.

    Parameters
    ----------
    rate : str
        As the limits package writes it, ``"100/second"`` or ``"6000 per hour"``; empty: no limit.
    most : int
        How many clients are counted at a time.
    clock : callable
        Seconds since the epoch.

    Raises
    ------
    ValueError
        If the rate cannot be read.
    """

    def __init__(
        self, rate: str, most: int = MOST_CLIENTS, clock: Callable[[], float] = time.time
    ) -> None:
        self._limit = rate_limit(rate)
        self._counts, self._clock = Counts(most, clock), clock
        self._limiter = FixedWindowRateLimiter(self._counts)

    def admit(self, scope: MutableMapping[str, Any]) -> None:
        """Count a post.

        Raises
        ------
        Problem
            429, with the time until its client may post again.
        """
        limit = self._limit
        if limit is None:
            return
        client = client_of(scope)
        if not self._limiter.hit(limit, client):
            left = self._limiter.get_window_stats(limit, client).reset_time - self._clock()
            raise Problem(
                HTTPStatus.TOO_MANY_REQUESTS,
                f"more than {limit} from {client}",
                "post again after the time in Retry-After, the same batch if it has an id; put "
                "more reports into a batch",
                retry_after=left,
            )


def rate_limit(rate: str) -> RateLimitItem | None:
    """Return a rate as the limits package knows it; None if it is empty.

    Examples
    --------
    >>> rate_limit("100/second")
    100 per 1 second
    """
    if not rate:
        return None
    try:
        return parse(rate)
    except ValueError:
        raise ValueError(
            f"rate_limit = {rate!r}: expected a rate such as '100/second' or '5000 per hour', "
            "or nothing"
        ) from None


def client_of(scope: MutableMapping[str, Any]) -> str:
    """Return what a client is called: its token's name, or else its network address.

    Who checks tokens leaves the caller in the scope, as ``dither.caller``.

    Examples
    --------
    >>> client_of({"client": ("192.0.2.7", 40000)}), client_of({"client": ("2001:db8::7:1", 1)})
    ('192.0.2.7', '2001:db8::/64')
    """
    name = getattr(scope.get(CALLER), "name", "")
    if name:
        return f"token {name}"
    address = (scope.get("client") or ("unknown",))[0]
    if ":" not in address:
        return str(address)
    try:
        return str(ipaddress.ip_network((address.partition("%")[0], IPV6_NETWORK), strict=False))
    except ValueError:
        return str(address)
