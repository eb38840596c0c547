"""Writes Grafana's dashboards: ``python -m deploy.grafana.build``."""

from __future__ import annotations

import json
from pathlib import Path

from deploy.grafana.metric import metric
from deploy.grafana.operations import operations
from deploy.grafana.overview import overview

FOLDER = Path(__file__).with_name("dashboards")


def documents() -> dict[Path, str]:
    """Return the dashboards' files and what is in them."""
    built = {"overview": overview(), "metric": metric(), "operations": operations()}
    return {
        FOLDER / f"{name}.json": json.dumps(found, indent=1) + "\n" for name, found in built.items()
    }


if __name__ == "__main__":
    for file, text in documents().items():
        file.write_text(text)
