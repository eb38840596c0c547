"""Ask PyPI's advisory database about every pinned dependency: `make audit`.

The audit fails if a dependency has a known vulnerability. If the database cannot be asked (no
network; an index that is a mirror without advisories, for which pip-audit skips a package and still
says that all is well), it says loudly that nothing was audited, and does not fail, because a build
must not depend on somebody else's server.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LOCK = Path(__file__).parents[1] / "requirements.lock"
TIMEOUT_SECONDS = 150.0
UNREACHABLE = re.compile(
    r"ConnectionError|ConnectTimeout|ReadTimeout|Max retries|Failed to establish|ProxyError|"
    r"SSLError|ServiceError|50[0-9] Server Error|Failed to resolve",
    re.IGNORECASE,
)
MAX_SHOWN_PACKAGES = 5


@dataclass(frozen=True)
class Verdict:
    """The result of an audit.

    Attributes
    ----------
    code : int
        The exit code.
    told : str
        The text to print.
    """

    code: int
    told: str


def verdict(code: int | None, output: str, errors: str) -> Verdict:
    """Return what pip-audit's answer means.

    Parameters
    ----------
    code : int or None
        pip-audit's exit code; None if it did not end in time.
    output : str
        What it wrote to standard output: JSON, unless it failed.
    errors : str
        What it wrote to standard error.
    """
    if code is None:
        return _unaudited(f"pip-audit did not end within {TIMEOUT_SECONDS:g} s")
    try:
        dependencies = json.loads(output)["dependencies"]
    except (ValueError, KeyError, TypeError):
        last = (errors.strip().splitlines() or ["it said nothing"])[-1]
        if UNREACHABLE.search(errors):
            return _unaudited(last)
        return Verdict(1, f"audit: pip-audit failed with exit code {code}: {last}")
    vulnerable = [dependency for dependency in dependencies if dependency.get("vulns")]
    skipped = [each["name"] for each in dependencies if "skip_reason" in each]
    if vulnerable:
        lines = [line for each in vulnerable for line in _lines(each)]
        return Verdict(1, "\n".join([f"audit: {len(lines)} known vulnerabilities", *lines]))
    if code != 0:
        return Verdict(1, f"audit: pip-audit failed with exit code {code}: {errors.strip()}")
    if len(skipped) == len(dependencies):
        return _unaudited("the package index has no advisories for any package")
    message = f"audit: {len(dependencies) - len(skipped)} packages have no known vulnerability"
    if skipped:
        names = ", ".join(skipped[:MAX_SHOWN_PACKAGES]) + (
            ", ..." if len(skipped) > MAX_SHOWN_PACKAGES else ""
        )
        message += f"; NOT AUDITED: {len(skipped)} that the database does not have ({names})"
    return Verdict(0, message)


def _lines(dependency: dict[str, Any]) -> list[str]:
    return [
        f"  {dependency['name']} {dependency['version']}: {vulnerability['id']}, fixed in "
        f"{', '.join(vulnerability.get('fix_versions') or []) or 'no release yet'}"
        for vulnerability in dependency["vulns"]
    ]


def _unaudited(why: str) -> Verdict:
    bar = "!" * 80
    return Verdict(0, f"{bar}\naudit: NOTHING WAS AUDITED: {why}\n{bar}")


def audit(lock: Path = LOCK) -> Verdict:
    """Run pip-audit over a lock file."""
    command = [sys.executable, "-m", "pip_audit", "-r", str(lock), "--disable-pip"]
    command += ["--require-hashes", "--format", "json", "--progress-spinner", "off"]
    try:
        ran = subprocess.run(
            command, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return verdict(None, "", "")
    return verdict(ran.returncode, ran.stdout, ran.stderr)


if __name__ == "__main__":
    outcome = audit()
    print(outcome.told, flush=True)
    sys.exit(outcome.code)
