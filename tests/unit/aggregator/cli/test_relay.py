"""The command `dither relay`, as a process, and the key that it makes."""

import signal
import stat
from pathlib import Path

import pytest
from click.testing import CliRunner

from aggregator.cli.main import cli
from deploy.kafka.cluster import free_ports
from producers.sealing import read_private_key
from tests.support.rows import row
from tests.support.running import fleet, http_client
from tests.support.running.deployment import wait_until

KEY = bytes(range(32))
DEFINITION = """
[metrics.late]
kind = "mean"
mechanism = "randomized_response"
range = [0, 1]
levels = [3]
pane = "1d"
lateness = "1d"
"""
CROWD = 'crowd = { minimum = 100, wait = "1h" }'


@pytest.fixture
def options(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "metrics.toml").write_text(DEFINITION + CROWD)
    (tmp_path / "token").write_text("dither_relay\n")
    return {
        "listen": f"127.0.0.1:{free_ports(1)[0]}",
        "to": "http://127.0.0.1:1",
        "token-file": str(tmp_path / "token"),
        "metrics": str(tmp_path / "metrics.toml"),
        "key": KEY.hex(),
        "folder": str(tmp_path / "reports"),
    }


def words(options: dict[str, str], **changes: str) -> list[str]:
    return ["relay", *(f"--{name}={value}" for name, value in {**options, **changes}.items())]


def failure(line: list[str]) -> str:
    ran = CliRunner().invoke(cli, line)
    assert ran.exit_code
    return f"{ran.output}{ran.exception}"


def test_a_relay_says_what_it_lacks(options: dict[str, str], tmp_path: Path) -> None:
    plain = tmp_path / "plain.toml"
    plain.write_text(DEFINITION)
    rows = {
        "listen": ("8443", "expected HOST:PORT"),
        "to": ("dither.example.com", "service = 'dither.example.com': expected"),
        "token-file": (str(tmp_path / "none"), "none: No such file"),
        "metrics": (str(plain), "no metric has a crowd"),
        "key": ("00" * 32, "expected a public key of X25519"),
        "folder": (str(plain), "plain.toml: File exists"),
    }
    for name, (value, told) in rows.items():
        with row(name):
            assert told in failure(words(options, **{name: value}))
            left = {key: value for key, value in options.items() if key != name}
            if name not in ("listen", "metrics"):
                assert f"Missing option '--{name}'" in failure(words(left))


def test_a_crowd_that_proves_nothing_is_told_at_the_start(options: dict[str, str]) -> None:
    """Each command fails in its next step."""
    away = f"--metrics={options['metrics']}", "--redis=redis://127.0.0.1:1"
    for line in (
        words(options, folder=options["metrics"]),
        ["serve", f"--port={free_ports(1)[0]}", *away],
        ["up", "--folder=counts", *away],
    ):
        with row(line[0]):
            assert "a crowd of 100 proves no epsilon below 3" in failure(line)


def test_a_key_is_written_for_its_owner_alone_and_never_over_another(tmp_path: Path) -> None:
    path = tmp_path / "crowds.key"
    made = CliRunner().invoke(cli, ["relay", "keygen", str(path)])
    private = path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    public_key = read_private_key(private.strip()).public_key().public_bytes_raw()
    assert made.output == f"{public_key.hex()}\n"
    assert "expected a new file" in failure(["relay", "keygen", str(path)])
    assert path.read_text() == private


def test_the_process_answers_at_its_ports_and_leaves_the_folder(options: dict[str, str]) -> None:
    address, health = f"http://{options['listen']}", f"http://127.0.0.1:{free_ports(1)[0]}"
    health_port = f"--health-port={health.rpartition(':')[2]}"
    process = fleet.start("relay", [*words(options)[1:], health_port])
    try:
        urls = f"{health}/readyz", f"{address}/v1/key"
        wait_until(lambda: all(http_client.status(url) == 200 for url in urls), str(urls))
        assert http_client.get(f"{address}/v1/key").json() == {"key": KEY.hex()}
        assert http_client.get(f"{address}/v1/metrics/late").json()["crowd"]["minimum"] == 100
        assert http_client.status(f"{address}/v1/metrics/early") == 404
        assert http_client.status(f"{address}/metrics") == 404
        assert "dither_relay_overdue_parts 0.0" in http_client.get(f"{health}/metrics").text
        assert http_client.get(f"{health}/healthz").text == "ok\n"
        media = {"Content-Type": "application/octet-stream"}
        posts = [http_client.post(f"{address}/v1/sealed", headers=media) for _ in range(6)]
        assert [post.status_code for post in posts] == [400] * 5 + [429], "1 / 20 of a crowd"
        second = words(options, listen=f"127.0.0.1:{free_ports(1)[0]}")
        assert "another relay uses it" in failure(second)
    finally:
        process.terminate()
        process.join(60)
    assert process.exitcode in (0, -signal.SIGTERM)
