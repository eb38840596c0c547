"""The HTTP interface that the schema registries of Confluent, Karapace and Apicurio share."""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import ssl
import urllib.error
import urllib.parse
import urllib.request
from typing import Any

from aggregator.config.settings import Schemas
from aggregator.errors import DitherError
from aggregator.schemas.subjects import Subject
from producers.wire.decoding import decode_json

REGISTRY_CONTENT_TYPE = "application/vnd.schemaregistry.v1+json"
ANSWER_SECONDS = 30.0
MAX_ANSWER_BYTES = 16_777_216
"""The most bytes of an answer, which may repeat the schema."""
HTTP_NOT_FOUND, HTTP_CONFLICT = 404, 409
NO_SUBJECT_CODE, NO_SCHEMA_CODE = 40401, 40403
MAX_SHOWN_CHARACTERS = 1_000
"""The most characters of a registry's answer that an error message shows."""


class RegistryError(DitherError):
    """A request to a schema registry failed; the message says what to do.

    Parameters
    ----------
    status : int
        The HTTP status; 0 without an answer.
    code : int
        The registry's error code; 0 without one.
    """

    def __init__(self, message: str, status: int = 0, code: int = 0) -> None:
        super().__init__(message)
        self.status, self.code = status, code


class SchemaRegistry:
    """A client of the schema registry that the settings name.

    Its requests raise :class:`RegistryError`. Raises DitherError if the settings name no registry,
    or cannot be used.
    """

    def __init__(self, settings: Schemas) -> None:
        if not settings.url:
            raise DitherError(
                "schemas.url is not set: expected the address of a schema registry, as in "
                "--set schemas.url=http://localhost:8081"
            )
        if settings.token and (settings.user or settings.password):
            raise DitherError("schemas.token and schemas.user are both set: expected one of them")
        if settings.password and not settings.user:
            raise DitherError("schemas.password is set, and schemas.user is not: expected both")
        self.url = settings.url.rstrip("/")
        self._headers = {
            "Content-Type": REGISTRY_CONTENT_TYPE,
            "Accept": f"{REGISTRY_CONTENT_TYPE}, application/json",
        }
        if settings.token:
            self._headers["Authorization"] = f"Bearer {settings.token}"
        elif settings.user:
            credentials = base64.b64encode(f"{settings.user}:{settings.password}".encode())
            self._headers["Authorization"] = f"Basic {credentials.decode()}"
        handlers: list[Any] = [_NoRedirect]
        if settings.ca:
            try:
                tls = ssl.create_default_context(cafile=settings.ca)
            except (OSError, ssl.SSLError) as error:
                raise DitherError(
                    f"schemas.ca = {settings.ca!r}: expected a PEM file with certificates ({error})"
                ) from None
            handlers.append(urllib.request.HTTPSHandler(context=tls))
        self._opener = urllib.request.build_opener(*handlers)

    def lookup(self, subject: Subject) -> tuple[bool, int | None]:
        """Return whether the subject exists, and the id of this schema in it, or None."""
        try:
            return True, _id(self._post(f"/subjects/{_quoted(subject)}", _body(subject)))
        except RegistryError as error:
            if error.status == HTTP_NOT_FOUND and error.code in (NO_SUBJECT_CODE, NO_SCHEMA_CODE):
                return error.code == NO_SCHEMA_CODE, None
            raise

    def conflicts(self, subject: Subject) -> list[str]:
        """Return the incompatibilities of this schema with the subject's newest version, if any."""
        path = f"/compatibility/subjects/{_quoted(subject)}/versions/latest?verbose=true"
        compatibility = self._post(path, _body(subject))
        if compatibility.get("is_compatible") is True:
            return []
        messages = compatibility.get("messages")
        conflicts = [str(message) for message in messages] if isinstance(messages, list) else []
        return conflicts or ["the registry does not say why"]

    def register(self, subject: Subject) -> int:
        """Register a schema, unless it is registered, and return its id."""
        return _id(self._post(f"/subjects/{_quoted(subject)}/versions", _body(subject)))

    def _post(self, path: str, body: bytes) -> dict[str, Any]:
        request = urllib.request.Request(  # noqa: S310  settings allow http and https alone
            self.url + path, body, self._headers, method="POST"
        )
        try:
            with self._opener.open(request, timeout=ANSWER_SECONDS) as answer:
                answer_bytes = answer.read(MAX_ANSWER_BYTES)
        except urllib.error.HTTPError as error:
            raise self._refused(error) from None
        except (OSError, http.client.HTTPException) as error:
            why = getattr(error, "reason", error)
            raise RegistryError(
                f"the schema registry at {self.url} does not answer: {why}. Check schemas.url, the "
                "network and the registry"
            ) from None
        try:
            return decode_json(answer_bytes, dict[str, Any])
        except ValueError:
            raise RegistryError(
                f"{self.url}{path} answered {answer_bytes[:100]!r}: expected a JSON object. "
                "schemas.url must be that of the Confluent-compatible interface (Apicurio: "
                ".../apis/ccompat/v7)"
            ) from None

    def _refused(self, error: urllib.error.HTTPError) -> RegistryError:
        answer_bytes = b""
        with error, contextlib.suppress(OSError, http.client.HTTPException):  # the status suffices
            answer_bytes = error.read(MAX_ANSWER_BYTES)
        try:
            error_document = decode_json(answer_bytes, dict[str, Any])
            code, message = int(error_document["error_code"]), str(error_document["message"])
        except (ValueError, KeyError, TypeError):
            code, message = 0, answer_bytes.decode(errors="replace").strip() or error.reason
        remedy = {
            401: "Check schemas.user and schemas.password, or schemas.token",
            403: "Check the rights of the user of schemas.user or schemas.token",
            HTTP_NOT_FOUND: "Check that schemas.url is that of the Confluent-compatible interface",
            HTTP_CONFLICT: "`dither schemas --check` says why; the compatibility level of the "
            "subject decides what it takes",
        }.get(error.code, "See the registry's log")
        shown = printable(message[:MAX_SHOWN_CHARACTERS])
        return RegistryError(
            f"the schema registry at {self.url} answered {error.code}: {shown}. {remedy}",
            error.code,
            code,
        )


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Refuses redirects, so that the password is sent only to the host in the settings."""

    def redirect_request(self, *_: Any) -> None:
        """Return None, which turns the redirect into an error with its status."""


def printable(text: str) -> str:
    """Return a registry's text with spaces in place of what cannot be printed."""
    return "".join(c if c.isprintable() else " " for c in text)


def _quoted(subject: Subject) -> str:
    return urllib.parse.quote(subject.name, safe="")


def _body(subject: Subject) -> bytes:
    return json.dumps({"schemaType": subject.kind, "schema": subject.schema}).encode()


def _id(answer: dict[str, Any]) -> int:
    schema_id = answer.get("id")
    if type(schema_id) is not int:
        raise RegistryError(f"the schema registry answered {answer!r:.200}: expected an id")
    return schema_id
