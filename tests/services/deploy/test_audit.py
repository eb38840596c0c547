"""A known vulnerability fails the build; a database that cannot be asked is told, and does not."""

from __future__ import annotations

import json
from typing import Any

from deploy import audit
from deploy.audit import verdict

FINE: dict[str, Any] = {"name": "starlette", "version": "1.10.0", "vulns": []}
SKIPPED: dict[str, Any] = {"name": "anyio", "skip_reason": "Dependency not found on PyPI"}
FIXED = {"id": "PYSEC-2026-1", "fix_versions": ["1.10.1"], "description": "bad"}
UNFIXED = {"id": "GHSA-xxxx", "fix_versions": [], "description": "worse"}
BAD: dict[str, Any] = {**FINE, "vulns": [FIXED, UNFIXED]}


def of(*dependencies: dict[str, Any], code: int = 0, errors: str = "") -> audit.Verdict:
    return verdict(code, json.dumps({"dependencies": dependencies, "fixes": []}), errors)


def test_a_known_vulnerability_fails_and_what_was_not_audited_is_told() -> None:
    assert of(FINE, FINE) == audit.Verdict(0, "audit: 2 packages have no known vulnerability")
    for found in (of(FINE, BAD, code=1), of(BAD, SKIPPED, code=1), of(BAD, code=0)):
        assert found.code == 1
        assert "2 known vulnerabilities" in found.told
        assert "starlette 1.10.0: PYSEC-2026-1, fixed in 1.10.1" in found.told
    found = of(FINE, *[SKIPPED] * 7)
    assert (found.code, "NOT AUDITED: 7 that the database" in found.told) == (0, True)
    away = verdict(1, "", "requests.exceptions.ConnectionError: Failed to resolve 'pypi.org'")
    for found in (of(SKIPPED, SKIPPED), verdict(None, "", ""), away):
        assert (found.code, "NOTHING WAS AUDITED" in found.told) == (0, True)
    for found in (verdict(2, "", "usage: pip-audit"), verdict(1, "[]", ""), of(FINE, code=1)):
        assert (found.code, "pip-audit failed with exit code" in found.told) == (1, True)
