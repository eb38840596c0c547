"""A relay, or a gateway, that records what reaches it and answers as a test tells it to."""

import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from aggregator.reading.serialization import definition
from estimators import LocalMetric
from producers.sealing import decode_post
from producers.wire.reports_pb2 import ReportBatch
from tests.support.reports import crowds

PRIVATE = "07" * 32
KEY, OTHER_KEY = (crowds.public(private).hex() for private in (PRIVATE, "08" * 32))


class ScriptedServer:
    """It serves definitions and a key; to posts it gives the answers that are left, in order."""

    def __init__(self, *metrics: LocalMetric) -> None:
        self.definitions = {each.name: msgspec.json.encode(definition(each)) for each in metrics}
        self.key, self.url = KEY, ""
        self.asked: list[str] = []
        self.posted: list[bytes] = []
        self.headers: list[dict[str, str]] = []
        self.answers: list[Response] = []

    def route(self, prefix: str = "") -> Route:
        """Return the route below a prefix."""
        return Route(prefix + "/v1/{path:path}", self.answer, methods=["GET", "POST"])

    async def answer(self, request: Request) -> Response:
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
        if self.answers:
            return self.answers.pop(0)
        if path == "sealed":
            return JSONResponse({"status": "accepted"}, 202)
        batch = ReportBatch.FromString(self.posted[-1])
        return JSONResponse({"batch_id": batch.batch_id.hex()}, 202)

    @property
    def opened(self) -> list[bytes]:
        """The reports that were posted to a relay."""
        posts = map(decode_post, self.posted)
        return [r for label, sealed in posts for r in crowds.opened(sealed, label, PRIVATE)]
