"""Expands compressed bodies, up to the allowed size."""

from __future__ import annotations

import sys
import zlib
from http import HTTPStatus
from typing import Protocol

from producers.gateway.problems import Problem

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


class _Decompressor(Protocol):
    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int = ..., /) -> bytes: ...


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
    try:
        decompressor = _decompressor(encoding)
        expanded = decompressor.decompress(body, max_bytes + 1)
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


def _decompressor(encoding: str) -> _Decompressor:
    if encoding == "gzip":
        return zlib.decompressobj(GZIP_WINDOW)
    options = {int(zstd.DecompressionParameter.window_log_max): ZSTD_WINDOW_LOG}
    return zstd.ZstdDecompressor(options=options)


def _unreadable(encoding: str, why: str) -> Problem:
    return Problem(
        HTTPStatus.BAD_REQUEST,
        f"a body that is not in {encoding}, as Content-Encoding says: {why}",
        "compress the whole body once, as one gzip member or as one zstd frame with a window of at "
        "most 8 MiB, or send it uncompressed",
    )
