"""The deployment's files agree with each other and with the programs that read them."""

import json
import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped, unused-ignore]
from click.testing import CliRunner

from aggregator.cli.commands.relay import NEEDED_OPTIONS
from aggregator.cli.main import cli
from aggregator.config.settings import Serve, load_settings
from aggregator.web.http.hosts import expected, is_expected
from deploy import audit, images, reproduction
from deploy.audit import verdict
from deploy.kafka.distribution import kafka_version
from estimators import SearchMetric, load_metrics
from reproduction.experiments import EXPERIMENTS
from tests.services.deploy.test_prometheus import promtool
from tests.support.paths import ROOT
from tests.support.rows import row

DEPLOY = ROOT / "deploy"


@pytest.fixture
def services() -> dict[str, Any]:
    composed: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    return composed


@pytest.fixture
def dockerfile() -> str:
    return (DEPLOY / "Dockerfile").read_text()


def test_prometheus_scrapes_services_of_the_composition(services: dict[str, Any]) -> None:
    file = DEPLOY / "prometheus" / "prometheus.yml"
    promtool("check", "config", file)
    configuration = yaml.safe_load(file.read_text())
    assert configuration["rule_files"] == ["rules.yml", "alerts.yml"]
    jobs = configuration["scrape_configs"]
    targets = [target for job in jobs for one in job["static_configs"] for target in one["targets"]]
    port = services["serve"]["environment"]["DITHER_SERVE_PORT"]
    assert f"serve:{port}" in targets
    names = expected(Serve(host=services["serve"]["environment"]["DITHER_SERVE_HOST"]))
    assert all(is_expected(target, names) for target in (f"serve:{port}", f"localhost:{port}"))
    assert {target.partition(":")[0] for target in targets} <= {*services, "localhost"}


SERVICES = ("aggregate", "coordinate", "serve")


def test_dither_accepts_settings_and_commands_of_the_composition(services: dict[str, Any]) -> None:
    for service in SERVICES:
        given = services[service]
        settings = load_settings(environ=given["environment"])
        with row(service):
            assert settings.kafka["bootstrap.servers"] == "kafka:19092"
            assert settings.redis.url == "redis://redis:6379/0"
            assert (settings.serve.host, settings.serve.port) == ("0.0.0.0", 8080)  # noqa: S104
            assert f"./metrics.toml:{settings.metrics}:ro" in given["volumes"]
            assert CliRunner().invoke(cli, [*given["command"], "--help"]).exit_code == 0
            assert given["command"][0] == service
            own = getattr(settings, service)
            asked = f":{own.port}/readyz" if service == "serve" else f":{own.health_port}/healthz"
            assert asked in given["healthcheck"]["test"][-1]
    before = yaml.safe_load((DEPLOY / "compose.tls.yaml").read_text())["services"]
    serve = load_settings(environ=before["serve"]["environment"]).serve
    assert serve.hosts == ["reports.example.com", "serve"], "devices and Prometheus"
    assert serve.trusted_proxies == [before["proxy"]["networks"]["default"]["ipv4_address"]]
    for given in (*services.values(), before["proxy"]):
        assert all("healthcheck" in services[awaited] for awaited in given.get("depends_on", {}))


def test_the_images_are_built_from_the_pinned_base_unless_told_otherwise() -> None:
    for engine in ("docker", "buildah"):
        command = images.build_command(engine, ["one", "two"], None)
        assert not any("PYTHON=" in word for word in command)
        assert command.count("--tag") == 2
        assert "PYTHON=other" in images.build_command(engine, ["one"], "other")


def test_the_site_fetches_no_font_and_no_script_from_another_host() -> None:
    text = (ROOT / "mkdocs.yml").read_text()
    assert re.search(r"^  font: false\b", text, re.MULTILINE)
    assert not re.search(r"^extra_(css|javascript):.*//", text, re.MULTILINE)


PAGE = reproduction.PAGE.read_text()
BLOCKS = {block["name"]: block for block in reproduction.BLOCK.finditer(PAGE)}


def test_every_experiment_has_a_block_that_is_headed_as_its_command_heads_it() -> None:
    assert set(BLOCKS) == set(EXPERIMENTS)
    for name, experiment in EXPERIMENTS.items():
        block = BLOCKS[name]
        options = dict(zip(*[iter(block["options"].split())] * 2, strict=True))
        runs = options.get("--runs", str(experiment.runs))
        with row(name):
            assert block["printed"].startswith(
                f"{name}: {experiment.title}\n{experiment.source}. Data: {experiment.data}.\n"
                f"runs: {runs}, seed: {options['--seed']}\n"
            )
            assert f"\n## {name}\n" in PAGE
            has_image = f"(images/reproduction/{name}.png)" in PAGE
            assert has_image == reproduction.image(name).exists()


def test_the_example_metrics_are_valid_and_have_something_to_coordinate() -> None:
    metrics = load_metrics(DEPLOY / "metrics.toml")
    assert set(metrics) == {"response_time", "crashed", "feature", "longest_start"}
    assert metrics == load_metrics(DEPLOY / "kubernetes" / "metrics.toml")
    assert isinstance(metrics["longest_start"], SearchMetric)


def test_the_composition_and_the_tests_run_the_same_kafka(services: dict[str, Any]) -> None:
    assert services["kafka"]["image"].partition("@")[0] == f"apache/kafka:{kafka_version()}"


def test_dither_accepts_the_commands_and_settings_of_a_relay() -> None:
    composed = yaml.safe_load((DEPLOY / "compose.relay.yaml").read_text())["services"]["relay"]
    folder = DEPLOY / "kubernetes" / "relay"
    (pod,) = (
        each["spec"]["template"]["spec"]
        for each in yaml.safe_load_all((folder / "relay.yaml").read_text())
        if each["kind"] == "StatefulSet"
    )
    (container,) = pod["containers"]
    environs = {
        "composition": (composed["command"], composed["environment"]),
        "pod": (container["args"], {each["name"]: each["value"] for each in container["env"]}),
    }
    for name, (words, environ) in environs.items():
        with row(name):
            options = {word.partition("=")[0].lstrip("-").replace("-", "_") for word in words[1:]}
            assert {*NEEDED_OPTIONS, "metrics", "listen", "health_port"} <= options
            assert CliRunner().invoke(cli, [*words, "--help"]).exit_code == 0
            assert load_settings(environ=environ).serve.tls_certificate.endswith("tls.crt")
    assert all(metric.crowd for metric in load_metrics(folder / "metrics.toml").values())


BASE = re.compile(r"^ARG PYTHON=(\S+)$", re.MULTILINE)
EXACT = re.compile(r"[a-z0-9./-]+:v?\d+\.\d+\.\d+(-[a-z]+)*(@sha256:[0-9a-f]{64})?")
BY_VERSION = {"redis"}
"""Images whose digest nobody has looked up; an exact version can still be pushed anew."""


def test_every_image_is_pinned(services: dict[str, Any], dockerfile: str) -> None:
    images = [service["image"] for service in services.values() if "build" not in service]
    images += BASE.findall(dockerfile)
    assert len(images) == 5
    for image in images:
        assert EXACT.fullmatch(image), f"{image}: expected an exact version"
        assert "@sha256:" in image or image.partition(":")[0] in BY_VERSION, image
    assert set(re.findall(r"^FROM (\S+)", dockerfile, re.MULTILINE)) == {"${PYTHON}"}
    assert "# syntax=" not in dockerfile, "a frontend that is fetched would be one more image"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (ours,) = yaml.safe_load((DEPLOY / "kubernetes" / "kustomization.yaml").read_text())["images"]
    assert ours["newTag"] == project["version"]


def test_the_image_is_built_by_the_uv_of_the_lock(dockerfile: str, tmp_path: Path) -> None:
    (extract,) = re.findall(r"^RUN (sed .*) \\$", dockerfile, re.MULTILINE)
    shutil.copy(ROOT / "requirements.lock", tmp_path)
    subprocess.run(extract, shell=True, cwd=tmp_path, check=True)  # noqa: S602
    first, *hashes = (tmp_path / "uv.lock").read_text().replace("\\\n", "").split()
    assert re.fullmatch(r"uv==\d+\.\d+\.\d+", first)
    assert hashes
    assert all(re.fullmatch(r"--hash=sha256:[0-9a-f]{64}", each) for each in hashes)
    assert "pip install --no-cache-dir --require-hashes --requirement uv.lock" in dockerfile
    assert dockerfile.count("pip install") == 3, "the others are uv's, with the lock"
    assert dockerfile.count("uv pip install") == 2
    assert dockerfile.count("constraint") >= 2


def test_the_image_has_every_package_and_a_supported_python_and_no_root(dockerfile: str) -> None:
    described = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packages = described["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    allowed = (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines()
    assert set(packages) <= set(re.findall(r"^COPY (\w+) \./", dockerfile, re.MULTILINE))
    assert all(f"!{package}" in allowed for package in packages)
    project = described["project"]
    (command,) = project["scripts"]
    assert f'ENTRYPOINT ["{command}"]' in dockerfile
    (version,) = set(re.findall(r"/python:(\d+\.\d+)\.", dockerfile))
    assert f"Programming Language :: Python :: {version}" in project["classifiers"]
    (user,) = re.findall(r"^USER (\d+):(\d+)$", dockerfile, re.MULTILINE)
    assert user == ("10001", "10001"), "by number: Kubernetes cannot tell a name from root's"


def test_the_composition_is_unprivileged_local_and_bounded(services: dict[str, Any]) -> None:
    for service in SERVICES:
        given = services[service]
        with row(service):
            assert given["read_only"] is True
            assert given["cap_drop"] == ["ALL"]
            assert not {"privileged", "cap_add", "user", "network_mode", "pid"} & given.keys()
            assert "mem_limit" in given
    command = services["redis"]["command"]
    assert command[command.index("--maxmemory-policy") + 1] == "noeviction"
    assert "--maxmemory" in command
    published = [port for each in services.values() for port in each.get("ports", [])]
    assert published
    assert all(port.startswith("127.0.0.1:") for port in published)
    assert all(each["security_opt"] == ["no-new-privileges:true"] for each in services.values())


FINE: dict[str, Any] = {"name": "starlette", "version": "1.10.0", "vulns": []}
SKIPPED: dict[str, Any] = {"name": "anyio", "skip_reason": "Dependency not found on PyPI"}
FIXED = {"id": "PYSEC-2026-1", "fix_versions": ["1.10.1"], "description": "bad"}
UNFIXED = {"id": "GHSA-xxxx", "fix_versions": [], "description": "worse"}
BAD: dict[str, Any] = {**FINE, "vulns": [FIXED, UNFIXED]}


def of(*dependencies: dict[str, Any], code: int = 0, errors: str = "") -> audit.Verdict:
    return verdict(code, json.dumps({"dependencies": dependencies, "fixes": []}), errors)


def test_a_known_vulnerability_fails_and_what_was_not_audited_is_told() -> None:
    assert of(FINE, FINE) == audit.Verdict(0, "audit: 2 packages have no known vulnerability")
    for found in (of(FINE, BAD, code=1), of(BAD, SKIPPED, code=1), of(BAD, code=0)):
        assert found.code == 1
        assert "2 known vulnerabilities" in found.told
        assert "starlette 1.10.0: PYSEC-2026-1, fixed in 1.10.1" in found.told
    found = of(FINE, *[SKIPPED] * 7)
    assert (found.code, "NOT AUDITED: 7 that the database" in found.told) == (0, True)
    away = verdict(1, "", "requests.exceptions.ConnectionError: Failed to resolve 'pypi.org'")
    for found in (of(SKIPPED, SKIPPED), verdict(None, "", ""), away):
        assert (found.code, "NOTHING WAS AUDITED" in found.told) == (0, True)
    for found in (verdict(2, "", "usage: pip-audit"), verdict(1, "[]", ""), of(FINE, code=1)):
        assert (found.code, "pip-audit failed with exit code" in found.told) == (1, True)
