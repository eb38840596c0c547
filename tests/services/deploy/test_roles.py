"""`dither roles`, and the files in deploy/security that it writes."""

import json
import re
from pathlib import Path

import pytest
import redis
from click.testing import CliRunner

from aggregator.cli.main import cli
from aggregator.cli.roles import roles
from aggregator.config.settings import Settings
from tests.support.paths import ROOT
from tests.support.running.placed_redis import PlacedRedis
from tests.support.running.servers import program

FOLDER = ROOT / "deploy" / "security"


@pytest.fixture(autouse=True)
def _empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def printed(*arguments: str) -> str:
    result = CliRunner().invoke(cli, ["roles", *arguments])
    assert result.exit_code == 0, result.output
    return result.output


def test_the_files_are_what_the_command_prints() -> None:
    for file, option in (("kafka-acls.sh", "--kafka-acls"), ("redis.acl", "--redis-acl")):
        assert (FOLDER / file).read_text() == printed(option), file


def test_a_role_has_the_names_of_the_settings() -> None:
    names = ("--set", "topics.reports=mine", "--set", "aggregate.group=ours")
    found = json.loads(printed("worker", "--json", *names))["worker"]
    rights = {(right["operation"], right["resource"], right["name"]) for right in found["kafka"]}
    assert rights == {
        ("Read", "topic", "mine"),
        ("Read", "group", "ours"),
        ("Write", "topic", "dither.deadletters"),
    }
    assert "~{dither:mine:*" in found["redis"]
    assert printed("scraper").splitlines()[1:] == ["  Kafka  none", "  Redis  none"]


def test_redis_takes_the_rules_and_lets_nobody_in_before_a_password_is_set(tmp_path: Path) -> None:
    program("redis-server", "install Redis (Debian: redis-server)")
    with PlacedRedis(tmp_path) as server:
        client = redis.Redis.from_url(server.url)
        with client:
            for line in printed("--redis-acl").splitlines():
                _, name, *rules = line.split()
                client.execute_command("ACL", "SETUSER", name, *rules)  # type: ignore[no-untyped-call]
            users = set(client.acl_users())
            with_access = redis.Redis.from_url(server.url, username="dither-reader", password="")
            with with_access, pytest.raises(redis.AuthenticationError):
                with_access.ping()
    assert users >= {role.user for role in roles(Settings()).values() if role.redis}


def test_the_documentation_has_every_role_and_its_rights_in_kafka() -> None:
    known = roles(Settings())
    assert len(known) == 11
    text = (ROOT / "SECURITY.md").read_text()
    sentence = text.partition("eleven roles:")[2].partition("`dither roles`")[0]
    assert set(re.findall(r"[a-z]+", sentence)) >= set(known)
    text = (ROOT / "docs" / "security.md").read_text()
    rows = {line.split("|")[1].strip(): line for line in text.splitlines() if line.startswith("| ")}
    for role in known.values():
        for right in role.kafka:
            assert right.operation in rows[role.name]
            assert right.resource in rows[role.name].replace("topics", "topic")
    assert rows.keys() >= known.keys()
