"""Run all checks: `python -m deploy.checks`, as `make lint` does."""

from __future__ import annotations

import sys

from deploy.checks import docstrings, exit_code, folders, pages

if __name__ == "__main__":
    sys.exit(exit_code([*docstrings.faults(), *pages.faults(), *folders.faults()]))
