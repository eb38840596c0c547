"""Make what a release consists of, in ./dist: `make dist`.

The wheel is built from the source distribution, not from the folder, so that whoever has the source
distribution makes the same wheel. The same commit gives the same bytes. The npm package needs npm,
the image an engine; what cannot be made on this machine is named.
"""

from __future__ import annotations

import argparse
import hashlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from deploy import images

ROOT = Path(__file__).parents[1]
BROWSER = ROOT / "producers" / "browser"
GENERATED = {"PKG-INFO"}
"""Files of a source distribution that need not be in the repository."""


class NotReleasableError(Exception):
    """The folder is not fit for a release; the message says what to do."""


def refuse_strangers(sdist: Path) -> None:
    """Check that git has all files of a source distribution; outside of a clone, check nothing.

    Raises
    ------
    NotReleasableError
        If it contains a file that the repository does not have.
    """
    if not (ROOT / ".git").exists():
        return
    with tarfile.open(sdist) as archive:
        files = {name.partition("/")[2] for name in archive.getnames()}
    tracked = set(_run(["git", "ls-files", "-z"], ROOT).split("\0"))
    if strangers := sorted(files - GENERATED - tracked):
        raise NotReleasableError(
            f"the source distribution contains what git does not have: {', '.join(strangers)}. "
            "Delete or commit it"
        )


def build_sdist(folder: Path) -> Path:
    """Build the source distribution of this repository into a folder; return its path."""
    return hatchling("sdist", ROOT, folder)


def build_wheel(sdist: Path, folder: Path) -> Path:
    """Build the wheel of a source distribution into a folder; return its path."""
    with tempfile.TemporaryDirectory() as unpacked:
        with tarfile.open(sdist) as archive:
            archive.extractall(unpacked, filter="data")
        (source,) = Path(unpacked).iterdir()
        return hatchling("wheel", source, folder)


def pack_npm(source: Path, folder: Path) -> Path | None:
    """Pack an npm package into a folder; return its path, or None if npm is missing."""
    if shutil.which("npm") is None:
        return None
    done = _run(["npm", "pack", "--silent", "--pack-destination", str(folder)], source)
    return folder / done.splitlines()[-1]


def build_image(base: str | None) -> str | None:
    """Build the image as `make images` does; return why it cannot be built here, or None."""
    try:
        images.engine()
    except images.CannotBuildError as error:
        return str(error)
    try:
        images.main(["--base", base] if base else [])
    except SystemExit as error:
        sys.exit(f"make dist: the files above are whole, but the image was NOT made: {error}")
    return None


def main() -> None:
    """Make all files and the image, and print what was made and what was not."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--into", type=Path, default=ROOT / "dist", metavar="FOLDER")
    parser.add_argument("--no-image", action="store_true", help="files only")
    parser.add_argument("--base", help="the image's base, as of `make images`")
    options = parser.parse_args()
    folder: Path = options.into
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        sdist = build_sdist(folder)
        refuse_strangers(sdist)
        packages = [pack_npm(source, folder) for source in (BROWSER, BROWSER / "opentelemetry")]
        made = [sdist, build_wheel(sdist, folder), *packages]
        files = [file for file in made if file is not None]
        sums = [f"{hashlib.sha256(each.read_bytes()).hexdigest()}  {each.name}" for each in files]
        (folder / "SHA256SUMS").write_text("\n".join(sums) + "\n", encoding="utf-8")
        print(*sums, sep="\n")
        if len(files) < len(made):
            print("the npm packages were NOT made: npm is not installed")
        missing = "--no-image" if options.no_image else build_image(options.base)
        if missing:
            print(f"the image was NOT made: {missing}")
    except (NotReleasableError, subprocess.CalledProcessError) as error:
        sys.exit(f"make dist: {error}")


def hatchling(target: str, source: Path, folder: Path) -> Path:
    """Build a distribution (`target`: sdist or wheel) of a source folder; return its path."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(folder)]
    _run(command, source)
    (made,) = folder.glob("*.whl" if target == "wheel" else "*.tar.gz")
    return made


def _run(command: list[str], folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        print(done.stdout, done.stderr, sep="\n", file=sys.stderr)
        done.check_returncode()
    return done.stdout


if __name__ == "__main__":
    main()
