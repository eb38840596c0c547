"""A relay, or a gateway, that records what reaches it and answers as a test tells it to."""

import time

import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from aggregator.reading.serialization import definition
from estimators import Metric
from producers.sealing import decode_post
from producers.wire.reports_pb2 import ReportBatch
from tests.support.reports import crowds

PRIVATE = "07" * 32
KEY, OTHER_KEY = (crowds.public(private).hex() for private in (PRIVATE, "08" * 32))


class ScriptedServer:
    """A server of definitions and a key, which answers posts with the remaining answers in order.

    Attributes
    ----------
    definitions : dict of str to bytes
        The answers to requests below `metrics/`, by path.
    asked : list of str
        The paths of the requests, without the version.
    posted, headers, moments : list
        The bodies of the posts, their headers, and the times of their arrival.
    failing : dict of str to ASGIApp
        By metric, the answer to each of its batches, as long as the metric is in the mapping.
    """

    def __init__(self, *metrics: Metric) -> None:
        self.definitions = {each.name: msgspec.json.encode(definition(each)) for each in metrics}
        self.key, self.url = KEY, ""
        self.asked: list[str] = []
        self.posted: list[bytes] = []
        self.headers: list[dict[str, str]] = []
        self.moments: list[float] = []
        self.answers: list[ASGIApp] = []
        self.failing: dict[str, ASGIApp] = {}

    def route(self, prefix: str = "") -> Route:
        """Return the route below a prefix."""
        return Route(prefix + "/v1/{path:path}", self.answer, methods=["GET", "POST"])

    async def answer(self, request: Request) -> ASGIApp:
        """Answer a request."""
        path = request.path_params["path"]
        self.asked.append(path)
        if path == "key":
            return JSONResponse({"key": self.key})
        if request.method == "GET":
            body = self.definitions.get(path.removeprefix("metrics/"))
            return Response(body, 404 if body is None else 200)
        self.posted.append(await request.body())
        self.headers.append(dict(request.headers))
        self.moments.append(time.monotonic())
        if self.answers:
            return self.answers.pop(0)
        failing = self.failing.get(self.batches[-1].metric) if self.failing else None
        return failing or self.accept(path)

    def accept(self, path: str) -> ASGIApp:
        """Return the answer to a post when no scripted answer remains."""
        if path == "sealed":
            return JSONResponse({"status": "accepted"}, 202)
        return JSONResponse({"batch_id": self.batches[-1].batch_id.hex()}, 202)

    @property
    def batches(self) -> list[ReportBatch]:
        """The batches that were posted to a gateway."""
        return [ReportBatch.FromString(body) for body in self.posted]

    @property
    def opened(self) -> list[bytes]:
        """The reports in all posts to a relay, opened."""
        posts = map(decode_post, self.posted)
        return [r for label, sealed in posts for r in crowds.opened(sealed, label, PRIVATE)]
