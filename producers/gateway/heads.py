"""Reads what the head of a post says about its body."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from http import HTTPStatus
from typing import NamedTuple

from producers.gateway.encodings import CONTENT_ENCODINGS
from producers.gateway.problems import Problem


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
