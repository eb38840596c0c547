"""Grafana's dashboards: generated, well-formed, explained, and about metrics that exist."""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped, unused-ignore]

from deploy.grafana.build import FOLDER, documents
from tests.services.deploy.test_prometheus import NAMES, RECORDED
from tests.support.paths import ROOT

DASHBOARDS: dict[str, dict[str, Any]] = {
    file.stem: json.loads(file.read_text()) for file in sorted(FOLDER.glob("*.json"))
}
PANELS = [
    pytest.param(panel, id=f"{name}: {panel['title']}")
    for name, dashboard in DASHBOARDS.items()
    for panel in dashboard["panels"]
    if panel["type"] != "row"
]
OF_PROMETHEUS = {"ALERTS", "scrape_duration_seconds"}
VARIABLES = re.compile(r"\$\{?(\w+)")


@pytest.fixture(params=DASHBOARDS)
def dashboard(request: pytest.FixtureRequest) -> dict[str, Any]:
    return DASHBOARDS[request.param]


def test_the_files_are_what_the_generator_writes() -> None:
    assert {file: file.read_text() for file in FOLDER.glob("*")} == documents(), (
        "run: python -m deploy.grafana.build"
    )


def test_dashboards_and_panels_can_be_told_apart(dashboard: dict[str, Any]) -> None:
    for key in ("uid", "title", "description"):
        assert len({d[key] for d in DASHBOARDS.values()}) == len(DASHBOARDS)
    assert re.fullmatch(r"[a-zA-Z0-9_-]{1,40}", dashboard["uid"])
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(set(ids)) == len(ids)
    for panel in dashboard["panels"]:
        letters = [target["refId"] for target in panel.get("targets", [])]
        assert len(set(letters)) == len(letters)


def test_panels_fill_the_width_without_overlap(dashboard: dict[str, Any]) -> None:
    taken: dict[tuple[int, int], int] = {}
    for panel in dashboard["panels"]:
        place = panel["gridPos"]
        assert place["w"] > 0
        assert place["x"] + place["w"] <= 24
        rows = range(place["y"], place["y"] + place["h"])
        for cell in itertools.product(range(place["x"], place["x"] + place["w"]), rows):
            assert taken.setdefault(cell, panel["id"]) == panel["id"]
    height = 1 + max(y for _, y in taken)
    assert len(taken) == 24 * height, "no holes"


@pytest.mark.parametrize("panel", PANELS)
def test_a_panel_has_a_unit_and_says_what_it_shows(panel: dict[str, Any]) -> None:
    assert panel["fieldConfig"]["defaults"]["unit"]
    assert re.fullmatch(r"[A-Z].*\.", panel["description"])
    assert panel["targets"]
    assert panel["fieldConfig"]["defaults"]["thresholds"]["steps"][0]["value"] is None
    for where in (panel, *panel["targets"]):
        assert where["datasource"] == {"type": "prometheus", "uid": "${datasource}"}


@pytest.mark.parametrize("panel", PANELS)
def test_a_panel_asks_for_metrics_that_exist(panel: dict[str, Any]) -> None:
    for target in panel["targets"]:
        named = set(re.findall(r"[a-z]+:dither\w+:\w+|(?<![:\w])dither_\w+", target["expr"]))
        assert named <= NAMES | RECORDED
        assert named or any(name in target["expr"] for name in OF_PROMETHEUS)


@pytest.mark.parametrize("panel", PANELS)
def test_overrides_are_of_fields_that_the_panel_has(panel: dict[str, Any]) -> None:
    """Grafana finds a field, and the lower edge of a band, by its name."""
    fields = {target["legendFormat"] for target in panel["targets"]}
    for step in panel.get("transformations", []):
        if step["id"] == "organize":
            fields |= {*step["options"]["renameByName"].values(), *step["options"]["indexByName"]}
    for override in panel["fieldConfig"]["overrides"]:
        assert override["matcher"]["options"] in fields
        properties = {one["id"]: one["value"] for one in override["properties"]}
        assert properties.get("custom.fillBelowTo", next(iter(fields))) in fields


def test_variables_are_defined_before_they_are_used(dashboard: dict[str, Any]) -> None:
    known = {"datasource", "__rate_interval"}
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            assert set(VARIABLES.findall(variable["definition"])) <= known
            assert variable["query"]["query"] == variable["definition"]
        known.add(variable["name"])
    used = {
        name
        for panel in dashboard["panels"]
        for text in (panel["title"], *(target["expr"] for target in panel.get("targets", [])))
        for name in VARIABLES.findall(text)
    }
    assert used <= known
    assert dashboard["templating"]["list"][0]["type"] == "datasource"


def test_links_lead_to_dashboards_that_exist(dashboard: dict[str, Any]) -> None:
    uids = {other["uid"] for other in DASHBOARDS.values()}
    assert set(re.findall(r"/d/([\w-]+)", json.dumps(dashboard))) <= uids
    (link,) = dashboard["links"]
    assert all(set(link["tags"]) <= set(other["tags"]) for other in DASHBOARDS.values())


def test_the_composition_provisions_what_is_here() -> None:
    services = yaml.safe_load((ROOT / "deploy" / "compose.yaml").read_text())["services"]
    mounts = dict(mount.split(":")[:2] for mount in services["grafana"]["volumes"])
    provisioning = ROOT / "deploy" / "grafana" / "provisioning"
    assert mounts["./grafana/provisioning"] == "/etc/grafana/provisioning"
    (provider,) = yaml.safe_load((provisioning / "dashboards" / "dither.yaml").read_text())[
        "providers"
    ]
    assert mounts["./grafana/dashboards"] == provider["options"]["path"]
    (source,) = yaml.safe_load((provisioning / "datasources" / "prometheus.yaml").read_text())[
        "datasources"
    ]
    assert source["url"] == "http://prometheus:9090"
    config = yaml.safe_load((ROOT / "deploy" / "prometheus" / "prometheus.yml").read_text())
    assert source["jsonData"]["timeInterval"] == config["global"]["scrape_interval"]
    home = services["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert Path(home).relative_to(provider["options"]["path"]).name in {
        file.name for file in FOLDER.glob("*")
    }
