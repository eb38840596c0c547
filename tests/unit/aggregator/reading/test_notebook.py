"""The notebook of the docs runs from its first cell to its last, over a store with reports.

Its outputs are kept with it: DITHER_TEST_NOTEBOOK=docs/notebook.ipynb has the test write them.
"""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aggregator.storage.store import Store
from estimators import load_metrics
from tests.support.paths import ROOT
from tests.support.reports.counted import Counting

DEFINITIONS = ROOT / "producers" / "populations" / "flights.toml"


@pytest.fixture
def folder(tmp_path: Path, store: Store, redis_url: str) -> Path:
    """Return the folder of a deployment that has counted four days of flights."""
    counting = Counting(store, load_metrics(DEFINITIONS))
    rng = np.random.default_rng(3)
    carriers = rng.choice(["UA", "B6", "EV", "DL", "AA"], 3000, p=[0.3, 0.25, 0.2, 0.15, 0.1])
    batches: list[Any] = []
    for day, delay in enumerate([8.0, 14.0, 30.0, 11.0]):
        waited = np.clip(rng.normal(delay, 30.0, 3000), -60, 180)
        minute = day * 24 * 60
        batches += [
            counting.batch("dep_delay", part.tolist(), minute, 4.0) for part in np.split(waited, 10)
        ]
        batches.append(counting.batch("carrier", carriers.tolist(), minute, 4.0))
    counting.count(0, *batches)
    settings = f'metrics = "{DEFINITIONS}"\n[redis]\nurl = "{redis_url}"\n'
    (tmp_path / "dither.toml").write_text(settings)
    return tmp_path


@pytest.mark.more
def test_the_notebook_of_the_docs_runs(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import nbformat
    from nbclient import NotebookClient

    for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR"):
        monkeypatch.setenv(name, str(folder / name.lower()))
    notebook = nbformat.read(ROOT / "docs" / "notebook.ipynb", as_version=4)
    NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(folder)}}).execute()
    outputs = [cell.get("outputs") for cell in notebook.cells]
    shown = [each[-1]["data"] for each in outputs if each]
    assert "'dep_delay'" in shown[0]["text/plain"]
    estimate, shares, days, table, carriers, figure, covers = shown[1:]
    for drawn in (estimate, shares, days):
        assert "<svg" in drawn["text/html"]
    assert "shape: (4, 6)" in table["text/plain"]
    assert "UA" in carriers["text/plain"]
    assert figure["image/png"]
    assert covers["text/plain"] == "('this window', '4 windows')"
    if kept := os.environ.get("DITHER_TEST_NOTEBOOK"):
        for cell in notebook.cells:
            cell.metadata.pop("execution", None)
        nbformat.write(notebook, Path(kept))
