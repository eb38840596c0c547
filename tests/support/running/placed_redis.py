"""A Redis that a test can place, kill and start again: the installed or the embedded one."""

import shutil
from pathlib import Path

from aggregator.local.embedded_servers import STOP_GRACE, EmbeddedRedis


class PlacedRedis(EmbeddedRedis):
    """An embedded Redis whose log stays in a folder, and which may listen on a port.

    Parameters
    ----------
    folder : Path or None
        The folder of the server's log; None takes the temporary folder. A server that starts on a
        folder has the data of its log.
    port : int
        Loopback port to listen on instead of a Unix socket.
    """

    def __init__(self, folder: Path | None = None, port: int = 0) -> None:
        installed = shutil.which("redis-server")
        super().__init__(Path(installed) if installed else None, ("--appendonly", "yes"))
        self.folder, self.port = folder, port

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0" if self.port else super().url

    @property
    def running(self) -> bool:
        """Whether the server was started and has not ended."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """Process id of the server, which runs."""
        assert self._process is not None
        return self._process.pid

    def kill(self) -> None:
        """Kill the server (SIGKILL), as a crash would; its log stays."""
        self._end(grace=0.0)

    def restart(self) -> None:
        """Start a killed or running server again, on its folder and address."""
        if self._process is not None:
            self._process.terminate()
        self._end(STOP_GRACE)
        self.start()

    def _address(self) -> list[str]:
        options = super()._address()
        if self.port:
            options += ["--port", str(self.port), "--bind", "127.0.0.1"]
        if self.folder is not None:
            self.folder.mkdir(parents=True, exist_ok=True)
            options += ["--dir", str(self.folder.resolve())]
        return options
