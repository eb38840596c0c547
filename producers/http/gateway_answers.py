"""Says what a gateway's answer means for the posted batch, and how long to wait after it."""

from __future__ import annotations

import email.utils
import enum
import random
from typing import Any, NamedTuple

from producers.wire.decoding import decode_json

ACCEPTED_STATUS = 202
REFUSED_STATUSES = (400, 413, 422)
SEALED_REFUSED_STATUSES = (400, 409, 410, 413, 415)
"""Statuses that refuse a sealed report for good: it cannot be sealed again under another label."""
OF_ALL = (401, 408, 429, 503)
"""Statuses that do not depend on the batch: a gateway answers any batch with them."""
FIRST_PAUSE = 1.0
LAST_PAUSE = 60.0
LONGEST_PAUSE = 3600.0
"""If a server asks for a longer pause, it is asked again after this many seconds."""
_PROBLEM_TYPE = "application/problem+json"
_random = random.SystemRandom()


class GatewayAnswer(NamedTuple):
    """A gateway's answer; `retry_after` and `location` are headers, "" if the answer lacks them."""

    status: int
    media_type: str
    retry_after: str
    location: str
    body: bytes


class Verdict(enum.Enum):
    """What an answer means for the posted batch."""

    ACCEPTED = "accepted"
    """Kafka has the batch."""
    AGAIN = "again"
    """The batch is posted again, unchanged; other batches wait, too."""
    FAILED = "failed"
    """The batch is posted again, unchanged; other batches need not wait."""
    REFUSED = "refused"
    """The batch can never be counted."""


def verdict(answer: GatewayAnswer, key: bytes) -> Verdict:
    """Return what becomes of the batch with this id; for a sealed report the id is b"".

    Only an answer in the form of gateways and relays counts. Any other answer, such as that of a
    proxy or a login page, counts as no answer, and the batch is posted again.

    Examples
    --------
    >>> told = b'{"batch_id": "%b", "reports": 1}' % b"07".ljust(32, b"0")
    >>> key = bytes([7]).ljust(16, bytes(1))
    >>> verdict(GatewayAnswer(202, "application/json", "", "", told), key)
    <Verdict.ACCEPTED: 'accepted'>
    >>> verdict(GatewayAnswer(200, "text/html", "", "", b"<html>Log in"), key)
    <Verdict.AGAIN: 'again'>
    >>> verdict(GatewayAnswer(202, "", "", "", b'{"status": "accepted"}'), b"")
    <Verdict.ACCEPTED: 'accepted'>
    """
    field, text = ("batch_id", key.hex()) if key else ("status", "accepted")
    if answer.status == ACCEPTED_STATUS and _json(answer).get(field) == text:
        return Verdict.ACCEPTED
    refused = REFUSED_STATUSES if key else SEALED_REFUSED_STATUSES
    if answer.status in refused and problem_of(answer):
        return Verdict.REFUSED
    is_own = answer.status >= 400 and answer.status not in OF_ALL and not answer.retry_after
    return Verdict.FAILED if is_own else Verdict.AGAIN


def problem_of(answer: GatewayAnswer) -> dict[str, str]:
    """Return the texts of a problem (RFC 9457); {} if the answer is not a problem."""
    if answer.media_type != _PROBLEM_TYPE:
        return {}
    return {key: text for key, text in _json(answer).items() if isinstance(text, str)}


def explain(answer: GatewayAnswer) -> str:
    """Return an unsuccessful answer as a line of text."""
    problem = problem_of(answer)
    words = [str(answer.status), problem.get("detail", ""), problem.get("remedy", "")]
    if 300 <= answer.status < 400:
        words.append(f"redirected to {answer.location[:200]!r}: use the address it leads to")
    elif not problem:
        words.append("another HTTP server or a proxy says so: check the gateway's address")
    return ": ".join(word for word in words if word)[:1000]


def asked_pause(retry_after: str, now: float) -> float | None:
    """Return the seconds that a Retry-After header asks for at `now` (Unix time); None if invalid.

    Examples
    --------
    >>> asked_pause("120", 0), asked_pause("Thu, 01 Jan 1970 00:01:00 GMT", 10), asked_pause("", 0)
    (120.0, 50.0, None)
    """
    text = retry_after.strip()
    if text.isascii() and text.isdigit():
        return min(float(text[:12]), LONGEST_PAUSE)
    try:
        date = email.utils.parsedate_to_datetime(text).timestamp()
    except (ValueError, OverflowError):
        return None
    return min(max(date - now, 0.0), LONGEST_PAUSE)


def pause(failures: int, retry_after: float | None, last: float | None = None) -> float:
    """Return the pause after a number of failures in a row, in seconds.

    It doubles from a second to a minute, or to `last`; if the gateway asks for a pause, it is that
    pause, but at least a second. Up to a quarter is added at random, so that devices which failed
    together do not retry together. `failures`: the number of failures; `retry_after`: the pause
    that the gateway asks for, in seconds; `last`, optional: the longest doubled pause, in seconds.
    """
    doubled = min(FIRST_PAUSE * 2 ** min(failures - 1, 16), last or LAST_PAUSE)
    shortest = doubled if retry_after is None else max(retry_after, FIRST_PAUSE)
    return shortest * (1 + _random.random() / 4)


def _json(answer: GatewayAnswer) -> dict[str, Any]:
    try:
        return decode_json(answer.body, dict[str, Any])
    except ValueError:
        return {}
