"""A real API server of Kubernetes takes the manifests: the base, and with each component."""

import contextlib
import json
import os
import secrets
import shutil
import ssl
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped, unused-ignore]
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from deploy.kafka.cluster import free_ports
from tests.support.paths import ROOT
from tests.support.running.deployment import wait_until
from tests.support.running.go_programs import go_programs, module_folder

SOURCE = ROOT / "tests" / "support" / "kubernetes"
BUILD_SECONDS = 1200
"""On two cores that have other work, too."""

Kubectl = Callable[..., subprocess.CompletedProcess[str]]


def built() -> list[Path]:
    """Return etcd, the API server and kubectl; the test is skipped where they cannot be built."""
    return go_programs(SOURCE, ["etcd", "kube-apiserver", "kubectl"], "Kubernetes")


@contextlib.contextmanager
def api_server(folder: Path) -> Iterator[Kubectl]:
    """Run an API server without controllers or nodes; yield kubectl for its administrator."""
    etcd, server, kubectl = built()
    first, second, port = free_ports(3)
    url, peers = (f"http://127.0.0.1:{number}" for number in (first, second))
    token = secrets.token_hex(16)
    (folder / "tokens.csv").write_text(f"{token},admin,1,system:masters\n")
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    accounts = folder / "accounts.pem"
    accounts.write_bytes(
        key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption())
    )
    commands = [
        [
            *(str(etcd), "--data-dir", str(folder / "etcd")),
            *("--listen-client-urls", url, "--advertise-client-urls", url),
            *("--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers),
            *("--initial-cluster", f"default={peers}"),
        ],
        [
            *(str(server), "--etcd-servers", url, "--bind-address", "127.0.0.1"),
            *("--secure-port", str(port), "--cert-dir", str(folder / "certificates")),
            *("--service-account-issuer", "https://kubernetes.default.svc"),
            *("--service-account-key-file", str(accounts)),
            *("--service-account-signing-key-file", str(accounts)),
            *("--token-auth-file", str(folder / "tokens.csv")),
            *("--authorization-mode", "AlwaysAllow"),
            *("--disable-admission-plugins", "ServiceAccount"),  # no controller makes accounts
        ],
    ]

    def run(*words: str, text: str | None = None) -> subprocess.CompletedProcess[str]:
        place = ["--server", f"https://127.0.0.1:{port}", "--insecure-skip-tls-verify"]
        return subprocess.run(
            [str(kubectl), *place, "--token", token, *words],
            env={**os.environ, "KUBECONFIG": os.devnull, "HOME": str(folder)},
            input=text,
            capture_output=True,
            text=True,
            check=False,
        )

    with contextlib.ExitStack() as ending:
        for command in commands:
            log = ending.enter_context((folder / f"{Path(command[0]).name}.log").open("wb"))
            process = subprocess.Popen(command, stdout=log, stderr=log)
            ending.callback(process.wait, 30)
            ending.callback(process.terminate)
        wait_until(lambda: _is_ready(port, token), "the API server is ready")
        yield run


def _is_ready(port: int, token: str) -> bool:
    request = urllib.request.Request(f"https://127.0.0.1:{port}/readyz")
    request.add_header("Authorization", f"Bearer {token}")
    trusting = ssl._create_unverified_context()  # noqa: S323
    try:
        with urllib.request.urlopen(request, context=trusting, timeout=5) as found:  # noqa: S310
            return bool(found.status == 200)
    except (urllib.error.URLError, ConnectionError):
        return False


COMPONENTS = ("monitoring", "ingress", "autoscaling")
OPERATORS = {
    "github.com/prometheus-operator/prometheus-operator@v0.85.0": (
        "h1:M5xLCLEoaW2IJfnuCwFzzpL+jSVQu3KGT84Pye+fW8s=",
        "example/prometheus-operator-crd",
        ("monitoring.coreos.com_servicemonitors", "monitoring.coreos.com_prometheusrules"),
    ),
    "github.com/kedacore/keda/v2@v2.18.1": (
        "h1:h6bRt/IOxxtZpJlHSqhdH/lcInH7Z9obxg/JvWOmGAw=",
        "config/crd/bases",
        ("keda.sh_scaledobjects",),
    ),
}
"""The modules that have the operators' custom resources: digest, folder and files."""
ON_THE_HOST = """
apiVersion: v1
kind: Pod
metadata: {name: one, namespace: dither}
spec: {hostNetwork: true, containers: [{name: one, image: dither}]}
"""


@pytest.mark.slow
@pytest.mark.timeout(BUILD_SECONDS + 300)
def test_an_api_server_takes_the_manifests_and_their_pods_are_allowed(tmp_path: Path) -> None:
    files = custom_resources()
    overlay = tmp_path / "overlay"
    shutil.copytree(ROOT / "deploy" / "kubernetes", overlay / "kubernetes")
    listed = [f"kubernetes/components/{name}" for name in COMPONENTS]
    described = yaml.safe_dump({"resources": ["kubernetes"], "components": listed})
    (overlay / "kustomization.yaml").write_text(described)
    with api_server(tmp_path) as kubectl:
        done(kubectl, "apply", "-k", str(overlay / "kubernetes"))
        missing = kubectl("apply", "-k", str(overlay), "--dry-run=server")
        assert 'no matches for kind "ServiceMonitor"' in missing.stderr
        words = ["apply", "--server-side", *(word for file in files for word in ("-f", str(file)))]
        done(kubectl, *words)
        resources = [yaml.safe_load(file.read_text()) for file in files]
        names = [f"crd/{each['metadata']['name']}" for each in resources]
        done(kubectl, "wait", "--for=condition=Established", "--timeout=60s", *names)
        found = done(kubectl, "apply", "-k", str(overlay))
        assert {"scaledobject", "servicemonitor", "prometheusrule", "ingress"} <= {
            line.partition("/")[0].partition(".")[0] for line in found.splitlines()
        }
        assert done(kubectl, "diff", "-k", str(overlay)) == "", "nothing is set to another value"

        refused = kubectl("apply", "-f", "-", "--dry-run=server", text=ON_THE_HOST)
        assert 'violates PodSecurity "restricted' in refused.stderr
        deployments = json.loads(done(kubectl, "get", "deployments", "-n", "dither", "-o", "json"))
        assert len(deployments["items"]) == 4
        for one in deployments["items"]:
            pod = pod_of(one)
            assert "created" in done(
                kubectl, "apply", "-f", "-", "--dry-run=server", text=json.dumps(pod)
            )


def done(kubectl: Kubectl, *words: str, text: str | None = None) -> str:
    """Run kubectl; what the server warns of is a failure, too."""
    ran = kubectl(*words, text=text)
    assert (ran.returncode, ran.stderr) == (0, ""), ran.stdout + ran.stderr
    return ran.stdout


def custom_resources() -> list[Path]:
    """Return the files of the operators' custom resources."""
    return [
        module_folder(module, digest, "the operators' custom resources") / folder / f"{name}.yaml"
        for module, (digest, folder, names) in OPERATORS.items()
        for name in names
    ]


def pod_of(deployment: dict[str, Any]) -> dict[str, Any]:
    """Return a pod as the controller would make it."""
    template = deployment["spec"]["template"]
    name, namespace = deployment["metadata"]["name"], deployment["metadata"]["namespace"]
    about = {**template["metadata"], "name": name, "namespace": namespace}
    about.pop("creationTimestamp", None)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": about, "spec": template["spec"]}
