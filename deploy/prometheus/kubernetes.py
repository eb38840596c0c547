"""Write the rules and alerts as custom resources of the Prometheus Operator.

Run `python -m deploy.prometheus.kubernetes` after rules.yml or alerts.yml has changed.
"""

from __future__ import annotations

import textwrap
from pathlib import Path

FOLDER = Path(__file__).parent
RESOURCES = FOLDER.parent / "kubernetes" / "components" / "monitoring" / "rules.yaml"
HEAD = """\
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: dither-{name}
spec:
"""


def resources() -> str:
    """Return rules.yml and alerts.yml as custom resources, in one YAML text."""
    text = "# Of deploy/prometheus/*.yml, by `python -m deploy.prometheus.kubernetes`.\n"
    parts = []
    for name in ("rules", "alerts"):
        comment, _, rules = (FOLDER / f"{name}.yml").read_text().partition("groups:\n")
        body = textwrap.indent("groups:\n" + rules, "  ", lambda line: bool(line.strip()))
        parts.append(comment + HEAD.format(name=name) + body)
    return text + "---\n".join(parts)


if __name__ == "__main__":
    RESOURCES.write_text(resources())
