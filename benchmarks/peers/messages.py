"""Report batches for peers: the wire format's generated code, without the package around it."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

CODE = Path(__file__).parents[2] / "producers" / "wire" / "reports_pb2.py"


def batch() -> Callable[[bytes], Any]:
    """Return what parses a ReportBatch."""
    spec = importlib.util.spec_from_file_location("reports_pb2", CODE)
    assert spec is not None  # noqa: S101
    assert spec.loader is not None  # noqa: S101
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    parse: Callable[[bytes], Any] = module.ReportBatch.FromString
    return parse
