"""A release: what the source distribution and the wheel contain, made again byte for byte."""

from __future__ import annotations

import os
import re
import subprocess
import tarfile
import zipfile
from pathlib import Path

import pytest

from deploy import dist
from deploy.dist import NotReleasableError, build_sdist, build_wheel, refuse_strangers
from tests.support.paths import ROOT

PACKAGES = ("aggregator/", "dither/", "estimators/", "producers/")
NEEDED = {
    "aggregator/py.typed",
    "aggregator/storage/lua/commit.lua",
    "aggregator/web/static/vendor/inter-latin-wght-normal.woff2",
    "producers/browser/dither.js",
    "producers/populations/flights.toml",
    "producers/wire/reports.proto",
}

pytestmark = [
    pytest.mark.more,
    pytest.mark.skipif(not (ROOT / ".git").exists(), reason="this is no clone"),
]


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_sdist(tmp_path_factory.mktemp("sdist"))


@pytest.fixture(scope="module")
def wheel(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(sdist, tmp_path_factory.mktemp("wheel"))


def sources() -> set[str]:
    """Return the files that git has, or would add."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return set(filter(None, listed.stdout.split("\0")))


def files_of(archive: Path) -> dict[str, bytes]:
    """Return the files of a wheel or a source distribution, by name."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as opened:
            return {name: opened.read(name) for name in opened.namelist()}
    with tarfile.open(archive) as opened_tar:
        read = ((each.name, opened_tar.extractfile(each)) for each in opened_tar)
        return {name.partition("/")[2]: file.read() for name, file in read if file}


def test_a_release_has_all_of_the_packages_and_nothing_else(wheel: Path, sdist: Path) -> None:
    given = set(files_of(sdist))
    assert given - {"PKG-INFO"} <= sources()
    assert {"Makefile", "requirements.lock", "deploy/Dockerfile", "tests/conftest.py"} <= given
    assert not {name for name in given if name.startswith(".ci")}
    packed = {name for name in files_of(wheel) if ".dist-info/" not in name}
    made_of = {
        name
        for name in sources()
        if name.startswith(PACKAGES)
        and not re.match(r"producers/browser/([\w.-]+\.(json|md)$|opentelemetry/)", name)
    }
    assert packed == made_of
    assert packed >= NEEDED


def test_the_folder_makes_the_wheel_of_the_source_distribution_byte_for_byte(
    wheel: Path, tmp_path: Path
) -> None:
    """Whatever the clock, the user's mask and the times of files say."""
    copy = tmp_path / "copy"
    for name in sources():
        if not name.startswith((*PACKAGES, "pyproject.toml", "README.md", "LICENSE")):
            continue
        target = copy / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes((ROOT / name).read_bytes())
        target.chmod(0o600)
        os.utime(target, (1e9, 1e9))
    again = dist.hatchling("wheel", copy, tmp_path)
    assert again.name == wheel.name
    assert again.read_bytes() == wheel.read_bytes()


def test_a_file_that_is_not_committed_is_no_part_of_a_release(tmp_path: Path) -> None:
    stranger = tmp_path / "dither-0.1.0.tar.gz"
    with tarfile.open(stranger, "w:gz") as archive:
        archive.add(ROOT / "README.md", "dither-0.1.0/README.md")
    refuse_strangers(stranger)
    with tarfile.open(stranger, "w:gz") as archive:
        archive.add(ROOT / "README.md", "dither-0.1.0/producers/secret.pem")
    with pytest.raises(NotReleasableError, match=r"does not have: producers/secret\.pem\. Delete"):
        refuse_strangers(stranger)
