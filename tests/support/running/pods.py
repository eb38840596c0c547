"""Pods of Kubernetes manifests, run by podman; this module is their kubelet.

podman makes containers of a pod's specification: images, users, capabilities, limits, volumes,
restarts. This module does what podman does not: replicas, probes, and the files of secrets, with
the owner and the mode that the manifest demands.
"""

from __future__ import annotations

import contextlib
import copy
import http.client
import json
import os
import shutil
import signal
import ssl
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped, unused-ignore]

from tests.support.paths import ROOT
from tests.support.running.servers import missing, program

Manifest = dict[str, Any]
IMAGE = "localhost/dither-tested"


def podman(*words: str, check: bool = True) -> str:
    """Run podman, and return what it prints."""
    ran = subprocess.run(
        [str(program("podman", "apt install podman")), *words],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0 or not check, f"podman {' '.join(words)}: {ran.stdout}{ran.stderr}"
    return ran.stdout.strip()


def built_image() -> str:
    """Build the image, and return its name.

    It has the pinned base if a registry can be reached, else Debian's packages.
    """
    if os.geteuid() != 0:
        pytest.skip("containers without an engine need root")
    for name in ("podman", "buildah", "runc"):
        program(name, f"apt install {name}")
    base = () if reaches_registry() else ("--base", "debian")
    if base and shutil.which("debootstrap") is None:
        missing("a base image", "a registry, or apt install debootstrap")
    command = [sys.executable, "-m", "deploy.images", "--tag", IMAGE, *base]
    without_docker = os.pathsep.join(
        folder
        for folder in os.environ["PATH"].split(os.pathsep)
        if not (Path(folder) / "docker").exists()
    )
    ran = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "PATH": without_docker},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout[-2000:] + ran.stderr[-2000:]
    return IMAGE


def reaches_registry() -> bool:
    """Return whether this machine reaches the registry of the pinned images."""
    with contextlib.suppress(OSError):
        connection = http.client.HTTPSConnection("registry-1.docker.io", timeout=5)
        with contextlib.closing(connection):
            connection.request("GET", "/v2/")
            return connection.getresponse().status in (200, 401)
    return False


@contextlib.contextmanager
def network() -> Iterator[tuple[str, str]]:
    """Yield the name of a network of containers, and the address of this machine in it."""
    name = f"dither-{uuid.uuid4().hex[:8]}"
    podman("network", "create", name)
    held = ""
    try:  # the machine has the address while a container is in the network
        command = ("--entrypoint", "sleep", IMAGE, "infinity")
        held = podman("run", "--detach", "--network", name, *command)
        (described,) = json.loads(podman("network", "inspect", name))
        yield name, described["subnets"][0]["gateway"]
    finally:
        if held:
            podman("rm", "--force", "--time", "0", held, check=False)
        podman("network", "rm", "--force", name, check=False)


class Pods:
    """The pods of deployments.

    Parameters
    ----------
    manifests : sequence of dict
        The manifests, as kustomize renders them.
    maps : mapping
        Further ConfigMaps: for each name, the files of the map.
    secrets : mapping
        Secrets: for each name, the files of the secret.
    network : str
    folder : Path
        The folder for the files that are mounted.
    """

    def __init__(
        self,
        manifests: Sequence[Manifest],
        maps: Mapping[str, Mapping[str, str]],
        secrets: Mapping[str, Mapping[str, str]],
        network: str,
        folder: Path,
    ) -> None:
        self._deployments = {
            each["metadata"]["name"]: each["spec"]
            for each in manifests
            if each["kind"] == "Deployment"
        }
        own = {each["metadata"]["name"]: each["data"] for each in manifests if "data" in each}
        self._files = {"configMap": {**own, **maps}, "secret": secrets}
        self._network, self._folder = network, folder
        self._suffix = uuid.uuid4().hex[:6]
        self.running: dict[str, str] = {}
        """Names of pods in podman, by deployment and number: ``dither-worker-0``."""

    def __enter__(self) -> Pods:
        try:
            for name, spec in self._deployments.items():
                for number in range(spec["replicas"]):
                    self.start(f"{name}-{number}")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for pod in list(self.running):
            self.delete(pod)

    def specification(self, pod: str) -> Manifest:
        """Return a pod's specification, as the manifest has it."""
        spec: Manifest = self._deployments[pod.rpartition("-")[0]]["template"]["spec"]
        return spec

    def start(self, pod: str) -> None:
        """Start a pod, as a scheduler does."""
        spec = copy.deepcopy(self.specification(pod))
        for volume in spec["volumes"]:
            volume["hostPath"] = {"path": str(self._mounted(pod, volume, spec)), "type": ""}
            volume.pop("configMap", None)
            volume.pop("secret", None)
        for container in spec["containers"]:
            for name in ("startupProbe", "livenessProbe", "readinessProbe", "ports"):
                container.pop(name, None)  # podman would take this machine's ports
        name = f"{pod}-{self._suffix}"
        file = self._folder / f"{name}.yaml"
        whole = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
        file.write_text(yaml.safe_dump(whole))
        self.running[pod] = name
        podman("play", "kube", "--network", self._network, str(file))

    def _mounted(self, pod: str, volume: Manifest, spec: Manifest) -> Path:
        """Return a folder with the files of a volume, as a kubelet mounts them."""
        (kind,) = volume.keys() & self._files.keys()
        source: Manifest = volume[kind]
        files = self._files[kind][source.get("name") or source["secretName"]]
        folder = self._folder / pod / str(volume["name"])
        folder.mkdir(parents=True, exist_ok=True)
        group = spec["securityContext"]["fsGroup"]
        for name, text in files.items():
            (folder / name).write_text(text)
            os.chown(folder / name, 0, group)
            (folder / name).chmod(source.get("defaultMode", 0o644))
        return folder

    def delete(self, pod: str) -> None:
        """Remove a pod at once, as if its machine had gone."""
        podman("pod", "rm", "--force", "--time", "0", self.running.pop(pod), check=False)

    def container(self, pod: str) -> str:
        """Return the name of a pod's only container."""
        (only,) = self.specification(pod)["containers"]
        return f"{self.running[pod]}-{only['name']}"

    def state(self, pod: str) -> Manifest:
        """Return the state of a pod's container, as podman reports it."""
        (described,) = json.loads(podman("inspect", self.container(pod)))
        assert isinstance(described, dict)
        return described

    def signal(self, pod: str, number: signal.Signals) -> None:
        """Send a signal to a container's first process, from outside."""
        os.kill(self.state(pod)["State"]["Pid"], number)

    def restart(self, pod: str) -> None:
        """Kill a container and start it, as a kubelet does when its liveness probe fails."""
        podman("restart", "--time", "0", self.container(pod))

    def address(self, pod: str) -> str:
        """Return a pod's address."""
        infra = json.loads(podman("pod", "inspect", self.running[pod]))["InfraContainerID"]
        (described,) = json.loads(podman("inspect", infra))
        address = described["NetworkSettings"]["Networks"][self._network]["IPAddress"]
        assert isinstance(address, str)
        return address

    def logs(self, pod: str) -> str:
        """Return a container's log."""
        return podman("logs", self.container(pod), check=False)

    def probe(self, pod: str, name: str) -> bool:
        """Make a request as a probe of the manifest does, and return whether it succeeds."""
        (only,) = self.specification(pod)["containers"]
        probe = only[f"{name}Probe"]
        asked = probe["httpGet"]
        ports = {port["name"]: port["containerPort"] for port in only["ports"]}
        place = self.address(pod), ports[asked["port"]]
        seconds = probe.get("timeoutSeconds", 1)
        if asked.get("scheme") == "HTTPS":
            unverified = ssl.create_default_context()
            unverified.check_hostname = False  # as a kubelet
            unverified.verify_mode = ssl.CERT_NONE
            connection: http.client.HTTPConnection = http.client.HTTPSConnection(
                *place, timeout=seconds, context=unverified
            )
        else:
            connection = http.client.HTTPConnection(*place, timeout=seconds)
        with contextlib.closing(connection):
            try:
                connection.request("GET", asked["path"])
                return 200 <= connection.getresponse().status < 400
            except (OSError, http.client.HTTPException):
                return False
