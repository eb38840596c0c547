"""A Python environment as on a device: it has only the base requirements of the package."""

import os
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

from tests.support.paths import ROOT


def project() -> dict[str, object]:
    """Return the table `project` of pyproject.toml."""
    found: dict[str, object] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return found


def closure(requirements: list[str]) -> set[str]:
    """Return the names of all distributions that the requirements install, on this machine."""
    found: set[str] = set()
    left = [Requirement(each) for each in requirements]
    while left:
        each = left.pop()
        if each.name in found or (each.marker and not each.marker.evaluate({"extra": ""})):
            continue
        found.add(each.name)
        left += [Requirement(needed) for needed in metadata.requires(each.name) or ()]
    return found


def modules(distribution: str) -> set[str]:
    """Return the top-level modules that an installed distribution has."""
    tops = {file.parts[0] for file in metadata.files(distribution) or ()}
    return {top.removesuffix(".py") for top in tops if "." not in top.removesuffix(".py")}


def link_base_requirements(folder: Path) -> None:
    """Link all modules of the base requirements into a folder, and no other package."""
    dependencies = project()["dependencies"]
    assert isinstance(dependencies, list)
    for name in closure(dependencies):
        distribution = metadata.distribution(name)
        for file in distribution.files or ():
            shared = file.parts[0] == "google"  # a namespace of several distributions
            entry = Path(*file.parts[: 2 if shared else 1])
            link = folder / entry
            if file.parts[0] == ".." or link.exists():
                continue
            link.parent.mkdir(exist_ok=True)
            link.symlink_to(Path(str(distribution.locate_file(entry))))


def run_as_device(folder: Path, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a program that can import only this repository and the packages in a folder."""
    environment = os.environ | {"PYTHONPATH": f"{folder}{os.pathsep}{ROOT}"}
    return subprocess.run(
        [sys.executable, "-S", "-c", program, *arguments],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
        cwd=folder,
    )
