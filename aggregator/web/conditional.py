"""Conditional requests, which avoid computing an unchanged answer again."""

from __future__ import annotations

import hashlib
from importlib.metadata import version
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from aggregator.reading.frames.frame import Frame
from aggregator.web.operations import as_json, as_table


def etag(*facts: Any) -> str:
    """Return a weak entity tag made of the facts that determine an answer."""
    text = repr((version("dither"), facts))
    return f'W/"{hashlib.blake2b(text.encode(), digest_size=12).hexdigest()}"'


def revalidation_headers(tag: str) -> dict[str, str]:
    """Return the headers of an answer that clients must revalidate."""
    return {"ETag": tag, "Cache-Control": "no-cache"}


def not_modified(request: Request, tag: str) -> Response | None:
    """Return a response with status 304 if the client already has the answer with this tag."""
    client_tags = request.headers.get("if-none-match", "")
    tags = {part.strip().removeprefix("W/") for part in client_tags.split(",")}
    is_current = "*" in tags or tag.removeprefix("W/") in tags
    return Response(status_code=304, headers=revalidation_headers(tag)) if is_current else None


def respond(value: Any, tag: str) -> Response:
    """Return a response with a value as JSON and its entity tag."""
    return as_json(value, headers=revalidation_headers(tag))


def respond_with_table(table: Frame, tag: str, name: str) -> Response:
    """Return a response with a table as CSV and its entity tag.

    `table`: the table; `tag`: the entity tag of the answer; `name`: the name of the file, without
    its suffix.
    """
    return as_table(table, name, headers=revalidation_headers(tag))


def respond_unless_known(request: Request, value: Any) -> Response:
    """Return a response with a value and its tag; with status 304 if the client has the value."""
    tag = etag(hashlib.blake2b(msgspec.json.encode(value)).hexdigest())
    return not_modified(request, tag) or respond(value, tag)
