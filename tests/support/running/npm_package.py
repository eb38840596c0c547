"""The npm package of producers/browser: packed, and installed in an empty folder."""

import dataclasses
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support.paths import ROOT
from tests.support.running import servers

SOURCE = ROOT / "producers" / "browser"
OLDEST_NODE = 20


@dataclasses.dataclass(frozen=True)
class NpmPackage:
    """A tarball, and an application that has installed it.

    Attributes
    ----------
    packed : list of dict
        Path and size of each file in the tarball.
    application : Path
        A folder with a `package.json` and `node_modules`.
    tools : Path
        The programs of the package's own development dependencies.
    """

    packed: list[dict[str, Any]]
    application: Path
    tools: Path

    def node(self, program: str, *arguments: str) -> str:
        """Run an ES module in the application's folder; return what it prints."""
        file = self.application / "program.mjs"
        file.write_text(program)
        return run(["node", str(file), *arguments], self.application)


def npm_package(folder: Path) -> NpmPackage:
    """Pack a copy of producers/browser, and install the tarball in a scratch folder."""
    servers.program("npm", "install Node.js with npm (Debian: npm)")
    version = run(["node", "--version"], folder)
    if int(version.removeprefix("v").partition(".")[0]) < OLDEST_NODE:
        pytest.skip(f"Node.js {version.strip()}: the package needs {OLDEST_NODE} or newer")
    copy, application = folder / "browser", folder / "application"
    shutil.copytree(SOURCE, copy, ignore=shutil.ignore_patterns("node_modules", "dist"))
    application.mkdir()
    told = run(["npm", "pack", "--silent", "--pack-destination", str(folder)], copy)
    tarball = folder / told.split()[-1]
    listed = json.loads(run(["npm", "pack", "--json", "--dry-run", "--ignore-scripts"], copy))
    (application / "package.json").write_text('{"private": true, "type": "module"}')
    install = ["npm", "install", "--offline", "--ignore-scripts", "--no-audit", "--no-fund"]
    run([*install, str(tarball)], application)
    return NpmPackage(listed[0]["files"], application, copy / "node_modules" / ".bin")


def run(command: list[str], folder: Path) -> str:
    """Run a command; what it says on failure fails the test."""
    environment = {**os.environ, "npm_config_update_notifier": "false"}
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout
