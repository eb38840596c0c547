"""A relay in a process of its own, which may be killed at any of its changes of the disk."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

from producers.relay import crowd_folder, forwarding, intake
from producers.relay.crowd_folder import CrowdFolder
from producers.relay.forwarding import Forwarder
from producers.relay.intake import CrowdRelay
from tests.unit.producers.relay.crowds import KEY, LATE, REPORT_BYTES, client_of, files

CHANGES = ("pwrite", "fdatasync", "fsync", "rename", "unlink")
NEVER = 10**9


def relay_of(path: Path, analyst_port: int, clock: Path, kill_at: int) -> CrowdRelay:
    """Return a relay that looks at its crowds often, and posts them in small parts."""
    intake.TICK_SECONDS = 0.01
    setattr(crowd_folder, "MAX_CROWD_BYTES", 220 * REPORT_BYTES)  # noqa: B010
    setattr(forwarding, "pause", lambda *_: 0.005)  # noqa: B010
    left = kill_at

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

    pwrite = os.pwrite
    for name in CHANGES:
        setattr(os, name, killed_at(getattr(os, name)))
    folder = CrowdFolder(path)
    client = client_of(path, analyst_port)
    forwarder = Forwarder(client, folder.parts())
    return CrowdRelay(
        {"late": LATE}, KEY, folder, forwarder, clock=lambda: float(clock.read_text())
    )


def close_crowds(path: Path, analyst_port: int, clock: Path, kill_at: int) -> None:
    """Close what is due, until no file is left."""

    async def run() -> None:
        async with relay_of(path, analyst_port, clock, kill_at):
            while files(path):
                await asyncio.sleep(0.005)

    asyncio.run(run())


def serve(path: Path, analyst_port: int, clock: Path, listening: socket.socket) -> None:
    """Serve a relay on a socket that outlives this process."""
    from aggregator.config.settings import Settings
    from aggregator.web.http.listening import run_server
    from aggregator.web.http.traffic import Traffic
    from aggregator.web.relay_application import relay_application

    settings = Settings()
    app = relay_application(relay_of(path, analyst_port, clock, NEVER), settings, Traffic())
    run_server(app, settings, None, "error", [listening])
