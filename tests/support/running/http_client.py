"""An HTTP client that all tests of a process share.

Each call of `httpx.get` reads the certificates of all authorities again: 20 ms of processor time.
"""

import httpx

_CLIENT = httpx.Client(limits=httpx.Limits(max_keepalive_connections=0), timeout=60.0)
"""Its timeout is long: a server's first estimate imports SciPy, for seconds on a busy machine."""

get = _CLIENT.get
post = _CLIENT.post
stream = _CLIENT.stream


def status(url: str) -> int:
    """Return the status of an answer, or 0 without an answer."""
    try:
        return get(url).status_code
    except httpx.TransportError:
        return 0
