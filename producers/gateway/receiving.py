"""Receives posts: heads, then bodies, expanded from their encoding, within limits on memory."""

from __future__ import annotations

import asyncio
import sys
import zlib
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Executor
from http import HTTPStatus
from typing import Any, NamedTuple

from starlette.types import Receive

from producers.gateway.problems import POST_AGAIN, Problem, bad_request, unavailable

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

CONTENT_ENCODINGS = ("gzip", "zstd")
"""The values of Content-Encoding that are expanded."""
GZIP_WINDOW = 31
"""The window for zlib: deflate's largest (2 ** 15 bytes), in a gzip member."""
ZSTD_WINDOW_LOG = 23
"""The largest window of a frame that is accepted: RFC 9659 allows 8 MiB in HTTP."""
BODY_SECONDS = 10.0


# -- Heads ----------------------------------------------------------------------------------------


class Head(NamedTuple):
    """A body's media type, its length (0 if not announced), and its encoding ("" for none)."""

    media_type: str
    length: int
    encoding: str


def read_head(headers: Sequence[tuple[bytes, bytes]], media_types: Collection[str]) -> Head:
    """Return what the head of a post says about its body.

    Parameters
    ----------
    headers : sequence of (bytes, bytes)
        Names, in lower case, and values.
    media_types : collection of str
        The media types that the route accepts.

    Raises
    ------
    Problem
        With status 415 if the type or the encoding is not supported; with 400 if the head announces
        two lengths.

    Examples
    --------
    >>> read_head([(b"content-type", b"application/json"), (b"content-length", b"2")],
    ...           ["application/json"])
    Head(media_type='application/json', length=2, encoding='')
    """
    media_type, length, encodings = "", 0, list[str]()
    lengths = 0
    for name, value in headers:
        if name == b"content-type":
            media_type = value.partition(b";")[0].strip().lower().decode("latin-1")
        elif name == b"content-length":
            digits = value.lstrip(b"0")  # int() takes 4,300 digits at most
            length, lengths = int(digits) if digits.isdigit() else 0, lengths | 1
        elif name == b"transfer-encoding":
            lengths |= 2
        elif name == b"content-encoding" and value.strip().lower() != b"identity":
            encodings.append(value.strip().lower().decode("latin-1"))
    if lengths == 3:
        raise Problem(
            HTTPStatus.BAD_REQUEST,
            "both Content-Length and Transfer-Encoding: expected one of the two (RFC 9112, 6.1)",
            "send the body with its length, or in chunks",
            headers={"Connection": "close"},
        )
    if encodings and (len(encodings) > 1 or encodings[0] not in CONTENT_ENCODINGS):
        raise Problem(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
            f"Content-Encoding {', '.join(encodings)!r}: expected one of "
            f"{', '.join(CONTENT_ENCODINGS)}, or none",
            "compress the body once with one of them, or send it as it is",
            headers={"Accept-Encoding": ", ".join(CONTENT_ENCODINGS)},
        )
    if media_type not in media_types:
        raise Problem(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
            f"Content-Type {media_type!r}: expected one of {', '.join(media_types)}",
            "send the header Content-Type with the one that the body has",
            headers={"Accept-Post": ", ".join(media_types)},
        )
    return Head(media_type, length, "".join(encodings))


# -- Memory ---------------------------------------------------------------------------------------


class Memory:
    """The memory of all posts in progress, in bytes; `receiver` names what the posts wait for."""

    def __init__(self, max_bytes: int, receiver: str = "Kafka") -> None:
        self.max_bytes, self.receiver, self.reserved = max_bytes, receiver, 0

    def full(self) -> Problem:
        """Return the answer to a post for which there is no memory."""
        problem = (
            f"{self.reserved} bytes of reports wait for {self.receiver}, which is slow or away"
        )
        return unavailable(problem, POST_AGAIN)


class Hold:
    """The bytes that a post has reserved; an error in a block ``with hold:`` releases them."""

    __slots__ = ("bytes", "memory")

    def __init__(self, memory: Memory) -> None:
        self.memory, self.bytes = memory, 0

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is not None:
            self.release()

    def reserve(self, more: int) -> None:
        """Reserve more bytes; raise Problem (503) if all posts together would exceed the limit."""
        if self.memory.reserved + more > self.memory.max_bytes:
            raise self.memory.full()
        self.memory.reserved += more
        self.bytes += more

    def give_back(self, count: int) -> None:
        """Release some of the bytes."""
        self.memory.reserved -= count
        self.bytes -= count

    def release(self) -> None:
        """Release all of the bytes; a second call does nothing."""
        self.give_back(self.bytes)


# -- Bodies ---------------------------------------------------------------------------------------


def too_large(size: str, max_bytes: int) -> Problem:
    """Return the answer to a body of more than `max_bytes` bytes; `size` is its size as text."""
    return Problem(
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        f"a body of {size}: expected at most {max_bytes} bytes",
        "put the reports into several batches, each with an id of its own",
        headers={"Connection": "close"},
    )


class Receiver:
    """Receives bodies in an event loop; none may be larger, or expand to more, than `max_bytes`."""

    def __init__(self, max_bytes: int, executor: Executor) -> None:
        self.max_bytes, self._executor = max_bytes, executor
        self._expanding = asyncio.Lock()

    async def receive(
        self, receive: Receive, encoding: str, hold: Hold, arrived: Callable[[int], None]
    ) -> bytes:
        """Return a body, complete and expanded.

        `receive`: the ASGI channel of the request; `encoding`: the body's encoding; "" for none;
        `hold`: reserves memory for each part that arrives, and for the expanded body; `arrived`:
        called with the number of bytes of each part; it may raise Problem. Raises Problem with
        status 408 if the body does not arrive in time, 413 if it is too large, 503 if there is no
        memory for it, 400 if the client leaves early or the body is not in this encoding.
        """
        chunks, more, left = list[bytes](), True, self.max_bytes
        try:
            async with asyncio.timeout(BODY_SECONDS):
                while more:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        gone = "the client disconnected before its body was complete"
                        raise bad_request(gone, "post it again")
                    chunk: bytes = message.get("body", b"")
                    hold.reserve(len(chunk))
                    left -= len(chunk)
                    if left < 0:
                        raise too_large("more", self.max_bytes)
                    arrived(len(chunk))
                    chunks.append(chunk)
                    more = message.get("more_body", False)
        except TimeoutError:
            raise Problem(
                HTTPStatus.REQUEST_TIMEOUT,
                f"the body was not complete after {BODY_SECONDS:g} seconds",
                "post it again",
                headers={"Connection": "close"},
            ) from None
        body = b"".join(chunks)
        return await self._expanded(encoding, body, hold) if encoding else body

    async def _expanded(self, encoding: str, body: bytes, hold: Hold) -> bytes:
        """Return the expanded body.

        One body is expanded at a time, and memory for the largest result is reserved beforehand.
        The decompressor also takes memory for its window and for a copy of the result, but only for
        this body.
        """
        loop = asyncio.get_running_loop()
        async with self._expanding:
            hold.reserve(self.max_bytes - len(body))
            expanded = await loop.run_in_executor(
                self._executor, expand, encoding, body, self.max_bytes
            )
            hold.give_back(self.max_bytes - len(expanded))
        return expanded


# -- Compressed bodies ----------------------------------------------------------------------------


def expand(encoding: str, body: bytes, max_bytes: int) -> bytes:
    """Return the expanded form of a compressed body.

    Expansion stops one byte after `max_bytes`, so it takes at most twice as much memory, plus the
    decompressor's window (32 KiB for gzip, 8 MiB for zstd). `encoding`: "gzip" or "zstd"; `body`:
    one gzip member or one zstd frame, with nothing after it; `max_bytes`: the most bytes of the
    expanded body. Raises Problem with status 413 if the body expands to more; 400 if it is not in
    this encoding, is truncated, is followed by more bytes, or needs a larger window.

    >>> import gzip
    >>> expand("gzip", gzip.compress(b"reports"), 7)
    b'reports'
    """
    decompressor: Any = zlib.decompressobj(GZIP_WINDOW)
    if encoding == "zstd":
        options = {int(zstd.DecompressionParameter.window_log_max): ZSTD_WINDOW_LOG}
        decompressor = zstd.ZstdDecompressor(options=options)
    try:
        expanded: bytes = decompressor.decompress(body, max_bytes + 1)
    except (zlib.error, zstd.ZstdError) as error:
        raise _unreadable(encoding, str(error)) from None
    if len(expanded) > max_bytes:
        raise Problem(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
            f"a body in {encoding} that expands to more than {max_bytes} bytes",
            "put the reports into several posts",
            headers={"Connection": "close"},
        )
    if not decompressor.eof:
        raise _unreadable(encoding, "it ends before its end")
    if surplus := len(decompressor.unused_data):
        raise _unreadable(encoding, f"{surplus} bytes follow its end")
    return expanded


def _unreadable(encoding: str, why: str) -> Problem:
    return bad_request(
        f"a body that is not in {encoding}, as Content-Encoding says: {why}",
        "compress the whole body once, as one gzip member or as one zstd frame with a window of at "
        "most 8 MiB, or send it uncompressed",
    )
