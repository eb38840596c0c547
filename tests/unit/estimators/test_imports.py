from __future__ import annotations

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
