"""Programs that the tests build from Go modules, once for each version of them."""

import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "dither"


def go_programs(source: Path, names: Sequence[str], what: str) -> list[Path]:
    """Return the programs of a module's packages; skip the test where they cannot be built.

    Parameters
    ----------
    source : Path
        The folder of the module.
    names : sequence of str
        The names of the programs: folders of the module, or a name for the module itself if it has
        no folders.
    what : str
        A description of the programs, for messages.
    """
    texts = sorted([*source.glob("go.*"), *source.rglob("*.go")])
    digest = hashlib.sha256(b"".join(file.read_bytes() for file in texts)).hexdigest()[:16]
    programs = [CACHE / f"{name}-{digest}" for name in names]
    if all(program.exists() for program in programs):
        return programs
    go = go_command(what)
    fetched = _go(go, "mod", "download", folder=source)
    if fetched.returncode:
        pytest.skip(f"the modules of {what} are not there: {fetched.stderr[-200:]}")
    CACHE.mkdir(parents=True, exist_ok=True)
    for name, program in zip(names, programs, strict=True):
        made = program.with_suffix(f".{os.getpid()}")
        package = f"./{name}" if (source / name).is_dir() else "."
        subprocess.run([go, "build", "-o", str(made), package], cwd=source, check=True)
        made.replace(program)
    return programs


def module_folder(module: str, digest: str, what: str) -> Path:
    """Return the folder of a module's version; skip the test where it cannot be had.

    Parameters
    ----------
    module : str
        The module's path and version: ``example.org/module@v1.2.3``.
    digest : str
        The required digest of the module, in the form of ``go.sum``.
    what : str
        A description of the content, for messages.
    """
    fetched = _go(go_command(what), "mod", "download", "-json", module, folder=Path("/"))
    if fetched.returncode:
        pytest.skip(f"{what} is not there: {fetched.stdout[-200:]}")
    about = json.loads(fetched.stdout)
    assert about["Sum"] == digest, f"{module} is another one than it was"
    return Path(about["Dir"])


def go_command(what: str) -> str:
    """Return the path of the command `go`; skip the test where it is not installed."""
    return shutil.which("go") or pytest.skip(f"{what} comes from Go modules: it needs Go 1.26")


def _go(go: str, *words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([go, *words], cwd=folder, capture_output=True, text=True, check=False)
