"""Shuffles closed crowds, and posts their parts to the service until each is acknowledged."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path

from producers.http.gateway_answers import GatewayAnswer, asked_pause, explain, pause, problem_of
from producers.http.gateway_client import GatewayClient
from producers.relay.crowd_folder import CrowdFolder

logger = logging.getLogger("producers")

SEALED_TYPE = "application/octet-stream"
ACCEPTED_STATUS, REFUSED_STATUS = 202, 400
TURN_SECONDS = 1.0
"""The time between two checks for closed crowds, and for their parts."""
RETRY_SECONDS = 60.0
"""The time until a crowd that could not be shuffled is tried again."""
ANSWER_SECONDS = 300.0
"""The time for each step of a post: the service opens a part's reports before it answers."""


class ServiceClient(GatewayClient):
    """Sends requests to the service; the token is read from its file for each post."""

    server = "service"
    posts_path = "/v1/crowds"
    media_type = SEALED_TYPE

    def __init__(self, url: str, token_file: Path) -> None:
        super().__init__(url, timeout=ANSWER_SECONDS)
        self._token_file = token_file
        self._read_token()

    def post(self, payload: bytes) -> GatewayAnswer:
        """Post a part, with the token that the file has now; raise OSError if there is no file."""
        self._read_token()
        return super().post(payload)

    def _read_token(self) -> None:
        self.set_token(self._token_file.read_text(encoding="utf-8").strip())


class Forwarder:
    """Shuffles closed crowds in one thread, and posts their parts in another.

    Attributes
    ----------
    folder : CrowdFolder
        The folder with the crowds.
    failure : str
        Why the last post was not acknowledged; empty if it was.
    unshuffled : str
        Why closed crowds could not be shuffled and are tried again; empty if there are none.
    """

    def __init__(self, client: ServiceClient, folder: CrowdFolder) -> None:
        self.folder, self._client = folder, client
        self.failure = self.unshuffled = ""
        self._failures, self._is_stopping = 0, threading.Event()
        self._threads = [
            threading.Thread(target=self._repeat, args=[turn], name="dither-crowds", daemon=True)
            for turn in (self._shuffle_closed, self._post_next)
        ]

    def start(self) -> None:
        """Begin to shuffle and to post."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Stop both threads, and abort a post under way; crowds and parts stay in their files."""
        self._is_stopping.set()
        self._client.abort()
        for thread in self._threads:
            thread.join()
        self._client.close()

    def _repeat(self, turn: Callable[[], float]) -> None:
        """Call `turn` until the forwarder stops; wait between calls for the returned seconds."""
        seconds = 0.0
        while not self._is_stopping.wait(seconds):
            seconds = turn()

    def _shuffle_closed(self) -> float:
        faults = []
        try:
            for name in self.folder.closing():
                try:
                    self.folder.shuffle(name)
                except Exception as error:  # other crowds are shuffled nevertheless
                    faults.append(f"a closed crowd is not yet posted: {error}")
        except OSError as error:
            faults.append(f"closed crowds cannot be read: {error}")
        self.unshuffled = "; ".join(faults)
        if faults:
            logger.error("%s", self.unshuffled)
        return RETRY_SECONDS if faults else TURN_SECONDS

    def _post_next(self) -> float:
        """Post a part, and remove it if the service has it or refuses it for good."""
        asked, metric = None, "a crowd"
        try:
            if not (parts := self.folder.parts()):
                return TURN_SECONDS
            path, terms = list(parts.items())[self._failures % len(parts)]
            metric, (body, reports) = terms.label.metric, self.folder.read_part(path, terms)
            answer = self._client.post(body)
            self.failure, asked = explain(answer), asked_pause(answer.retry_after, time.time())
            is_refused = answer.status == REFUSED_STATUS and bool(problem_of(answer))
            if is_refused or answer.status == ACCEPTED_STATUS:
                if is_refused:
                    logger.error(
                        "the service refused %d reports of %s for good, and they are dropped: %s",
                        reports,
                        metric,
                        self.failure,
                    )
                path.unlink()
                self.folder.reports[metric, "refused" if is_refused else "delivered"] += reports
                self._failures, self.failure = 0, ""
                return 0.0
        except Exception as error:  # the part stays, and is posted again
            self.failure = str(error) or repr(error)
        if not self._is_stopping.is_set():
            logger.warning("a part of %s is posted again: %s", metric, self.failure)
        self._failures += 1
        return pause(self._failures, asked)
