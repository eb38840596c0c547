"""A crowd in a folder, a service that records what it gets, and a relay that may be killed."""

import contextlib
import os
import signal
import socket
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from aggregator.config.settings import Settings
from aggregator.web.http.listening import run_server
from aggregator.web.http.traffic import Traffic
from aggregator.web.relay_application import relay_application
from estimators import LocalMetric, define
from producers.gateway.problems import Problem
from producers.relay import crowd_folder, forwarding, intake
from producers.relay.crowd_folder import CrowdFolder, CrowdTerms, OpenCrowd
from producers.relay.forwarding import Forwarder, ServiceClient
from producers.relay.intake import CrowdRelay
from producers.sealing import CrowdLabel, decode_crowd, key_hash, sealed_size
from tests.support.running.served_application import served_plainly

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
LABEL, NEXT_LABEL = (
    CrowdLabel(key_hash(KEY), LATE.fingerprint, pane * PANE_MS, "late") for pane in (1_000, 1_001)
)
CLOSES_MS = LABEL.pane_start_ms + PANE_MS + WAIT_MS
TERMS = CrowdTerms(LABEL, REPORT_BYTES, 100, CLOSES_MS, CLOSES_MS + WAIT_MS)


def sealed(count: int) -> list[bytes]:
    """Return different bytes of the size of sealed reports; the last 4 number them."""
    return [os.urandom(REPORT_BYTES - 4) + i.to_bytes(4) for i in range(count)]


def closed(path: Path, reports: Sequence[bytes]) -> dict[str, int]:
    """Close and shuffle a crowd of these reports; return how many had which outcome."""
    with contextlib.closing(CrowdFolder(path)) as folder:
        OpenCrowd(folder, TERMS).append(reports)
        folder.end_intake(TERMS)
        folder.shuffle(TERMS.name)
        return {outcome: count for (_, outcome), count in folder.reports.items() if count}


def parts(path: Path) -> list[tuple[bytes, CrowdLabel, list[bytes]]]:
    """Return the crowds that a relay's folder would post."""
    with contextlib.closing(CrowdFolder(path)) as folder:
        heads = {path: len(terms.encode()) for path, terms in folder.parts().items()}
        return [decode_crowd(path.read_bytes()[size:]) for path, size in heads.items()]


def sent(path: Path) -> list[bytes]:
    """Return the reports of the parts in a folder in their order."""
    return [report for _, _, reports in parts(path) for report in reports]


def files(path: Path) -> list[str]:
    """Return the files of a relay beside its lock and its marks, with the folder."""
    folders = ("open", "closing", "out")
    return [f"{name}/{file.name}" for name in folders for file in (path / name).iterdir()]


def forwarder_of(path: Path, port: int) -> Forwarder:
    """Return what posts to the service, with its token in a file beside a relay's folder."""
    token_file = path.with_suffix(".token")
    token_file.write_text("dither_relay\n")
    return Forwarder(ServiceClient(f"http://127.0.0.1:{port}", token_file), CrowdFolder(path))


def numbers(reports: Sequence[bytes]) -> np.ndarray:
    return np.array([int.from_bytes(report[-4:]) for report in reports])


class Service:
    """What arrived, by the id of the part, and the statuses of the next answers; 500: it has it."""

    def __init__(self) -> None:
        self.bodies: dict[bytes, bytes] = {}
        self.tokens: set[str] = set()
        self.statuses: list[int] = []
        self.posts = self.port = 0

    @property
    def reports(self) -> list[bytes]:
        return [report for body in self.bodies.values() for report in decode_crowd(body)[2]]

    async def take(self, request: Request) -> Response:
        data = await request.body()
        self.posts += 1
        self.tokens.add(request.headers["Authorization"])
        status = self.statuses.pop(0) if self.statuses else 202
        if status in (202, 500):
            assert self.bodies.setdefault(data[:16], data) == data, "an id with two contents"
        return Problem(status, "so it is").response("/") if status >= 400 else Response(b"", status)


@contextlib.contextmanager
def serving() -> Iterator[Service]:
    service = Service()
    app = Starlette(routes=[Route("/v1/crowds", service.take, methods=["POST"])])
    with served_plainly(app) as url:
        service.port = int(url.rpartition(":")[2])
        yield service


CHANGES = ("pwrite", "fdatasync", "fsync", "rename", "unlink")


def serve_relay(
    path: Path, service_port: int, clock: Path, listening: socket.socket, kill_at: int = 0
) -> None:
    """Serve a relay on a socket that outlives this process, until its change number `kill_at`.

    It looks at its crowds often, and posts them in small parts.
    """
    intake.TICK_SECONDS = forwarding.TURN_SECONDS = 0.01
    setattr(crowd_folder, "MAX_CROWD_BYTES", 220 * REPORT_BYTES)  # noqa: B010
    setattr(forwarding, "pause", lambda *_: 0.005)  # noqa: B010
    left, pwrite = kill_at, os.pwrite

    def killed_at(change: Callable[..., Any]) -> Callable[..., Any]:
        def changed(*arguments: Any) -> Any:
            nonlocal left
            left -= 1
            if not left:
                if change is pwrite:
                    descriptor, data, offset = arguments
                    pwrite(descriptor, data[: len(data) // 2], offset)
                os.kill(os.getpid(), signal.SIGKILL)
            return change(*arguments)

        return changed

    for name in CHANGES:
        setattr(os, name, killed_at(getattr(os, name)))
    forwarder = forwarder_of(path, service_port)
    relay = CrowdRelay({"late": LATE}, KEY, forwarder, clock=lambda: float(clock.read_text()))
    run_server(
        relay_application(relay, Settings(), Traffic()), Settings(), None, "error", [listening]
    )
