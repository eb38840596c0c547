"""Build the container image: `make images`, with Docker or, where no engine answers, buildah.

The base is the one that deploy/Dockerfile pins. `--base debian` makes one of Debian's packages
instead (debootstrap, as root), for machines that reach no registry: it trusts the certificates that
this machine trusts, and is for trying things out.
"""

from __future__ import annotations

import argparse
import contextlib
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
DOCKERFILE = ROOT / "deploy" / "Dockerfile"
NAME = "dither"
DEBIAN = "bookworm"
DEBIAN_IMAGE = f"localhost/dither-base:{DEBIAN}"
DEBIAN_PACKAGES = ("python3", "python3-venv", "python3-pip", "ca-certificates")
CERTIFICATES = Path("etc/ssl/certs/ca-certificates.crt")
DEBIAN_ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "PIP_BREAK_SYSTEM_PACKAGES": "1",  # pip installs uv outside of a virtual environment
    "SSL_CERT_FILE": f"/{CERTIFICATES}",
    "UV_SYSTEM_CERTS": "1",
}
ANSWER_SECONDS = 20.0


class CannotBuildError(Exception):
    """Raised if the image cannot be built; the message says what is missing, and what to do."""


def engine() -> str:
    """Return ``docker`` if its engine answers, else ``buildah``.

    Raises
    ------
    CannotBuildError
        If neither is there.
    """
    if shutil.which("docker"):
        command = ["docker", "version", "--format", "{{.Server.Version}}"]
        with contextlib.suppress(subprocess.SubprocessError):
            subprocess.run(command, capture_output=True, check=True, timeout=ANSWER_SECONDS)
            return "docker"
    if shutil.which("buildah"):
        return "buildah"
    raise CannotBuildError(
        "no Docker engine answers, and there is no buildah: start Docker, or install buildah "
        "(Debian: apt install buildah runc)"
    )


def build_command(engine: str, tags: list[str], base: str | None) -> list[str]:
    """Return the command that builds the image at the root of the repository.

    `engine`: from :func:`engine`; `tags`: the names of the image; `base`: another base image, or
    None. With these options buildah needs no privileges of a container engine, and uses this
    machine's network.
    """
    if engine == "docker":
        command = ["docker", "build"]
    else:
        ignored = str(DOCKERFILE.with_name("Dockerfile.dockerignore"))
        command = ["buildah", "bud", "--layers", "--isolation", "chroot", "--network", "host"]
        command += ["--format", "docker", "--ignorefile", ignored]
    command += ["--file", str(DOCKERFILE)]
    if base is not None:
        command += ["--build-arg", f"PYTHON={base}"]
    for tag in tags:
        command += ["--tag", tag]
    return [*command, str(ROOT)]


def debian_base(engine: str) -> str:
    """Return the name of a base image made of Debian's packages; make it unless it exists.

    Raises
    ------
    CannotBuildError
        If debootstrap, or the program that imports the image, is missing.
    """
    importer = "docker" if engine == "docker" else "podman"
    for needed in ("debootstrap", importer):
        if shutil.which(needed) is None:
            raise CannotBuildError(f"--base debian needs {needed}: apt install {needed}")
    inspected = subprocess.run(
        [importer, "image", "inspect", DEBIAN_IMAGE], capture_output=True, check=False
    )
    if inspected.returncode == 0:
        return DEBIAN_IMAGE
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "root"
        packages = f"--include={','.join(DEBIAN_PACKAGES)}"
        run(["debootstrap", "--variant=minbase", packages, DEBIAN, str(root)])
        shutil.copy(Path("/") / CERTIFICATES, root / CERTIFICATES)
        (root / "usr" / "bin" / "python").symlink_to("python3")
        for file in (root / "var" / "cache" / "apt" / "archives").glob("*.deb"):
            file.unlink()
        archive = Path(folder) / "root.tar"
        run(["tar", "-C", str(root), "-cf", str(archive), "."])
        changes = [f"--change=ENV {name}={value}" for name, value in DEBIAN_ENVIRONMENT.items()]
        run([importer, "import", *changes, str(archive), DEBIAN_IMAGE])
    return DEBIAN_IMAGE


def run(command: list[str]) -> None:
    """Print a command and run it.

    Raises
    ------
    CannotBuildError
        If the command fails.
    """
    print("+", *command, file=sys.stderr, flush=True)
    code = subprocess.run(command, check=False).returncode
    if code != 0:
        raise CannotBuildError(f"{command[0]} failed with exit code {code}")


def main(arguments: list[str] | None = None) -> None:
    """Build the image, by default as `dither` and as `dither:VERSION`."""
    parser = argparse.ArgumentParser(prog="make images", description=__doc__)
    parser.add_argument("--tag", action="append", help="a name of the image; can be repeated")
    parser.add_argument("--base", help="another base image, or `debian`")
    options = parser.parse_args(arguments)
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    try:
        builder = engine()
        base = debian_base(builder) if options.base == "debian" else options.base
        run(build_command(builder, options.tag or [NAME, f"{NAME}:{version}"], base))
    except CannotBuildError as error:
        sys.exit(f"images: {error}")


if __name__ == "__main__":
    main()
