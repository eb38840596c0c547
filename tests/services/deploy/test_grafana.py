"""Grafana's dashboards: generated, well-formed, explained, and about metrics that exist."""

from __future__ import annotations

import json
import re
from typing import Any

from deploy.grafana.build import FOLDER, documents
from tests.services.deploy.test_prometheus import assert_names_exist
from tests.support.rows import row

DASHBOARDS: dict[str, dict[str, Any]] = {
    file.stem: json.loads(file.read_text()) for file in sorted(FOLDER.glob("*.json"))
}
PANELS = [
    (f"{name}: {panel['title']}", panel)
    for name, dashboard in DASHBOARDS.items()
    for panel in dashboard["panels"]
    if panel["type"] != "row"
]
OF_PROMETHEUS = {"ALERTS", "scrape_duration_seconds"}


def test_the_files_are_what_the_generator_writes() -> None:
    assert {file: file.read_text() for file in FOLDER.glob("*")} == documents(), (
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
