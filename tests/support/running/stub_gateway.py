"""A gateway that takes nothing: what an application asks of one, and routes of its own."""

from types import SimpleNamespace

from starlette.routing import Route


class StubGateway:
    """Has some routes, and a Kafka that answers or does not."""

    stalled, post_path = "", "/v1/reports"

    def __init__(self, *routes: Route, kafka: str = "") -> None:
        self.routes, self._kafka = routes, kafka
        self.crowds = SimpleNamespace(counts={})

    async def check_kafka(self) -> str:
        return self._kafka

    async def __aenter__(self) -> None: ...

    async def __aexit__(self, *_: object) -> None: ...
