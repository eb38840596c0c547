"""The relay of crowds: a device's posts to it, and its answers about metrics and its key."""

from __future__ import annotations

import http.client
import ssl
from collections.abc import Callable

from estimators.limits import LARGEST_ANSWER
from estimators.metrics.metric import Metric
from producers.http.definitions import GatewayDefinitions
from producers.http.gateway_client import GatewayClient
from producers.http.posting_thread import Background, Failure
from producers.http.queue_file import QueueFile
from producers.http.report_queue import ReportQueue
from producers.ledger.past_answers import DefinitionChanged
from producers.sealing import CrowdLabel, encode_post, key_hash, read_public_key, seal
from producers.wire.decoding import decode_json


class RelayClient(GatewayClient):
    """Sends requests to a relay, without a token."""

    server = "relay"
    posts_path = "/v1/sealed"
    media_type = "application/octet-stream"

    def get_key(self) -> str:
        """Return the public key that the relay names, in hexadecimal digits.

        Raises GatewayError if the relay does not answer, or its answer has no key.
        """
        body = self.get_path("/v1/key", LARGEST_ANSWER)
        try:
            return decode_json(body, dict[str, str])["key"]
        except (ValueError, KeyError):
            self.close()
            problem = f"GET /v1/key: {body[:80]!r}: expected a key's digits, as JSON"
            raise self.error(problem, http.client.OK) from None


class RelayDefinitions(GatewayDefinitions):
    """The definitions for which a relay collects reports; its key must be the application's."""

    prefix = "relay "

    def __init__(self, file: QueueFile, client: RelayClient, relay: Relay) -> None:
        super().__init__(file, client)
        self._asking, self._relay = client, relay

    def fetch(self, name: str) -> Metric:
        """Fetch the relay's definition of a name, store it, and return it.

        Raises
        ------
        GatewayError
            If the relay does not answer, or its answer cannot be used.
        DefinitionChanged
            If the application has, or the file stores, a definition with another meaning, or the
            relay's key is not the application's.
        """
        if (key := self._asking.get_key()).lower() != self._relay.public_key.hex():
            raise DefinitionChanged(
                name,
                f"relay {self._asking.url} collects {name!r} for key {key!r:.80}: expected the "
                "application's own. Ship the application with the new key, if its owner confirms "
                "it; nothing was reported",
            )
        metric = super().fetch(name)
        if self._relay.application.get(name, metric).fingerprint != metric.fingerprint:
            raise DefinitionChanged(name)
        return metric


class Relay:
    """The relay of crowds: its key, its definitions, and the thread that posts to it.

    Parameters
    ----------
    url, key, tls, timeout
        As for :class:`HttpConnection`.

    Attributes
    ----------
    public_key : bytes
        The service's key, for which reports are sealed.
    application : dict of str to Metric
        The definitions that are part of the application, by name.
    """

    definitions: RelayDefinitions
    background: Background

    def __init__(self, url: str, key: str, tls: ssl.SSLContext | None, timeout: float) -> None:
        self.public_key, self.application = read_public_key(key), dict[str, Metric]()
        self.url, self._tls, self._timeout = url, tls, timeout
        self._asking = self._client()

    def _client(self) -> RelayClient:
        return RelayClient(self.url, None, self._tls, self._timeout)

    def open_queue(self, queue: ReportQueue, on_failure: Callable[[Failure], object]) -> None:
        """Begin to post the sealed reports of a queue."""
        client = self._client()
        self.definitions = RelayDefinitions(queue.file, self._asking, self)
        definitions = RelayDefinitions(queue.file, client, self)
        self.background = Background(queue, client, definitions, on_failure, sealed=True)

    def stop(self, deadline: float) -> None:
        """End the thread; abort a request that is under way at the deadline (monotonic seconds)."""
        self.background.stop(deadline)
        self._asking.close()


def sealed_post(metric: Metric, pane_start_ms: int, report: bytes, public_key: bytes) -> bytes:
    """Return the bytes in which a report is stored and posted: sealed, with its label.

    `metric`: the metric; `pane_start_ms`: the start of the report's pane, in ms since the epoch;
    `report`: the randomized report, as bytes; `public_key`: the service's key.
    """
    label = CrowdLabel(key_hash(public_key), metric.fingerprint, pane_start_ms, metric.name)
    return encode_post(label, seal(report, label, public_key))
