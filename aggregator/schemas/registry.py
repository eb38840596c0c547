"""The HTTP interface that Confluent's schema registry, Karapace and Apicurio have in common."""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import urllib.error
import urllib.parse
import urllib.request
from typing import Any, Self

from aggregator.config.settings import Schemas
from aggregator.errors import DitherError
from aggregator.schemas.subjects import Subject
from producers.wire.decoding import decode_json

CONTENT = "application/vnd.schemaregistry.v1+json"
ANSWER_SECONDS = 30.0
MOST_BYTES = 16_777_216
"""Of an answer: it may repeat the schema."""
NOT_FOUND, CONFLICT = 404, 409
NO_SUBJECT, NO_SCHEMA = 40401, 40403
SHOWN = 1_000
"""Characters of a registry's answer that an error shows."""


class RegistryError(DitherError):
    """A schema registry did not do what it was asked; the message says what to do.

    Parameters
    ----------
    message : str
    status : int
        Of HTTP; 0 where there was no answer.
    code : int
        The registry's own.
    """

    def __init__(self, message: str, status: int = 0, code: int = 0) -> None:
        super().__init__(message)
        self.status, self.code = status, code


class Registry:
    """A schema registry.

    Parameters
    ----------
    url : str
        Of its Confluent-compatible interface.
    authorization : str
        The header; empty without one.
    tls : SSLContext, optional
        For another authority than the system's.
    """

    def __init__(
        self, url: str, authorization: str = "", tls: ssl.SSLContext | None = None
    ) -> None:
        self.url = url.rstrip("/")
        self._headers = {"Content-Type": CONTENT, "Accept": f"{CONTENT}, application/json"}
        if authorization:
            self._headers["Authorization"] = authorization
        handlers: list[Any] = [_NoRedirect]
        if tls is not None:
            handlers.append(urllib.request.HTTPSHandler(context=tls))
        self._opener = urllib.request.build_opener(*handlers)

    @classmethod
    def of(cls, settings: Schemas) -> Self:
        """Return the registry of a deployment's settings.

        Raises
        ------
        DitherError
            If there is none, or its settings cannot be used.
        """
        if not settings.url:
            raise DitherError(
                "schemas.url is not set: expected the address of a schema registry, as in "
                "--set schemas.url=http://localhost:8081"
            )
        if settings.token and (settings.user or settings.password):
            raise DitherError("schemas.token and schemas.user are both set: expected one of them")
        if settings.password and not settings.user:
            raise DitherError("schemas.password is set, and schemas.user is not: expected both")
        authorization = ""
        if settings.token:
            authorization = f"Bearer {settings.token}"
        elif settings.user:
            known = f"{settings.user}:{settings.password}".encode()
            authorization = f"Basic {base64.b64encode(known).decode()}"
        tls = None
        if settings.ca:
            try:
                tls = ssl.create_default_context(cafile=settings.ca)
            except (OSError, ssl.SSLError) as error:
                raise DitherError(
                    f"schemas.ca = {settings.ca!r}: expected a PEM file with certificates ({error})"
                ) from None
        return cls(settings.url, authorization, tls)

    def lookup(self, subject: Subject) -> tuple[bool, int | None]:
        """Return whether there is such a subject, and the id of the schema if it has it.

        Raises
        ------
        RegistryError
            If the registry does not answer, or refuses.
        """
        try:
            return True, _id(self._post(f"/subjects/{_quoted(subject)}", _body(subject)))
        except RegistryError as error:
            if error.status == NOT_FOUND and error.code in (NO_SUBJECT, NO_SCHEMA):
                return error.code == NO_SCHEMA, None
            raise

    def conflicts(self, subject: Subject) -> list[str]:
        """Return why this schema is not compatible with the subject's newest; empty if it is.

        Raises
        ------
        RegistryError
            If the registry does not answer, or refuses.
        """
        path = f"/compatibility/subjects/{_quoted(subject)}/versions/latest?verbose=true"
        found = self._post(path, _body(subject))
        if found.get("is_compatible") is True:
            return []
        messages = found.get("messages")
        told = [str(one) for one in messages] if isinstance(messages, list) else []
        return told or ["the registry does not say why"]

    def register(self, subject: Subject) -> int:
        """Register a schema, unless it is registered; return its id.

        Raises
        ------
        RegistryError
            If the registry does not answer, or refuses.
        """
        return _id(self._post(f"/subjects/{_quoted(subject)}/versions", _body(subject)))

    def _post(self, path: str, body: bytes) -> dict[str, Any]:
        request = urllib.request.Request(  # noqa: S310  settings allow http and https alone
            self.url + path, body, self._headers, method="POST"
        )
        try:
            with self._opener.open(request, timeout=ANSWER_SECONDS) as answer:
                told = answer.read(MOST_BYTES)
        except urllib.error.HTTPError as error:
            raise self._refused(error) from None
        except (OSError, http.client.HTTPException) as error:
            why = getattr(error, "reason", error)
            raise RegistryError(
                f"the schema registry at {self.url} does not answer: {why}. Check schemas.url, the "
                "network and the registry"
            ) from None
        try:
            return decode_json(told, dict[str, Any])
        except ValueError:
            raise RegistryError(
                f"{self.url}{path} answered {told[:100]!r}: expected a JSON object. schemas.url "
                "must be that of the Confluent-compatible interface (Apicurio: .../apis/ccompat/v7)"
            ) from None

    def _refused(self, error: urllib.error.HTTPError) -> RegistryError:
        with error:
            told = error.read(MOST_BYTES)
        try:
            found = decode_json(told, dict[str, Any])
            code, message = int(found["error_code"]), str(found["message"])
        except (ValueError, KeyError, TypeError):
            code, message = 0, told.decode(errors="replace").strip() or error.reason
        remedy = {
            401: "Check schemas.user and schemas.password, or schemas.token",
            403: "Check the rights of the user of schemas.user or schemas.token",
            NOT_FOUND: "Check that schemas.url is that of the Confluent-compatible interface",
            CONFLICT: "`dither schemas --check` says why; the compatibility level of the subject "
            "decides what it takes",
        }.get(error.code, "See the registry's log")
        shown = "".join(c if c.isprintable() else " " for c in message[:SHOWN])
        return RegistryError(
            f"the schema registry at {self.url} answered {error.code}: {shown}. {remedy}",
            error.code,
            code,
        )


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Sends a password to no other place than the settings name."""

    def redirect_request(self, *_: Any) -> None:
        """Refuse: the answer is then an error that names its status."""


def _quoted(subject: Subject) -> str:
    return urllib.parse.quote(subject.name, safe="")


def _body(subject: Subject) -> bytes:
    return json.dumps({"schemaType": subject.kind, "schema": subject.schema}).encode()


def _id(found: dict[str, Any]) -> int:
    number = found.get("id")
    if type(number) is not int:
        raise RegistryError(f"the schema registry answered {found!r:.200}: expected an id")
    return number
