"""Posts the parts of closed crowds to the service until each is acknowledged."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from producers.http.answers import GatewayAnswer, asked_pause, explain, pause, problem_of
from producers.http.gateway_client import GatewayClient
from producers.relay.crowd_folder import CrowdPart

logger = logging.getLogger("producers")

SEALED_TYPE = "application/octet-stream"
ACCEPTED_STATUS, REFUSED_STATUS = 202, 400
ANSWER_SECONDS = 300.0
"""For each step of a post: the service opens a part's reports before it answers."""


class ServiceClient(GatewayClient):
    """Requests to the service's server; its token's file is read for each post."""

    server = "service"
    posts_path = "/v1/crowds"
    media_type = SEALED_TYPE

    def __init__(self, url: str, token_file: Path) -> None:
        super().__init__(url, timeout=ANSWER_SECONDS)
        self._token_file = token_file
        self._read_token()

    def post(self, payload: bytes) -> GatewayAnswer:
        """Post a part, with the token that its file has now; OSError without one."""
        self._read_token()
        return super().post(payload)

    def _read_token(self) -> None:
        self.set_token(self._token_file.read_text(encoding="utf-8").strip())


class Forwarder:
    """Posts parts in a thread of its own; other threads add them.

    Attributes
    ----------
    outcomes : Counter
        Of reports, by the metric and ``delivered`` or ``refused``.
    failure : str
        Why the last post was not acknowledged; empty if it was.
    """

    def __init__(self, client: ServiceClient, parts: Iterable[CrowdPart] = ()) -> None:
        self._client, self._parts = client, {part.path: part for part in parts}
        self.outcomes: Counter[tuple[str, str]] = Counter()
        self.failure = ""
        self._failures = 0
        self._changed, self._is_stopping = threading.Condition(), False
        self._thread = threading.Thread(target=self._run, name="dither-crowds", daemon=True)

    @property
    def parts(self) -> list[CrowdPart]:
        """The parts that are not acknowledged."""
        with self._changed:
            return list(self._parts.values())

    def start(self) -> None:
        """Begin to post."""
        self._thread.start()

    def add(self, parts: Iterable[CrowdPart]) -> None:
        """Add parts; they are posted soon."""
        with self._changed:
            self._parts |= {part.path: part for part in parts}
            self._changed.notify()

    def stop(self) -> None:
        """Stop, also a post under way; the parts stay in their files."""
        with self._changed:
            self._is_stopping = True
            self._changed.notify()
        self._client.abort()
        self._thread.join()
        self._client.close()

    def _run(self) -> None:
        while not self._is_stopping:
            for part in self.parts:
                seconds = self._post(part)
                with self._changed:
                    if self._changed.wait_for(lambda: self._is_stopping, seconds):
                        return
            with self._changed:
                self._changed.wait_for(lambda: self._parts or self._is_stopping)

    def _post(self, part: CrowdPart) -> float:
        """Post a part, and forget it if the service has it; return the pause until the next."""
        asked = None
        try:
            answer = self._client.post(part.body())
            self.failure, asked = explain(answer), asked_pause(answer.retry_after, time.time())
            if answer.status == ACCEPTED_STATUS:
                return self._settle(part, "delivered")
            if answer.status == REFUSED_STATUS and problem_of(answer):
                logger.error(
                    "the service refused %d reports of %s for good, and they are dropped: %s",
                    part.reports,
                    part.metric,
                    self.failure,
                )
                return self._settle(part, "refused")
        except Exception as error:  # whatever it is: the part stays, and is posted again
            self.failure = str(error) or repr(error)
        if not self._is_stopping:
            logger.warning("a part of %s is posted again: %s", part.metric, self.failure)
        self._failures += 1
        return pause(self._failures, asked)

    def _settle(self, part: CrowdPart, outcome: str) -> float:
        part.path.unlink()
        with self._changed:
            del self._parts[part.path]
        self.outcomes[part.metric, outcome] += part.reports
        self._failures, self.failure = 0, ""
        return 0.0
