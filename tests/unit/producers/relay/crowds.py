"""A crowd in a folder, and an analyst behind a real HTTP server that records what it gets."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np

from estimators import LocalMetric, define
from producers.relay.crowd_folder import ClosedCrowd, CrowdFolder, CrowdTerms, OpenCrowd
from producers.relay.forwarding import ServiceClient
from producers.sealing import CrowdLabel, decode_crowd, encode_post, key_hash, sealed_size

KEY = bytes(range(32))
PANE_MS, WAIT_MS = 3_600_000, 3_600_000
LATE = define(
    name="late",
    kind="mean",
    mechanism="randomized_response",
    range=(0, 1),
    levels=[3],
    pane="1h",
    lateness="2h",
    crowd={"minimum": 100, "wait": "1h"},
)
assert isinstance(LATE, LocalMetric)
REPORT_BYTES = sealed_size(LATE.randomizer.width)
LABEL = CrowdLabel(key_hash(KEY), LATE.fingerprint, 1_000 * PANE_MS, "late")
NEXT_LABEL = CrowdLabel(key_hash(KEY), LATE.fingerprint, 1_001 * PANE_MS, "late")
CLOSES_MS = LABEL.pane_start_ms + PANE_MS + WAIT_MS
TERMS = CrowdTerms(LABEL, REPORT_BYTES, 100, CLOSES_MS, CLOSES_MS + WAIT_MS)


def sealed(count: int, report_bytes: int = REPORT_BYTES) -> list[bytes]:
    """Return different bytes of the size of sealed reports; the last 4 number them."""
    random = os.urandom(count * (report_bytes - 4))
    size = report_bytes - 4
    return [random[i * size : (i + 1) * size] + i.to_bytes(4, "big") for i in range(count)]


def body(report: bytes, label: CrowdLabel = LABEL) -> bytes:
    return encode_post(label, report)


def closed(path: Path, reports: Sequence[bytes], terms: CrowdTerms = TERMS) -> ClosedCrowd:
    """Return what becomes of a crowd of these reports."""
    with contextlib.closing(CrowdFolder(path)) as folder:
        crowd = OpenCrowd(folder, terms)
        crowd.append(reports)
        folder.end_intake(terms)
        return folder.shuffle(terms.name)


def sent(crowd: ClosedCrowd) -> list[bytes]:
    """Return the reports of a crowd's parts in their order."""
    return [r for part in crowd.parts for r in decode_crowd(part.body())[2]]


def files(path: Path) -> list[str]:
    """Return the files of a relay beside its lock and its marks, with the folder."""
    folders = ("open", "closing", "out")
    return [f"{name}/{file.name}" for name in folders for file in (path / name).iterdir()]


def client_of(path: Path, port: int) -> ServiceClient:
    """Return a client of the analyst, with its token in a file beside a relay's folder."""
    token_file = path.with_suffix(".token")
    token_file.write_text("dither_relay\n")
    return ServiceClient(f"http://127.0.0.1:{port}", token_file)


def numbers(reports: Sequence[bytes]) -> np.ndarray:
    return np.array([int.from_bytes(report[-4:], "big") for report in reports])


class Analyst:
    """What arrived, by the id of the part, and the statuses of the next answers; 0: none."""

    def __init__(self) -> None:
        self.bodies: dict[bytes, bytes] = {}
        self.tokens: set[str] = set()
        self.statuses: list[int] = []
        self.posts = 0
        self.port = 0

    @property
    def reports(self) -> list[bytes]:
        return [report for body in self.bodies.values() for report in decode_crowd(body)[2]]

    def take(self, data: bytes, token: str) -> int:
        self.posts += 1
        self.tokens.add(token)
        status = self.statuses.pop(0) if self.statuses else 202
        if status in (0, 202):
            assert self.bodies.setdefault(data[:16], data) == data, "an id with two contents"
        return status


@contextlib.contextmanager
def analyst() -> Iterator[Analyst]:
    receiver = Analyst()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            assert self.path == "/v1/crowds"
            data = self.rfile.read(int(self.headers["Content-Length"]))
            status = receiver.take(data, self.headers["Authorization"])
            if not status:  # the answer is lost
                self.close_connection = True
                return
            answer = b'{"detail": "so it is"}'
            self.send_response(status)
            media = "application/problem+json" if status >= 400 else "application/json"
            self.send_header("Content-Type", media)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        receiver.port = server.server_port
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield receiver
        finally:
            server.shutdown()
            thread.join()
