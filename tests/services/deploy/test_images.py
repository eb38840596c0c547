"""`make images` takes the engine that there is, and says what to install where there is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from deploy import images


def program(folder: Path, name: str, script: str) -> None:
    file = folder / name
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Programs that are there; no other is."""
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def test_docker_builds_if_its_engine_answers_and_buildah_otherwise(path: Path) -> None:
    program(path, "docker", "exit 0")
    program(path, "buildah", "exit 0")
    assert images.engine() == "docker"
    program(path, "docker", "exit 1")
    assert images.engine() == "buildah"
    (path / "docker").unlink()
    assert images.engine() == "buildah"


def test_what_fails_is_named(path: Path) -> None:
    program(path, "docker", "exit 1")  # the client alone
    with pytest.raises(SystemExit, match="no Docker engine answers, and there is no buildah"):
        images.main([])
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
