"""An operation of the HTTP interface: its handler and its description, in one place."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Awaitable, Callable, Mapping
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
    """A body.

    Attributes
    ----------
    described : str
    schema : struct, optional
        What it has in JSON.
    or_schema : struct, optional
        What else it may have.
    is_table : bool
        Whether it is also there as a table, in CSV.
    media : tuple of str
    plain : mapping
        The schema where there is no struct.
    binary : tuple of str
        Further media types, of bytes.
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
        """The structs that it may have."""
        return [schema for schema in (self.schema, self.or_schema) if schema is not None]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Operation:
    """The operation of one method on one path.

    Attributes
    ----------
    method, path, summary : str
    scopes : tuple of str
        Scopes, any one of which grants access; empty means public.
    query : struct, optional
        The parameters after the question mark.
    headers : mapping of str to str
        Of the request, and what they say.
    body : Content, optional
        Of the request.
    answers : mapping of int to Content
        By status.
    conditional : bool
        Whether it answers 304 to a client that has the answer.
    problems : tuple of int
        Statuses of the problems besides those of access.
    handler : callable, optional
        None where another package has the route, and it is only described here.
    """

    method: str
    path: str
    summary: str
    scopes: tuple[str, ...] = ("read",)
    query: type[msgspec.Struct] | None = None
    headers: Mapping[str, str] = dataclasses.field(default_factory=dict)
    body: Content | None = None
    answers: Mapping[int, Content]
    conditional: bool = False
    problems: tuple[int, ...] = ()
    handler: Handler | None = None

    def __call__(self, handler: Handler) -> Operation:
        """Return the operation with its handler: a decorator."""
        return dataclasses.replace(self, handler=handler)

    def route(self, service: Service) -> Route:
        """Return the route that serves it."""
        assert self.handler is not None  # noqa: S101
        endpoint = functools.partial(self.handler, service)
        return Route(self.path, endpoint, methods=[self.method])


def as_table(table: Frame, name: str, headers: Mapping[str, str] | None = None) -> Response:
    """Return a table as a response, in CSV.

    Parameters
    ----------
    table : Frame
    name : str
        That of the file, without its end.
    headers : mapping of str to str, optional
        Besides the content's type, length and name.
    """
    named = {"Content-Disposition": f'attachment; filename="{name}.csv"', **(headers or {})}
    return Response(table.to_csv(), headers=named, media_type=CSV_TYPE)


def as_json(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return a struct, or plain values, as a response.

    Parameters
    ----------
    value : struct, or plain values
        The body.
    status : int
        Of HTTP.
    headers : mapping of str to str, optional
        Besides the content's type and length.
    """
    return Response(msgspec.json.encode(value), status, headers, media_type=JSON_TYPE)
