from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import estimators

FOLDER = Path(estimators.__file__).parent


def test_importing_the_estimators_imports_nothing_slow() -> None:
    script = (
        "import sys, estimators\n"
        "slow = {'scipy', 'redis', 'confluent_kafka', 'starlette'} & set(sys.modules)\n"
        "sys.exit(f'imported {slow}' if slow else 0)"
    )
    subprocess.run([sys.executable, "-c", script], check=True, cwd=FOLDER.parent, timeout=60)


def test_the_estimators_import_nothing_from_the_layers_above() -> None:
    for path in FOLDER.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{path}: relative import"
                names = [node.module or ""]
            for name in names:
                assert name.split(".")[0] not in {"producers", "aggregator", "tests"}, path
