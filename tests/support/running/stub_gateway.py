"""A gateway that takes no reports: it has the methods that an application calls, and routes."""

from types import SimpleNamespace

from starlette.routing import Route


class StubGateway:
    """Has the given routes, and a Kafka that answers or not."""

    stalled, post_path = "", "/v1/reports"

    def __init__(self, *routes: Route, kafka: str = "") -> None:
        self.routes, self._kafka = routes, kafka
        self.crowds = SimpleNamespace(counts={})

    async def check_kafka(self) -> str:
        return self._kafka

    async def __aenter__(self) -> None: ...

    async def __aexit__(self, *_: object) -> None: ...
