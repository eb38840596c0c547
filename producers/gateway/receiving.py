"""Receives a post's body: within its time, its size and the gateway's memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from http import HTTPStatus

from starlette.types import Message, Receive

from producers.gateway.answers import too_large
from producers.gateway.memory import Hold
from producers.gateway.problems import Problem

BODY_SECONDS = 10.0


async def receive_body(
    receive: Receive, hold: Hold, most: int, arrived: Callable[[int], None]
) -> bytes:
    """Return the whole body.

    Parameters
    ----------
    receive : ASGI channel
    hold : Hold
        Reserves each part that comes.
    most : int
        Bytes of a body.
    arrived : callable
        Called with the bytes of each part; it may raise Problem.

    Raises
    ------
    Problem
        408 if it does not come in time, 413 if it is too large, 503 if there is no memory for it,
        400 if the client leaves before its end.
    """
    chunks, more, left = list[bytes](), True, most
    try:
        async with asyncio.timeout(BODY_SECONDS):
            while more:
                message = await receive()
                chunk = _chunk(message)
                hold.reserve(len(chunk))
                left -= len(chunk)
                if left < 0:
                    raise too_large("more", most)
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
    return b"".join(chunks)


def _chunk(message: Message) -> bytes:
    if message["type"] == "http.disconnect":
        raise Problem(
            HTTPStatus.BAD_REQUEST,
            "the client disconnected before its body was complete",
            "post it again",
        )
    chunk: bytes = message.get("body", b"")
    return chunk
