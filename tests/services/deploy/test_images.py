"""`make images` takes the engine that there is, and says what to install where there is none."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from deploy import images
from tests.support.paths import ROOT


def program(folder: Path, name: str, script: str) -> None:
    file = folder / name
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Programs that are there; no other is."""
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def test_without_an_engine_it_says_what_to_install(path: Path) -> None:
    program(path, "docker", "exit 1")  # the client alone
    made = subprocess.run(
        [sys.executable, "-m", "deploy.images"],
        cwd=ROOT,
        env={**os.environ, "PATH": str(path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert made.returncode == 1
    assert made.stderr == (
        "images: no Docker engine answers, and there is no buildah: start Docker, or install "
        "buildah (Debian: apt install buildah runc)\n"
    )


def test_docker_builds_if_its_engine_answers_and_buildah_otherwise(path: Path) -> None:
    program(path, "docker", "exit 0")
    program(path, "buildah", "exit 0")
    assert images.engine() == "docker"
    program(path, "docker", "exit 1")
    assert images.engine() == "buildah"
    (path / "docker").unlink()
    assert images.engine() == "buildah"


def test_what_fails_is_named(path: Path) -> None:
    program(path, "buildah", "exit 3")
    with pytest.raises(SystemExit, match="images: buildah failed with exit code 3"):
        images.main([])
    with pytest.raises(SystemExit, match="--base debian needs debootstrap"):
        images.main(["--base", "debian"])


def test_both_engines_build_from_the_pinned_base_unless_told_otherwise() -> None:
    for engine in ("docker", "buildah"):
        command = images.build_command(engine, ["one", "two"], None)
        assert not any("PYTHON=" in word for word in command)
        assert command.count("--tag") == 2
        assert "PYTHON=other" in images.build_command(engine, ["one"], "other")


@pytest.mark.skipif(shutil.which("buildah") is None, reason="buildah is not installed")
def test_buildah_knows_the_options() -> None:
    asked = [shutil.which("buildah") or "", "bud", "--help"]
    shown = subprocess.run(asked, capture_output=True, text=True, check=True)
    command = images.build_command("buildah", ["one"], "other")
    for option in (word for word in command if word.startswith("--")):
        assert option in shown.stdout
