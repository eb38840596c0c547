"""A real API server of Kubernetes with its etcd, and kubectl: built from Go modules."""

import contextlib
import os
import secrets
import ssl
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from tests.support.paths import ROOT
from tests.support.running.deployment import wait_until
from tests.support.running.go_programs import go_programs
from tests.support.running.prometheus import free_port

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
    url, peers = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
    port = free_port()
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
