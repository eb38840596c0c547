"""Parts of Grafana dashboards in their classic JSON: variables, panels, and a dashboard of them."""

from __future__ import annotations

import string
from collections.abc import Sequence
from typing import Any

Json = dict[str, Any]

SCHEMA_VERSION = 39
"""Of Grafana 10.4 and 11; later ones convert it."""
COLUMNS = 24
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
TAG = "dither"
BAND_COLOR = "blue"


def query(expr: str, legend: str = "") -> Json:
    """Return a query over the dashboard's range of time."""
    return {"expr": expr, "legendFormat": legend, "range": True, "instant": False}


def now(expr: str, legend: str = "") -> Json:
    """Return a query for this moment."""
    return {"expr": expr, "legendFormat": legend, "range": False, "instant": True}


def steps(*limits: tuple[str, float | None]) -> Json:
    """Return thresholds: colors, and the values from which they are used (None: any)."""
    return {
        "mode": "absolute",
        "steps": [{"color": color, "value": value} for color, value in limits],
    }


PLAIN = steps(("blue", None))
FINE = steps(("green", None))


def override(field: str, **properties: Any) -> Json:
    """Return properties of one field; double underscores stand for dots."""
    return {
        "matcher": {"id": "byName", "options": field},
        "properties": [
            {"id": name.replace("__", "."), "value": value} for name, value in properties.items()
        ],
    }


def _panel(
    kind: str,
    title: str,
    description: str,
    targets: Sequence[Json],
    unit: str,
    size: tuple[int, int],
    options: Json,
    *,
    thresholds: Json = PLAIN,
    color: Json | None = None,
    custom: Json | None = None,
    overrides: Sequence[Json] = (),
    decimals: int | None = None,
    **more: Any,
) -> Json:
    defaults: Json = {
        "unit": unit,
        "color": color or {"mode": "thresholds"},
        "mappings": [],
        "thresholds": thresholds,
        **({} if custom is None else {"custom": custom}),
        **({} if decimals is None else {"decimals": decimals}),
    }
    letters = string.ascii_uppercase
    return {
        "type": kind,
        "title": title,
        "description": description,
        "datasource": DATASOURCE,
        "gridPos": {"w": size[0], "h": size[1]},
        "targets": [
            {"refId": letter, "datasource": DATASOURCE, "editorMode": "code", **target}
            for letter, target in zip(letters, targets, strict=False)
        ],
        "fieldConfig": {"defaults": defaults, "overrides": list(overrides)},
        "options": options,
        **more,
    }


LAST = {"calcs": ["lastNotNull"], "fields": "", "values": False}


def stat(
    title: str,
    description: str,
    *targets: Json,
    unit: str,
    size: tuple[int, int] = (4, 4),
    thresholds: Json = PLAIN,
    graph: bool = True,
    **more: Any,
) -> Json:
    """Return a panel of large numbers."""
    options = {
        "reduceOptions": LAST,
        "orientation": "auto",
        "textMode": "auto",
        "colorMode": "value",
        "graphMode": "area" if graph else "none",
        "justifyMode": "auto",
    }
    return _panel(
        "stat", title, description, targets, unit, size, options, thresholds=thresholds, **more
    )


def lines(
    title: str,
    description: str,
    *targets: Json,
    unit: str,
    size: tuple[int, int] = (12, 8),
    thresholds: Json = FINE,
    stacked: str = "none",
    logarithmic: bool = False,
    overrides: Sequence[Json] = (),
    **more: Any,
) -> Json:
    """Return a panel of lines over time; `stacked` is ``none``, ``normal`` or ``percent``."""
    has_limits = len(thresholds["steps"]) > 1
    scale: Json = {"type": "log", "log": 10} if logarithmic else {"type": "linear"}
    custom = {
        "drawStyle": "line",
        "lineInterpolation": "linear",
        "lineWidth": 1,
        "fillOpacity": 0 if stacked == "none" else 40,
        "gradientMode": "none",
        "showPoints": "never",
        "pointSize": 4,
        "spanNulls": False,
        "axisPlacement": "auto",
        "axisLabel": "",
        "scaleDistribution": scale,
        "stacking": {"mode": stacked, "group": "A"},
        "thresholdsStyle": {"mode": "line" if has_limits else "off"},
        "hideFrom": {"legend": False, "tooltip": False, "viz": False},
    }
    options = {
        "legend": {"showLegend": True, "displayMode": "list", "placement": "bottom", "calcs": []},
        "tooltip": {"mode": "multi", "sort": "desc"},
    }
    return _panel(
        "timeseries",
        title,
        description,
        targets,
        unit,
        size,
        options,
        thresholds=thresholds,
        color={"mode": "palette-classic"},
        custom=custom,
        overrides=overrides,
        **more,
    )


def band(title: str, description: str, lower: Json, middle: Json, upper: Json, **more: Any) -> Json:
    """Return lines of which the first and the last are the edges of a filled band.

    The queries' legends name the fields, so each must be constant and give a single series.
    """
    color = {"mode": "fixed", "fixedColor": BAND_COLOR}
    names = [target["legendFormat"] for target in (lower, middle, upper)]
    edges = {"custom__lineWidth": 0, "color": color}
    overrides = [
        override(names[2], custom__fillBelowTo=names[0], custom__fillOpacity=20, **edges),
        override(names[0], **edges),
        override(names[1], custom__lineWidth=2, color=color),
    ]
    return lines(title, description, lower, middle, upper, overrides=overrides, **more)


def heatmap(
    title: str, description: str, buckets: Json, *, unit: str, size: tuple[int, int] = (12, 8)
) -> Json:
    """Return a panel of a histogram over time; the query's label `le` has the upper edges."""
    options = {
        "calculate": False,
        "cellGap": 0,
        "cellValues": {"unit": "percentunit"},
        "color": {
            "mode": "scheme",
            "scheme": "Blues",
            "fill": BAND_COLOR,
            "scale": "exponential",
            "exponent": 0.5,
            "steps": 64,
            "reverse": False,
        },
        "filterValues": {"le": 1e-9},
        "rowsFrame": {"layout": "auto"},
        "legend": {"show": True},
        "exemplars": {"color": "orange"},
        "tooltip": {"mode": "single", "yHistogram": False, "showColorScale": False},
        "yAxis": {"axisPlacement": "left", "reverse": False, "unit": unit},
    }
    target = {**buckets, "format": "heatmap"}
    return _panel("heatmap", title, description, [target], unit, size, options)


def bars(
    title: str,
    description: str,
    *targets: Json,
    unit: str,
    size: tuple[int, int] = (12, 8),
    thresholds: Json = PLAIN,
    **more: Any,
) -> Json:
    """Return a panel of horizontal bars, one for each series."""
    options = {
        "reduceOptions": LAST,
        "orientation": "horizontal",
        "displayMode": "basic",
        "valueMode": "color",
        "showUnfilled": True,
        "minVizHeight": 10,
        "minVizWidth": 0,
    }
    return _panel(
        "bargauge", title, description, targets, unit, size, options, thresholds=thresholds, **more
    )


def table(
    title: str,
    description: str,
    columns: dict[str, str],
    *,
    labels: Sequence[str],
    unit: str,
    size: tuple[int, int] = (24, 9),
    overrides: Sequence[Json] = (),
    sort: str = "",
    **more: Any,
) -> Json:
    """Return a table that has a row for each set of labels and a column for each query.

    Parameters
    ----------
    columns : dict of str to str
        Queries by the name of their column; an empty name for one whose value is not shown.
    labels : sequence of str
        The labels to show, in their order; the queries must give no others.
    """
    targets = [{**now(expr), "format": "table"} for expr in columns.values()]
    single = len(targets) == 1
    values = {
        "Value" if single else f"Value #{letter}": name
        for letter, name in zip(string.ascii_uppercase, columns, strict=False)
    }
    order = {name: index for index, name in enumerate((*labels, *values))}
    organize = {
        "excludeByName": {"Time": True}
        | {value: True for value, name in values.items() if not name},
        "indexByName": order,
        "renameByName": {value: name for value, name in values.items() if name},
    }
    options = {
        "showHeader": True,
        "cellHeight": "sm",
        "footer": {"show": False, "reducer": ["sum"], "countRows": False, "fields": ""},
        "sortBy": [{"displayName": sort, "desc": False}] if sort else [],
    }
    custom = {"align": "auto", "cellOptions": {"type": "auto"}, "inspect": False}
    return _panel(
        "table",
        title,
        description,
        targets,
        unit,
        size,
        options,
        custom=custom,
        overrides=overrides,
        transformations=[{"id": "merge", "options": {}}, {"id": "organize", "options": organize}],
        **more,
    )


def row(title: str) -> Json:
    """Return a heading over the panels that follow."""
    size = {"w": COLUMNS, "h": 1}
    return {"type": "row", "title": title, "collapsed": False, "gridPos": size, "panels": []}


def datasource_variable() -> Json:
    """Return the variable by which a reader chooses the Prometheus."""
    return {
        "name": "datasource",
        "label": "Data source",
        "type": "datasource",
        "query": "prometheus",
        "current": {},
        "hide": 0,
        "includeAll": False,
        "multi": False,
        "options": [],
        "refresh": 1,
        "regex": "",
        "skipUrlSync": False,
    }


def variable(name: str, label: str, values: str) -> Json:
    """Return a variable that takes one of the values of a label."""
    return {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": DATASOURCE,
        "definition": values,
        "query": {
            "qryType": 1,
            "query": values,
            "refId": "PrometheusVariableQueryEditor-VariableQuery",
        },
        "current": {},
        "hide": 0,
        "includeAll": False,
        "multi": False,
        "options": [],
        "refresh": 2,
        "regex": "",
        "skipUrlSync": False,
        "sort": 1,
    }


def dashboard(
    uid: str, title: str, description: str, panels: Sequence[Json], variables: Sequence[Json] = ()
) -> Json:
    """Return a dashboard whose panels flow from left to right, and link to the others."""
    link = {
        "type": "dashboards",
        "title": "Dither",
        "tags": [TAG],
        "asDropdown": False,
        "icon": "external link",
        "includeVars": True,
        "keepTime": True,
        "targetBlank": False,
        "tooltip": "",
        "url": "",
    }
    return {
        "uid": uid,
        "title": title,
        "description": description,
        "tags": [TAG],
        "schemaVersion": SCHEMA_VERSION,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "timepicker": {},
        "timezone": "browser",
        "annotations": {"list": []},
        "links": [link],
        "templating": {"list": [datasource_variable(), *variables]},
        "panels": _placed(panels),
    }


def _placed(panels: Sequence[Json]) -> list[Json]:
    """Place each panel beside the one before it, or below where it is full; give it its id."""
    x = y = height = 0
    placed = []
    for number, panel in enumerate(panels, start=1):
        size = panel["gridPos"]
        if x + size["w"] > COLUMNS:
            x, y, height = 0, y + height, 0
        placed.append({"id": number, **panel, "gridPos": {"x": x, "y": y, **size}})
        x, height = x + size["w"], max(height, size["h"])
    return placed
