"""Receives a post's body: within its time, its size and the gateway's memory."""

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
    """Receives bodies of at most `most` bytes, also expanded, in one event loop."""

    def __init__(self, max_bytes: int, executor: Executor) -> None:
        self.max_bytes, self._executor = max_bytes, executor
        self._expanding = asyncio.Lock()

    async def receive(
        self, receive: Receive, encoding: str, hold: Hold, arrived: Callable[[int], None]
    ) -> bytes:
        """Return a whole body, expanded.

        Parameters
        ----------
        receive : ASGI channel
        encoding : str
            Of the body; ``""``: none.
        hold : Hold
            Reserves memory for each part that comes, and for the expanded body.
        arrived : callable
            Called with the bytes of each part; it may raise Problem.

        Raises
        ------
        Problem
            408 if it does not come in time, 413 if it is too large, 503 if there is no memory for
            it, 400 if the client leaves before its end or if it is not in this encoding.
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
        """Return an expanded body.

        One is expanded at a time, and the most that it may become is reserved before. Besides, it
        takes a decompressor's window, and itself: once, however many wait.
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
