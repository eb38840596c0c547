"""The consumer of docs/integrate.md works as it stands there."""

from __future__ import annotations

import datetime
import json
import re
import sqlite3
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from aggregator.config.settings import Publish
from aggregator.reading.slices.answers import SliceAnswer, SlicesAnswer
from tests.support.events import ages, all_are_final, final_ids, on_topic, publishing, reader_of
from tests.support.paths import ROOT
from tests.support.running.deployment import Deployment, wait_until

DOCUMENT = ROOT / "docs" / "integrate.md"


def blocks(language: str) -> list[str]:
    """Return the page's blocks of code in a language."""
    text = DOCUMENT.read_text(encoding="utf-8")
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def block(language: str) -> str:
    """Return the page's only block of code in a language."""
    (found,) = blocks(language)
    return found


def publish(deployment: Deployment, panes: range) -> None:
    deployment.produce(ages(deployment, panes))
    wait_until(lambda: all_are_final(deployment, panes.stop), "final")
    wait_until(lambda: len(final_ids(deployment)) == panes.stop, "published")


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


def test_its_consumer_keeps_each_final_estimate_once_though_it_is_killed(
    deployment: Deployment, tmp_path: Path
) -> None:
    source = block("python")
    assert len(source.splitlines()) <= 20
    source = source.replace("localhost:9092", deployment.kafka.bootstrap_servers)
    source = source.replace('"dither.estimates"', f'"{deployment.estimates}"')
    file, database = tmp_path / "consumer.py", tmp_path / "estimates.db"

    def consume_until(panes: int) -> None:
        """Run the consumer until it has so many rows, then kill it.

        Each in a group of its own: the next one has lost all offsets, and reads everything again.
        """
        file.write_text(source.replace("my-backend", f"{deployment.topic}-{panes}"))
        with subprocess.Popen([sys.executable, str(file)], cwd=tmp_path) as consumer:
            try:
                wait_until(lambda: len(rows(database)) >= panes, f"{panes} rows")
                assert consumer.poll() is None
            finally:
                consumer.kill()

    with deployment.worker(), publishing(deployment):
        publish(deployment, range(12))
        consume_until(12)
        publish(deployment, range(12, 20))
        consume_until(20)
    kept = rows(database)
    assert {row[0] for row in kept} == set(final_ids(deployment))
    assert len(kept) == 20
    for _, metric, pane, text in kept:
        answer = json.loads(text)
        assert (metric, pane) == ("age", answer["from"])
        assert answer["reports"] == 120
        assert answer["status"] == "final"
    last = json.loads(kept[-1][3])
    start, end = (_seconds(last[key]) for key in ("from", "to"))
    assert last["value"] == reader_of(deployment).estimate("age", start, end).value


def _seconds(moment: str) -> float:
    return datetime.datetime.fromisoformat(moment).timestamp()


def test_its_settings_are_the_defaults() -> None:
    shown = tomllib.loads(block("toml"))["publish"]
    defaults = Publish()
    assert shown == {key: getattr(defaults, key) for key in Publish.__struct_fields__}


def test_its_answer_has_the_fields_of_a_published_one(deployment: Deployment) -> None:
    deployment.produce(ages(deployment, range(3)))
    with deployment.worker(), publishing(deployment):
        wait_until(lambda: all_are_final(deployment, 3), "final")
        wait_until(lambda: bool(final_ids(deployment)), "published")
    event = next(event for event in on_topic(deployment) if event.is_final)
    assert list(json.loads(blocks("json")[0])) == list(event.answer)


def test_its_slices_have_the_fields_of_an_answer() -> None:
    (shown,) = next(one for one in map(json.loads, blocks("json")) if "slices" in one)["slices"]
    assert {*shown} <= {*SlicesAnswer.__struct_encode_fields__}
    assert {*shown["slices"][0]} == {*SliceAnswer.__struct_encode_fields__}


@pytest.mark.parametrize("link", re.findall(r"\]\(([^)#:]+)\)", DOCUMENT.read_text()))
def test_the_files_it_links_to_exist(link: str) -> None:
    assert (DOCUMENT.parent / link).exists()
