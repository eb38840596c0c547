"""The demo's relay, a separate process, and the flights that report through it."""

from __future__ import annotations

import os
import sys
import threading
import time
from http import HTTPStatus
from pathlib import Path

import numpy as np

from aggregator.config.settings import Settings
from aggregator.errors import DitherError
from aggregator.local.child_process import Child
from aggregator.local.deployment import (
    LEAVE_SECONDS,
    LOOPBACK_HOST,
    ORPHAN_SECONDS,
    free_port,
    wait_until_listening,
)
from aggregator.malloc_settings import MALLOC_VARIABLES
from aggregator.web.http.tokens import hash_token, new_token
from estimators import LocalMetric, Metric
from estimators.estimate import Floats
from producers.http.gateway_answers import explain
from producers.http.relay_client import RelayClient, sealed_post
from producers.populations.truth import RunningTruth, Truth

CROWD_FLIGHTS = 1_000
"""The most flights that report in a pane; each of them posts by itself."""
CLOSING_SECONDS = 1.0
"""The time at the end of a pane in which no flight begins to post."""


class DemoRelay:
    """Flights that report through a relay at the present time, with a crowd in each pane.

    A relay closes crowds by its clock, so their reports cannot have the event times of the flights.

    Parameters
    ----------
    metric : Metric
        The metric that the flights report; it must have a crowd.
    settings : Settings
        The deployment's settings; they get the key that opens crowds, and the relay's token.
    folder : Path
        The folder for the secrets and for the relay's reports.

    Attributes
    ----------
    reports : int
        The number of reports in crowds that are large enough.
    truths : list of Truth
        The truth after each crowd.
    """

    def __init__(self, metric: Metric, settings: Settings, folder: Path) -> None:
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

        self.metric, self._settings, self._folder = LocalMetric.require(metric), settings, folder
        private_key = X25519PrivateKey.generate()
        self._public_key = private_key.public_key().public_bytes_raw()
        settings.gateway.crowd_keys = self._write("key", private_key.private_bytes_raw().hex())
        self._token_file = self._write("token", token := new_token())
        settings.access.tokens["relay"] = f"{hash_token(token)} relay"
        self._port = free_port()
        self._client = RelayClient(f"http://{LOOPBACK_HOST}:{self._port}")
        self._truth = RunningTruth(metric)
        self.reports, self.truths = 0, list[Truth]()

    def __enter__(self) -> DemoRelay:
        options = {
            "--listen": f"{LOOPBACK_HOST}:{self._port}",
            "--to": f"http://{LOOPBACK_HOST}:{self._settings.serve.port}",
            "--token-file": self._token_file,
            "--metrics": self._settings.metrics,
            "--key": self._public_key.hex(),
            "--folder": str(self._folder / "relay"),
            "--config": os.devnull,
            "--set": "gateway.rate_limit=",
            "--log-level": "error",
        }
        line = [sys.executable, "-m", "aggregator", "relay"]
        line += [word for option in options.items() for word in option]
        env = {k: v for k, v in os.environ.items() if not k.startswith("DITHER_")}
        name = "the relay, `dither relay`,"
        self._child = Child(name, line, ORPHAN_SECONDS, {**MALLOC_VARIABLES, **env})
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Stop the relay's process."""
        self._client.close()
        self._child.stop(LEAVE_SECONDS)

    def report(self, values: Floats, stop: threading.Event) -> None:
        """Let flights with these values report, a crowd in each pane, until `stop` is set.

        Raises DitherError if the relay does not take a report.
        """
        assert self.metric.crowd is not None  # noqa: S101
        pane_seconds = self.metric.pane_ms / 1000
        silent = f"the relay does not answer at {self._client.url}"
        wait_until_listening(self._port, self._check, silent)
        while values.size and not stop.wait(pane_seconds - time.time() % pane_seconds):
            accepted = self._fill_pane(values[:CROWD_FLIGHTS], stop)
            if accepted.size >= self.metric.crowd.minimum:
                self._truth.add(accepted, np.zeros(accepted.size, dtype=np.intp))
                self.reports += accepted.size
                self.truths.append(self._truth.now())
            values = values[CROWD_FLIGHTS:]

    def _fill_pane(self, values: Floats, stop: threading.Event) -> Floats:
        """Post reports in the pane that has just begun; return the values of the accepted ones."""
        start_ms = self.metric.pane_start(round(time.time() * 1000))
        end = (start_ms + self.metric.pane_ms) / 1000 - CLOSING_SECONDS
        reports = self.metric.randomize(values, np.zeros(values.size, dtype=np.intp))
        for number in range(values.size):
            if stop.is_set() or time.time() > end:
                return values[:number]
            report = self.metric.randomizer.encode(reports[number : number + 1])
            post = sealed_post(self.metric, start_ms, report, self._public_key)
            answer = self._client.post(post)
            if answer.status != HTTPStatus.ACCEPTED:
                raise DitherError(f"the relay has refused a report: {explain(answer)}")
        return values

    def _check(self) -> None:
        if end := self._child.describe_end():
            raise DitherError(end)

    def _write(self, name: str, secret: str) -> str:
        """Write a secret to a file that only this user can read; return its path."""
        file = self._folder / name
        file.touch(0o600)
        file.write_text(f"{secret}\n")
        return str(file)
