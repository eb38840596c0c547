"""Write Grafana's dashboards: ``python -m deploy.grafana.build``.

`source/` has the panels of each dashboard (TOML) and the parts of Grafana's classic JSON that
panels share. Several `dither serve` export the same numbers, so every query takes the maximum over
instances before it sums.
"""

from __future__ import annotations

import copy
import json
import string
import tomllib
from pathlib import Path
from typing import Any

Json = dict[str, Any]

FOLDER = Path(__file__).with_name("dashboards")
SOURCE = Path(__file__).with_name("source")
PARTS: Json = json.loads((SOURCE / "parts.json").read_text())
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
COLUMNS = 24
GRAFANA_KINDS = {"lines": "timeseries", "band": "timeseries", "bars": "bargauge"}
"""Grafana's names of panel types for which the source has other names."""
BAND_COLOR = {"mode": "fixed", "fixedColor": "blue"}


def override(field: str, properties: Json) -> Json:
    """Return the override that gives one field these properties, in Grafana's form."""
    return {
        "matcher": {"id": "byName", "options": field},
        "properties": [{"id": name, "value": value} for name, value in properties.items()],
    }


def build_panel(source: Json) -> Json:
    """Return a panel without its id and its position."""
    kind, title = source["kind"], source["title"]
    if kind == "row":
        size = {"w": COLUMNS, "h": 1}
        return {"type": "row", "title": title, "collapsed": False, "gridPos": size, "panels": []}
    grafana_kind = GRAFANA_KINDS.get(kind, kind)
    parts = copy.deepcopy(PARTS["kinds"][grafana_kind])
    options, custom, queries = parts["options"], parts.get("custom"), source["queries"]
    is_line = grafana_kind == "timeseries"
    overrides = [override("metric", {"links": PARTS["link"]})] if "links" in source else []
    overrides += [
        override(name, properties) for name, properties in source.get("fields", {}).items()
    ]
    thresholds = PARTS["thresholds"][source.get("thresholds", "fine" if is_line else "plain")]
    if kind == "stat":
        options["graphMode"] = "area" if source.get("graph", True) else "none"
    if is_line:
        stacked = source.get("stacked", "none")
        custom["fillOpacity"] = 0 if stacked == "none" else 40
        custom["stacking"]["mode"] = stacked
        if "logarithmic" in source:
            custom["scaleDistribution"] = {"type": "log", "log": 10}
        custom["thresholdsStyle"]["mode"] = "line" if len(thresholds) > 1 else "off"
    if kind == "band":  # legends name the fields
        lower, middle, upper = queries
        edges = {"custom.lineWidth": 0, "color": BAND_COLOR}
        fill = {"custom.fillBelowTo": lower, "custom.fillOpacity": 20}
        overrides = [
            override(upper, fill | edges),
            override(lower, edges),
            override(middle, {"custom.lineWidth": 2, "color": BAND_COLOR}),
        ]
    if kind == "heatmap":
        options["yAxis"]["unit"] = source["unit"]
    panel = {
        "type": grafana_kind,
        "title": title,
        "description": source["description"],
        "datasource": DATASOURCE,
        "gridPos": dict(zip("wh", source["size"], strict=True)),
        "targets": [
            {"refId": letter, "datasource": DATASOURCE, "editorMode": "code"}
            | target(kind, legend, expression)
            for letter, (legend, expression) in zip(
                string.ascii_uppercase, queries.items(), strict=False
            )
        ],
        "fieldConfig": {
            "defaults": {
                "unit": source["unit"],
                "color": parts["color"],
                "mappings": [],
                "thresholds": {"mode": "absolute", "steps": thresholds},
                **({"custom": custom} if custom else {}),
                **({"decimals": source["decimals"]} if "decimals" in source else {}),
            },
            "overrides": overrides,
        },
        "options": options,
    }
    if kind == "table":
        if "sort" in source:
            options["sortBy"] = [{"displayName": source["sort"], "desc": False}]
        merge = {"id": "merge", "options": {}}
        organize = {"id": "organize", "options": organized(source["labels"], list(queries))}
        panel["transformations"] = [merge, organize]
    return panel


def target(kind: str, legend: str, expression: str) -> Json:
    """Return a panel's query: tables and bars show the present, others the dashboard's range."""
    is_instant = kind in {"table", "bars"}
    return {
        "expr": expression,
        "legendFormat": "" if kind == "table" else legend,
        "range": not is_instant,
        "instant": is_instant,
        **({"format": kind} if kind in {"table", "heatmap"} else {}),
    }


def organized(labels: list[str], columns: list[str]) -> Json:
    """Return the order and names of a table's columns; a column without a name is not shown."""
    names = ["Value"] if len(columns) == 1 else [f"Value #{x}" for x in string.ascii_uppercase]
    values = dict(zip(names, columns, strict=False))
    hidden = {value: True for value, name in values.items() if not name}
    return {
        "excludeByName": {"Time": True} | hidden,
        "indexByName": {name: index for index, name in enumerate((*labels, *values))},
        "renameByName": {value: name for value, name in values.items() if name},
    }


def build_dashboard(name: str) -> Json:
    """Return a dashboard whose panels flow from left to right."""
    source = tomllib.loads((SOURCE / f"{name}.toml").read_text())
    x = y = height = 0
    panels = []
    for number, panel in enumerate(map(build_panel, source["panels"]), start=1):
        size = panel["gridPos"]
        if x + size["w"] > COLUMNS:
            x, y, height = 0, y + height, 0
        panels.append({"id": number, **panel, "gridPos": {"x": x, "y": y, **size}})
        x, height = x + size["w"], max(height, size["h"])
    variables = [PARTS["variables"][name] for name in ("datasource", *source["variables"])]
    head = {key: source[key] for key in ("uid", "title", "description")}
    return {**head, **PARTS["dashboard"], "templating": {"list": variables}, "panels": panels}


def documents() -> dict[Path, str]:
    """Return the text of each dashboard's file."""
    return {
        FOLDER / f"{name}.json": json.dumps(build_dashboard(name), indent=1) + "\n"
        for name in ("overview", "metric", "operations")
    }


if __name__ == "__main__":
    for file, text in documents().items():
        file.write_text(text)
