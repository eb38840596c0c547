"""Prometheus' rules and Grafana's dashboards: tested, and about metrics that exist."""

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped, unused-ignore]

from aggregator.monitoring.reference import all_exported
from aggregator.monitoring.relay_metrics import RELAY_METRICS
from deploy.grafana.build import FOLDER as GRAFANA
from deploy.grafana.build import documents
from tests.support.paths import ROOT
from tests.support.rows import row
from tests.support.running.processes import run
from tests.support.running.servers import program

FOLDER = ROOT / "deploy" / "prometheus"
REMEDY = "install Prometheus (Debian: prometheus)"
SEVERITIES = {"critical", "warning", "info"}
SUFFIXES = {"histogram": ("_bucket", "_sum", "_count")}
NAMES = {
    one.scraped + suffix
    for one in (*all_exported(), *RELAY_METRICS)
    for suffix in SUFFIXES.get(one.type, ("",))
}
"""Of the series that are exported."""


def rules(file: str) -> list[dict[str, Any]]:
    groups = yaml.safe_load((FOLDER / file).read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


ALERTS = rules("alerts.yml")
RECORDED = {rule["record"] for rule in rules("rules.yml")}


def promtool(*arguments: str | Path) -> None:
    run([program("promtool", REMEDY), *arguments])


def assert_names_exist(expression: str, others: Iterable[str] = ("up{",)) -> None:
    """Assert that an expression names metrics that are exported or recorded, and no others."""
    named = set(re.findall(r"[a-z]+:dither\w+:\w+|(?<![:\w])dither_\w+", expression))
    assert named <= NAMES | RECORDED
    assert named or any(name in expression for name in others)


@pytest.mark.parametrize(
    "file", ["rules.test.yml", pytest.param("alerts.test.yml", marks=pytest.mark.more)]
)
def test_the_rules_do_what_they_say(file: str) -> None:
    promtool("test", "rules", FOLDER / file)


def rules_of_page(page: str) -> list[dict[str, Any]]:
    """Return the alerts that a page proposes."""
    blocks = re.findall(r"```yaml\n(- alert:.*?)```", (ROOT / "docs" / page).read_text(), re.DOTALL)
    return [rule for block in blocks for rule in yaml.safe_load(block)]


FORWARDED = """
evaluation_interval: 1h
rule_files: [rules.yml]
tests:
  - name: an alarm that is raised after 30 hours, while one of the servers is replaced
    interval: 5m
    input_series:
      - {series: 'dither_alarms_total{instance="a", alarm="moved"}', values: 3x359}
      - {series: 'dither_alarms_total{instance="b", alarm="moved"}', values: _x360 4x360}
      - {series: 'dither_alarms_total{instance="c", alarm="moved"}', values: 3x359 4x360}
      - {series: 'dither_alarms_total{instance="a", alarm="quiet"}', values: 3x720}
    alert_rule_test:
      - {alertname: MetricMoved, eval_time: 29h, exp_alerts: []}
      - &raised
        alertname: MetricMoved
        eval_time: 31h
        exp_alerts:
          - exp_labels: {alarm: moved}
            exp_annotations: {summary: "moved: its metric has moved"}
      - {<<: *raised, eval_time: 53h}
      - {alertname: MetricMoved, eval_time: 55h, exp_alerts: []}
"""


def test_the_rule_that_forwards_alarms_fires_for_a_day(tmp_path: Path) -> None:
    rules = {"groups": [{"name": "page", "rules": rules_of_page("alarms.md")}]}
    (tmp_path / "rules.yml").write_text(yaml.safe_dump(rules))
    (tmp_path / "test.yml").write_text(FORWARDED)
    promtool("test", "rules", tmp_path / "test.yml")


def test_rules_are_well_formed_and_name_metrics_that_exist() -> None:
    promtool("check", "rules", "--lint-fatal", FOLDER / "rules.yml", FOLDER / "alerts.yml")
    proposed = [*rules_of_page("alarms.md"), *rules_of_page("monitoring.md")]
    assert len(proposed) > 1
    for rule in [*rules("rules.yml"), *ALERTS, *proposed]:
        with row(rule.get("alert", rule.get("record"))):
            assert_names_exist(rule["expr"])


def test_an_alert_is_tested_both_ways_and_says_what_to_do() -> None:
    tests = yaml.safe_load((FOLDER / "alerts.test.yml").read_text())["tests"]
    text = (ROOT / "docs" / "operations.md").read_text()
    titles = re.findall(r"^## (.*)$", text, re.MULTILINE)
    headings = {re.sub(r"[^a-z0-9-]", "", t.lower().replace(" ", "-")): t for t in titles}
    for rule in ALERTS:
        cases = [c for t in tests for c in t["alert_rule_test"] if c["alertname"] == rule["alert"]]
        with row(rule["alert"]):
            assert {bool(case["exp_alerts"]) for case in cases} == {True, False}
            assert rule["labels"]["severity"] in SEVERITIES
            assert rule["annotations"].keys() == {"summary", "description", "runbook_url"}
            url, _, section = rule["annotations"]["runbook_url"].partition("#")
            assert url == "https://docs.dither.example.com/operations.html", "a page of `make docs`"
            body = text.partition(f"## {headings[section]}\n")[2].partition("\n## ")[0]
            assert all(part in body for part in ("**Means.**", "**Check.**", "**Do.**"))
    assert titles.pop() == "Redis", "what it may answer, which other messages point to"
    assert titles == [rule["alert"] for rule in ALERTS], "no section without an alert"


# -- Grafana's dashboards ------------------------------------------------------------------------

DASHBOARDS: dict[str, dict[str, Any]] = {
    file.stem: json.loads(file.read_text()) for file in sorted(GRAFANA.glob("*.json"))
}
PANELS = [
    (f"{name}: {panel['title']}", panel)
    for name, dashboard in DASHBOARDS.items()
    for panel in dashboard["panels"]
    if panel["type"] != "row"
]
OF_PROMETHEUS = {"ALERTS", "scrape_duration_seconds"}


def test_the_files_are_what_the_generator_writes() -> None:
    assert {file: file.read_text() for file in GRAFANA.glob("*")} == documents(), (
        "run: python -m deploy.grafana.build"
    )


def test_a_panel_says_what_it_shows_and_asks_for_what_exists() -> None:
    """Grafana finds a field of an override, and the lower edge of a band, by its name."""
    assert len(PANELS) > 50
    for name, panel in PANELS:
        with row(name):
            defaults, targets = panel["fieldConfig"]["defaults"], panel["targets"]
            assert defaults["unit"]
            assert defaults["thresholds"]["steps"][0]["value"] is None
            assert re.fullmatch(r"[A-Z].*\.", panel["description"])
            assert len({target["refId"] for target in targets}) == len(targets) > 0
            for where in (panel, *targets):
                assert where["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
            for target in targets:
                assert_names_exist(target["expr"], OF_PROMETHEUS)
            fields = {target["legendFormat"] for target in targets}
            for step in panel.get("transformations", []):
                if step["id"] == "organize":
                    options = step["options"]
                    fields |= {*options["renameByName"].values(), *options["indexByName"]}
            for override in panel["fieldConfig"]["overrides"]:
                assert override["matcher"]["options"] in fields
                properties = {one["id"]: one["value"] for one in override["properties"]}
                assert properties.get("custom.fillBelowTo", next(iter(fields))) in fields
