"""What `dither schemas` says where the registry refuses, and what it sends for access."""

import base64
import contextlib
import json
from collections.abc import AsyncIterator, Iterator

import pytest
from click.testing import CliRunner
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from aggregator.cli.main import cli
from aggregator.config.settings import Schemas
from aggregator.errors import DitherError
from aggregator.schemas.schema_registry import SchemaRegistry
from tests.support.rows import row
from tests.support.running.served_application import served_plainly

BEARER = {"DITHER_SCHEMAS_TOKEN": "t0ken"}
A, B = "a", "b"


@contextlib.contextmanager
def answering(status: int, body: bytes, **headers: str) -> Iterator[tuple[str, list[str]]]:
    """Answer every request so; yield the address, and the requests' headers for access.

    The connection ends within an empty body.
    """
    seen: list[str] = []

    async def cut() -> AsyncIterator[bytes]:
        yield b"?"
        raise ConnectionError

    async def answer(request: Request) -> Response:
        seen.append(request.headers.get("Authorization", ""))
        return Response(body, status, headers) if body else StreamingResponse(cut(), status)

    with served_plainly(Starlette(routes=[Route("/{path:path}", answer, methods=["POST"])])) as url:
        yield url, seen


def told(url: str, *words: str, **environ: str) -> tuple[int, str]:
    """Run the command; return its status and what it said."""
    ran = CliRunner().invoke(cli, ["schemas", "--set", f"schemas.url={url}", *words], env=environ)
    if not isinstance(ran.exception, DitherError | SystemExit | None):
        raise ran.exception
    return ran.exit_code, f"{ran.output}{ran.exception or ''}"


def test_access_is_as_the_settings_say() -> None:
    basic = "Basic " + base64.b64encode("app:pä:ss".encode()).decode()
    named = {"DITHER_SCHEMAS_USER": "app", "DITHER_SCHEMAS_PASSWORD": "pä:ss"}
    rows: list[tuple[dict[str, str], str]] = [({}, ""), (BEARER, "Bearer t0ken"), (named, basic)]
    for settings, sent in rows:
        with answering(200, b'{"id": 7}') as (url, seen):
            status, said = told(url, "--json", **settings)
        assert status == 0, said
        assert {one["id"] for one in json.loads(said)["schemas"]} == {7}
        assert seen == [sent] * 3


def test_a_refusal_says_what_to_do() -> None:
    for status, body, said in (
        (401, b'{"error_code": 401, "message": "who"}', "answered 401: who. Check schemas.user"),
        (404, b"<html>", "schemas.url is that of the Confluent-compatible interface"),
        (409, b'{"error_code": 409, "message": "no\\u001b[2J"}', "dither schemas --check"),
        (422, b'{"error_code": 42201, "message": "bad"}', "answered 422: bad"),
        (200, b"<html>", "expected a JSON object"),
        (500, b"", "answered 500: Internal Server Error"),
        (200, b'{"id": "7"}', "expected an id"),
        (200, b"[7]", "expected a JSON object"),
    ):
        with answering(status, body) as (url, _):
            code, found = told(url)
        with row(status, body):
            assert code == 1
            assert said in found
            assert "\x1b" not in found
            assert "Traceback" not in found


def test_a_password_is_sent_nowhere_else() -> None:
    with answering(200, b'{"id": 7}') as (other, seen):
        with answering(307, b" ", Location=other) as (url, _):
            code, found = told(url, **BEARER)
        assert code == 1
        assert "answered 307" in found
        assert not seen
    assert "t0ken" not in found
    code, found = told("http://app:hunter2@localhost")
    assert (code, "hunter2" in found) == (1, False)


def test_settings_that_cannot_be_used_are_told() -> None:
    for settings, said in (
        (Schemas(), "schemas.url is not set"),
        (Schemas(url="http://x", token=A, user=B), "expected one of them"),
        (Schemas(url="http://x", password=A), "expected both"),
        (Schemas(url="https://x", ca="/no/such/file"), "expected a PEM file"),
    ):
        with row(said), pytest.raises(DitherError, match=said):
            SchemaRegistry(settings)
