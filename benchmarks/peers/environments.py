"""A virtual environment for each peer, with the versions that `environments.toml` pins.

They are made when first asked for, under ``$XDG_CACHE_HOME/dither/peers`` (``~/.cache``).
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

PINS = Path(__file__).with_name("environments.toml")
INSTALL_SECONDS = 1_200
SHOWN_CHARACTERS = 200
"""The most characters that are shown of an installer's error."""


class NotInstalledError(Exception):
    """A peer cannot be installed here; the message says why."""


def pins() -> dict[str, dict[str, Any]]:
    """Return the pinned packages of each peer's environment."""
    return tomllib.loads(PINS.read_text())


def folder(name: str) -> Path:
    """Return the folder of a peer's environment, which differs for other versions."""
    python = pins()[name].get("python", f"{sys.version_info.major}.{sys.version_info.minor}")
    meaning = json.dumps([python, pins()[name]["packages"]])
    digest = hashlib.sha256(meaning.encode()).hexdigest()[:12]
    return peers_folder() / f"{name}-{digest}"


def peers_folder() -> Path:
    """Return the folder of the peers' environments."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "dither" / "peers"


def is_installed(name: str) -> bool:
    """Return whether a peer's environment was made before."""
    return (folder(name) / "installed").exists()


def python_of(name: str) -> Path:
    """Return the interpreter of a peer's environment, which is made if there is none.

    Raises
    ------
    NotInstalledError
        If it cannot be made.
    """
    environment = folder(name)
    interpreter = environment / "bin" / "python"
    if is_installed(name):
        return interpreter
    wanted = pins()[name]
    base = shutil.which(f"python{wanted['python']}") if "python" in wanted else sys.executable
    if base is None:
        raise NotInstalledError(f"needs python{wanted['python']} on the PATH")
    print(f"making an environment for {name}: {environment}", file=sys.stderr)
    shutil.rmtree(environment, ignore_errors=True)
    install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    try:
        _run([base, "-m", "venv", str(environment)])
        _run([str(interpreter), *install, *wanted["packages"]])
    except (subprocess.SubprocessError, OSError) as error:
        shutil.rmtree(environment, ignore_errors=True)
        message = getattr(error, "stderr", None) or str(error)
        lines = [line for line in message.splitlines() if "error" in line.lower()] or [
            message.strip()
        ]
        needs = f"; needs {wanted['needs']}" if "needs" in wanted else ""
        raise NotInstalledError(f"not installed: {lines[-1][:SHOWN_CHARACTERS]}{needs}") from None
    (environment / "installed").touch()
    return interpreter


def _run(command: list[str]) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=INSTALL_SECONDS)
