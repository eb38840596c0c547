"""Receives the body of a post, within limits on its time, its size and the gateway's memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from http import HTTPStatus

from starlette.types import Message, Receive

from producers.gateway.answers import too_large
from producers.gateway.encodings import expand
from producers.gateway.memory import Hold
from producers.gateway.problems import Problem

BODY_SECONDS = 10.0


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
        body = await self._whole(receive, hold, arrived)
        return await self._expanded(encoding, body, hold) if encoding else body

    async def _whole(self, receive: Receive, hold: Hold, arrived: Callable[[int], None]) -> bytes:
        chunks, more, left = list[bytes](), True, self.max_bytes
        try:
            async with asyncio.timeout(BODY_SECONDS):
                while more:
                    message = await receive()
                    chunk = _chunk(message)
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
        return b"".join(chunks)

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


def _chunk(message: Message) -> bytes:
    if message["type"] == "http.disconnect":
        raise Problem(
            HTTPStatus.BAD_REQUEST,
            "the client disconnected before its body was complete",
            "post it again",
        )
    chunk: bytes = message.get("body", b"")
    return chunk
