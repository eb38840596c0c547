"""What the README and docs/integrate.md show works as it stands there."""

import json
import re
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.events import ages, all_are_final, final_ids, on_topic, publishing
from tests.support.paths import ROOT
from tests.support.running.deployment import Deployment, as_json, wait_until


def blocks(page: str, language: str) -> list[str]:
    """Return a page's blocks of code in a language."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def rows(database: Path) -> list[tuple[str, str, str, bytes]]:
    if not database.exists():
        return []
    connection = sqlite3.connect(database)
    try:
        return list(connection.execute("SELECT * FROM final ORDER BY pane"))
    except sqlite3.OperationalError:  # it has made no table yet
        return []
    finally:
        connection.close()


def test_the_consumer_keeps_each_final_estimate_once_though_it_is_killed(
    deployment: Deployment, tmp_path: Path
) -> None:
    """Each run is in a group of its own: the second has lost all offsets, and reads all again."""
    (source,) = blocks("docs/integrate.md", "python")
    assert len(source.splitlines()) <= 20
    source = source.replace("localhost:9092", deployment.kafka.bootstrap_servers)
    source = source.replace('"dither.estimates"', f'"{deployment.estimates}"')
    file, database = tmp_path / "consumer.py", tmp_path / "estimates.db"
    with deployment.worker(), publishing(deployment):
        for panes in (range(12), range(12, 20)):
            deployment.produce(ages(deployment, panes))
            wait_until(lambda end=panes.stop: all_are_final(deployment, end), "final")  # type: ignore[misc]
            wait_until(lambda end=panes.stop: len(final_ids(deployment)) == end, "published")  # type: ignore[misc]
            file.write_text(source.replace("my-backend", f"{deployment.topic}-{panes.stop}"))
            with subprocess.Popen([sys.executable, str(file)], cwd=tmp_path) as consumer:
                try:
                    wait_until(lambda end=panes.stop: len(rows(database)) >= end, "all its rows")  # type: ignore[misc]
                    assert consumer.poll() is None
                finally:
                    consumer.kill()
    kept, events = rows(database), [event for event in on_topic(deployment) if event.is_final]
    assert [(row[0], json.loads(row[3])) for row in kept] == [(e.id, e.answer) for e in events]
    assert [row[1:3] for row in kept] == [("age", event.answer["from"]) for event in events]
    shown = blocks("docs/integrate.md", "json")
    assert list(json.loads(shown[0])) == list(events[0].answer)


def test_the_metric_the_reporter_and_the_reader_of_the_readme_work_together(
    defined: Callable[..., Deployment], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (definition,) = blocks("README.md", "toml")
    monkeypatch.chdir(tmp_path)
    deployment = defined(definition)
    report, read = blocks("README.md", "python")
    report = report.replace("localhost:9092", deployment.kafka.bootstrap_servers)
    report = report.replace('"}) as', f'"}}, topic="{deployment.topic}") as')
    assert deployment.topic in report
    names: dict[str, object] = {}
    exec(compile(report, "README.md", "exec"), names)  # noqa: S102
    deployment.count()
    monkeypatch.setenv("DITHER_REDIS_URL", deployment.redis_url)
    monkeypatch.setenv("DITHER_TOPICS_REPORTS", deployment.topic)
    exec(compile(read, "README.md", "exec"), names)  # noqa: S102
    shown = as_json(deployment.dither("estimate", "dep_delay", "--json"))
    assert (shown["reports"], shown["status"]) == (1, "too_few_reports")
