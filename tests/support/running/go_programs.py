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
    """Return the programs of a module's packages; the test is skipped where they cannot be built.

    Parameters
    ----------
    source : Path
        The module.
    names : sequence of str
        Of the programs: of the module's folders, or of the module itself if it has none.
    what : str
        What they are, for people.
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
    """Return the folder of a module's version; the test is skipped where there is none.

    Parameters
    ----------
    module : str
        As in ``example.org/module@v1.2.3``.
    digest : str
        As in ``go.sum``: what it must have.
    what : str
        What is in it, for people.
    """
    fetched = _go(go_command(what), "mod", "download", "-json", module, folder=Path("/"))
    if fetched.returncode:
        pytest.skip(f"{what} is not there: {fetched.stdout[-200:]}")
    about = json.loads(fetched.stdout)
    assert about["Sum"] == digest, f"{module} is another one than it was"
    return Path(about["Dir"])


def go_command(what: str) -> str:
    """Return Go; the test is skipped where it is not installed."""
    return shutil.which("go") or pytest.skip(f"{what} comes from Go modules: it needs Go 1.26")


def _go(go: str, *words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([go, *words], cwd=folder, capture_output=True, text=True, check=False)
