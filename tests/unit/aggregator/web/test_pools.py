"""What nobody waits for any more ends between its steps."""

import asyncio
from typing import Any, Never

import pytest
from starlette.requests import ClientDisconnect, Request

from aggregator.web.http.pools import Pool
from estimators.interruption import checkpoint


def test_a_call_that_asks_for_nothing_itself_ends_when_its_client_leaves() -> None:
    async def receive() -> Any:
        return {"type": "http.disconnect"}

    def forever() -> Never:
        while True:
            checkpoint()

    request = Request({"type": "http", "client": ("10.0.0.1", 4000), "headers": []}, receive)
    with pytest.raises(ClientDisconnect):
        asyncio.run(Pool(1, 1).run(request, forever))
