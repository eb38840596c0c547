"""Run all checks: `python -m deploy.checks`, as `make lint` does."""

from __future__ import annotations

import sys

from deploy.checks import docstrings, modules, pages

if __name__ == "__main__":
    faults = sorted({*docstrings.faults(), *pages.faults(), *modules.faults()})
    for fault in faults:
        print(fault)
    sys.exit(bool(faults))
