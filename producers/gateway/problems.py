"""Errors over HTTP as problem details (RFC 9457)."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from starlette.responses import JSONResponse

POST_AGAIN = "post again after the time in Retry-After"
SAME_BATCH = "post the same batch again, with the same batch_id and time: it is counted once"


class Problem(Exception):  # noqa: N818
    """A refused request; the response says why, and what to do.

    Parameters
    ----------
    status : int
        HTTP status.
    detail : str
        What was wrong, with the value and what was expected.
    remedy : str, optional
        What to do.
    retry_after : float, optional
        The seconds after which the client should try again.
    headers : mapping, optional
        Further headers of the response.
    """

    def __init__(
        self,
        status: int,
        detail: str,
        remedy: str = "",
        *,
        retry_after: float | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.status, self.detail, self.remedy = status, detail, remedy
        self.headers = dict(headers or {})
        if retry_after is not None:
            self.headers["Retry-After"] = str(max(1, round(retry_after)))
        super().__init__(detail)

    def response(self, instance: str) -> JSONResponse:
        """Return the response; `instance` is the path of the request."""
        body: dict[str, Any] = {
            "type": "about:blank",
            "title": HTTPStatus(self.status).phrase,
            "status": self.status,
            "detail": self.detail,
            "instance": instance,
        }
        if self.remedy:
            body["remedy"] = self.remedy
        media = "application/problem+json"
        return JSONResponse(body, self.status, self.headers, media_type=media)


def bad_request(detail: str, remedy: str) -> Problem:
    """Return the problem for a request that is wrong, with status 400."""
    return Problem(HTTPStatus.BAD_REQUEST, detail, remedy)


RETRY_SECONDS = 2.0


def unavailable(detail: str, remedy: str, status: int = HTTPStatus.SERVICE_UNAVAILABLE) -> Problem:
    """Return the problem for a post that cannot be sent to Kafka now.

    `detail`, `remedy`: as for :class:`Problem`; `status`: the HTTP status, 504 if Kafka has not
    answered in time.
    """
    return Problem(status, detail, remedy, retry_after=RETRY_SECONDS)
