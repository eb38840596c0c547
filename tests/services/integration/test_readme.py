"""What the README shows works as it stands there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.paths import ROOT
from tests.support.running.deployment import Deployment, as_json
from tests.support.running.servers import Kafka

README = ROOT / "README.md"


def blocks(language: str) -> list[str]:
    """Return the README's code blocks of a language."""
    return re.findall(rf"```{language}\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)


@pytest.fixture
def readme_deployment(
    kafka: Kafka, redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Deployment]:
    file = tmp_path / "metrics.toml"
    (definition,) = blocks("toml")
    file.write_text(definition)
    monkeypatch.chdir(tmp_path)
    deployment = Deployment(kafka, redis_url, file)
    with deployment.store:
        yield deployment


def test_its_metric_its_reporter_and_its_reader_work_together(
    readme_deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    deployment = readme_deployment
    report, read = blocks("python")
    report = report.replace("localhost:9092", deployment.kafka.bootstrap_servers)
    report = report.replace('"}) as', f'"}}, topic="{deployment.topic}") as')
    assert deployment.topic in report
    names: dict[str, object] = {}
    exec(compile(report, "README.md", "exec"), names)  # noqa: S102
    with deployment.worker():
        deployment.wait_until_counted()
    monkeypatch.setenv("DITHER_REDIS_URL", deployment.redis_url)
    monkeypatch.setenv("DITHER_TOPICS_REPORTS", deployment.topic)
    exec(compile(read, "README.md", "exec"), names)  # noqa: S102
    shown = as_json(deployment.dither("estimate", "dep_delay", "--json"))
    assert shown["reports"] == 1
    assert shown["status"] == "too_few_reports"


def test_every_file_it_links_to_exists() -> None:
    links = re.findall(r"\]\(([^)#]+)\)", README.read_text(encoding="utf-8"))
    assert links
    for link in links:
        assert (README.parent / link).exists(), link


def test_its_make_targets_exist() -> None:
    makefile = README.with_name("Makefile").read_text(encoding="utf-8")
    for target in set(re.findall(r"^make (\w+)", README.read_text(encoding="utf-8"), re.MULTILINE)):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
