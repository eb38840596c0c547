"""Operations of the HTTP interface, with their handlers and descriptions."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
from collections.abc import Awaitable, Callable, Mapping
from importlib.metadata import version
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from aggregator.reading.frames.frame import Frame
from aggregator.web.service_context import Service

Handler = Callable[[Service, Request], Awaitable[Response]]
JSON_TYPE = "application/json"
CSV_TYPE = "text/csv"


@dataclasses.dataclass(frozen=True)
class Content:
    """The possible contents of the body of a request or an answer.

    Attributes
    ----------
    schema, or_schema : struct, optional
        The structs that the JSON may be.
    is_table : bool
        Whether CSV is also available.
    plain : mapping
        The schema of a body that is not a struct.
    binary : tuple of str
        Binary media types.
    """

    described: str
    schema: Any = None
    media: tuple[str, ...] = (JSON_TYPE,)
    plain: Mapping[str, Any] = dataclasses.field(default_factory=lambda: {"type": "string"})
    binary: tuple[str, ...] = ()
    or_schema: Any = None
    is_table: bool = False

    @property
    def schemas(self) -> list[Any]:
        """The structs of the JSON."""
        return [schema for schema in (self.schema, self.or_schema) if schema is not None]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Operation:
    """The operation of one method on one path.

    Attributes
    ----------
    scopes : tuple of str
        The scopes, each of which grants access; empty for a public operation.
    query : struct, optional
        The query parameters.
    headers : mapping of str to str
        Descriptions of the request's headers.
    body : Content, optional
        The body of the request.
    answers : mapping of int to Content
        The body of the answer with each status.
    conditional : bool
        Whether the answer may have the status 304.
    problems : tuple of int
        Statuses of problems, except those of access control.
    handler : callable, optional
        Called for requests; None if another package serves the route.
    """

    method: str = "GET"
    path: str
    summary: str
    scopes: tuple[str, ...] = ("read",)
    query: type[msgspec.Struct] | None = None
    headers: Mapping[str, str] = dataclasses.field(default_factory=dict)
    body: Content | None = None
    answers: Mapping[int, Content]
    conditional: bool = False
    problems: tuple[int, ...] = (400, 404, 429, 503)
    handler: Handler | None = None

    def __call__(self, handler: Handler) -> Operation:
        """Decorate a handler: return this operation with the handler."""
        return dataclasses.replace(self, handler=handler)

    def route(self, service: Service) -> Route:
        """Return the route that calls the handler with a service."""
        assert self.handler is not None  # noqa: S101
        endpoint = functools.partial(self.handler, service)
        return Route(self.path, endpoint, methods=[self.method])


def as_table(table: Frame, name: str, headers: Mapping[str, str] | None = None) -> Response:
    """Return a response with a table as CSV.

    `table`: the table; `name`: the name of the file, without its suffix; `headers`, optional:
    further headers.
    """
    named = {"Content-Disposition": f'attachment; filename="{name}.csv"', **(headers or {})}
    return Response(table.to_csv(), headers=named, media_type=CSV_TYPE)


def as_json(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return a response with a struct or plain values as JSON.

    `value`: a struct, or plain values; `status`: the HTTP status; `headers`, optional: further
    headers.
    """
    return Response(msgspec.json.encode(value), status, headers, media_type=JSON_TYPE)


def validators(*facts: Any) -> dict[str, str]:
    """Return headers with an entity tag made of the facts that determine an answer."""
    text = repr((version("dither"), facts))
    digest = hashlib.blake2b(text.encode(), digest_size=12).hexdigest()
    return {"ETag": f'W/"{digest}"', "Cache-Control": "no-cache"}


def not_modified(request: Request, headers: Mapping[str, str]) -> Response | None:
    """Return a response with status 304 if the client already has the answer with these headers."""
    client_tags = request.headers.get("if-none-match", "")
    tags = {part.strip().removeprefix("W/") for part in client_tags.split(",")}
    is_current = "*" in tags or headers["ETag"].removeprefix("W/") in tags
    return Response(status_code=304, headers=headers) if is_current else None


def as_json_unless_known(request: Request, value: Any) -> Response:
    """Return a response with a value and its tag; with status 304 if the client has the value."""
    tag = validators(hashlib.blake2b(msgspec.json.encode(value)).hexdigest())
    return not_modified(request, tag) or as_json(value, headers=tag)
