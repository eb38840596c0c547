"""Rate limits of each client: amounts of posts, bytes and reports in a period."""

from __future__ import annotations

import ipaddress
import time
from collections.abc import Callable, MutableMapping
from http import HTTPStatus
from typing import Any, NamedTuple

from limits import RateLimitItem, parse

from producers.gateway.problems import Problem

MOST_CLIENTS = 100_000
"""The largest number of clients that are counted; beyond it, the oldest is dropped. With three
limits they take 52 MB."""

CALLER_KEY = "dither.caller"

IPV6_NETWORK = 64
"""How many bits of an IPv6 address identify a client; the client can choose the other bits
itself."""

CLOSES_ABOVE = 65_536
"""A refused body of more bytes is not received: the connection is closed instead."""


class Client(NamedTuple):
    """The sender of a request. A token and an address are never the same client.

    Attributes
    ----------
    kind : str
        ``"token"``, ``"address"``, or ``"unknown"`` for all senders without an address, which count
        as one client.
    name : str
        The token's name, or the network address.
    """

    kind: str
    name: str

    def __str__(self) -> str:
        """Return the client's name in messages."""
        return self.name if self.kind == "address" else f"{self.kind} {self.name}"


UNKNOWN_CLIENT = Client("unknown", "address")


def client_of(scope: MutableMapping[str, Any]) -> Client:
    """Return the sender of a request: a token's name, or else a network address.

    The token check stores the caller in the scope, as ``dither.caller``. An IPv4 address that is
    mapped into IPv6 counts as the IPv4 address; for other IPv6 addresses the client is the /64
    network, because the owner of one address has the whole network.

    Examples
    --------
    >>> [str(client_of({"client": (address, 1)})) for address in ("192.0.2.7", "2001:db8::7:1")]
    ['192.0.2.7', '2001:db8::/64']
    >>> str(client_of({"client": ("::ffff:192.0.2.7", 1)}))
    '192.0.2.7'
    """
    name = getattr(scope.get(CALLER_KEY), "name", "")
    if name:
        return Client("token", name)
    try:
        host = str((scope.get("client") or ("",))[0])
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return UNKNOWN_CLIENT
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is None:
            network = ipaddress.ip_network((address, IPV6_NETWORK), strict=False)
            return Client("address", str(network))
        address = address.ipv4_mapped
    return Client("address", str(address))


class Allowance:
    """The amount that each client may use in a period, which begins with the client's first use.

    A client that has something left may use more than what is left; the excess is charged to later
    periods, so that the rate holds in the long run. `limit` has the amount and the length of the
    period. At most `max_clients` clients are counted; `unit` is the plural noun for what is
    limited, as messages show it.
    """

    def __init__(
        self, limit: RateLimitItem, unit: str, max_clients: int, clock: Callable[[], float]
    ) -> None:
        self.limit, self.unit = limit, unit
        self._seconds = limit.get_expiry()
        self._max_clients, self._clock = max_clients, clock
        self._used: dict[Client, tuple[int, float]] = {}  # and when that began

    def check(self, client: Client, charged: int = 0) -> None:
        """Refuse a client that had nothing left before this post.

        `charged`: the amount that this post has already used. Raises Problem with status 429, and
        the time after which the client may continue.
        """
        used_amount, period_start = self._used.get(client, (0, 0.0))
        if used_amount - charged < self.limit.amount:
            return
        left = self._ends(used_amount, period_start) - self._clock()
        if left > 0:
            amount, window = self.limit.amount, str(self.limit).partition(" per ")[2]
            raise Problem(
                HTTPStatus.TOO_MANY_REQUESTS,
                f"more than {amount} {self.unit} per {window} from {client}",
                "post again after the time in Retry-After (the same batch if it has an id); send "
                "fewer, larger batches",
                retry_after=left,
            )

    def charge(self, client: Client, amount: int) -> None:
        """Charge an amount to a client."""
        now = self._clock()
        used_amount, period_start = self._used.get(client, (0, now))
        if now - period_start >= self._seconds and self._ends(used_amount, period_start) <= now:
            self._used.pop(client, None)
            used_amount, period_start = 0, now
        if client not in self._used:
            self._forget(now)
        self._used[client] = used_amount + amount, period_start

    def _ends(self, used_amount: int, period_start: float) -> float:
        return period_start + self._seconds * max(1.0, used_amount / self.limit.amount)

    def _forget(self, now: float) -> None:
        while self._used:
            oldest = next(iter(self._used))
            if self._ends(*self._used[oldest]) > now and len(self._used) < self._max_clients:
                break
            del self._used[oldest]


class Clients:
    """The limits on what each client may post.

    Parameters
    ----------
    posts, sizes, reports : str
        Rates of posts, bytes and reports, as the package limits writes them: ``"100/second"`` or
        ``"6000 per hour"``; "" for no limit.
    max_clients : int
        The largest number of clients that are counted at a time.
    clock : callable
        Returns seconds since any moment, and is never set back.
    """

    def __init__(
        self,
        posts: str,
        sizes: str = "",
        reports: str = "",
        *,
        max_clients: int = MOST_CLIENTS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._limits: dict[str, Allowance] = {}
        for unit, name, rate in (
            ("posts", "rate_limit", posts),
            ("bytes", "rate_limit_bytes", sizes),
            ("reports", "rate_limit_reports", reports),
        ):
            if (limit := rate_limit(rate, name)) is not None:
                self._limits[unit] = Allowance(limit, unit, max_clients, clock)

    def admit(self, client: Client, length: int = 0) -> None:
        """Count a post of a client, and its announced bytes; or raise Problem (429)."""
        try:
            for limit in self._limits.values():
                limit.check(client)
        except Problem as problem:
            if length > CLOSES_ABOVE:
                problem.headers["Connection"] = "close"
            raise
        for unit, amount in (("posts", 1), ("bytes", length)):
            if amount and unit in self._limits:
                self._limits[unit].charge(client, amount)

    def count(self, unit: str, client: Client, amount: int, *, charged: int = 0) -> None:
        """Count a quantity that is known only from the body of a post.

        Parameters
        ----------
        unit : {"posts", "bytes", "reports"}
            What to count: "posts" for the batches of a post after the first, "bytes" if the post
            did not announce its length, or "reports".
        client : Client
            The client.
        amount : int
            The number to count.
        charged : int
            The amount that :meth:`admit` has already counted for this post.

        Raises
        ------
        Problem
            With status 429, as for :meth:`admit`; then the batch must not be sent.
        """
        if amount and unit in self._limits:
            self._limits[unit].check(client, charged)
            self._limits[unit].charge(client, amount)


def rate_limit(rate: str, name: str = "rate_limit") -> RateLimitItem | None:
    """Parse a rate in the notation of the package limits; "" means no limit, and gives None.

    Raises ValueError if the text is not a rate.

    Examples
    --------
    >>> rate_limit("100/second")
    100 per 1 second
    """
    if not rate:
        return None
    try:
        limit = parse(rate)
    except ValueError:
        limit = None
    if limit is None or limit.amount < 1:
        raise ValueError(
            f"{name} = {rate!r}: expected a rate such as '100/second' or '5000 per hour', "
            "or nothing"
        )
    return limit
