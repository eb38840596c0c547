"""Fixtures that all tests share: Kafka and Redis, started when the first test asks for them."""

import gc
import os
from collections.abc import Generator, Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import structlog

from tests.support.forked_run import RAN_AGAINST, SHARED_KAFKA, ForkedRun
from tests.support.run_output import LONG, MORE, USUAL, RunOutput
from tests.support.running import servers

#: Folders whose files share servers that no others use, and of `make test` the one with a browser:
#: in other tiers its files take longer than all others of a process.
TOGETHER, IN_A_BROWSER = ("tests/services/security/",), ("tests/services/browser/",)


@pytest.hookimpl(trylast=True)  # after pytest's own reporter
def pytest_configure(config: pytest.Config) -> None:
    ran_against = config.stash[RAN_AGAINST] = {}
    tier = config.option.markexpr
    files = Files(tier, config.args)
    config.pluginmanager.register(files)  # a hook of this file would see only its folder
    if (processes := int(os.environ.get("DITHER_TEST_PROCESSES", "1"))) > 1:
        together = TOGETHER + IN_A_BROWSER * (tier == USUAL)
        config.pluginmanager.register(ForkedRun(processes, together))
    if config.option.verbose <= 0 and not config.option.collectonly:
        config.pluginmanager.register(RunOutput(config, ran_against))


class Files:
    """Looks for examples and for tests of a tier only in files that have some, or are named.

    A run imports what it collects: many modules need not be imported. A file says
    `pytest.mark.more` where it has such tests, and in a line by itself where it has no others.
    """

    def __init__(self, tier: str, arguments: Iterable[str]) -> None:
        self.tier = tier
        self.named = {Path(argument.partition("::")[0]).absolute() for argument in arguments}

    @pytest.hookimpl(wrapper=True)
    def pytest_collect_file(
        self, file_path: Path
    ) -> Generator[None, list[pytest.Collector], list[pytest.Collector]]:
        collectors = yield
        if not collectors or file_path in self.named:
            return collectors
        text = file_path.read_bytes()
        if self.tier == MORE and b"mark.more" not in text:
            return []
        if self.tier == USUAL and b"\npytestmark = pytest.mark.more\n" in text:
            return []
        if b">>> " not in text:
            return [collector for collector in collectors if type(collector) is pytest.Module]
        return collectors


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Give slow tests an hour instead of five minutes; begin with the files that take longest."""
    for item in items:
        if item.get_closest_marker("slow"):
            item.add_marker(pytest.mark.timeout(3600))
    items.sort(key=lambda item: not item.nodeid.startswith(LONG))  # last, one would run alone


def pytest_collection() -> None:
    """Collect without looking for garbage: there is next to none."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Leave what was imported and collected to itself: each full collection would look at it."""
    gc.freeze()
    gc.enable()


@pytest.fixture(autouse=True)
def unconfigured_logs() -> None:
    """No test sees the level and the stream of logs that a command configured in another.

    Tracebacks are plain: by default `rich` draws each, which takes most of a second.
    """
    structlog.reset_defaults()
    *processors, _ = structlog.get_config()["processors"]
    plain = structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)
    structlog.configure(processors=[*processors, plain])


@pytest.fixture(scope="session")
def kafka(
    tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config
) -> Iterator[servers.Kafka]:
    """The Kafka of this run: `tests.support.running.servers.start_kafka` says which one.

    The processes of one run share it.
    """
    with ExitStack() as stack:
        if shared := pytestconfig.stash.get(SHARED_KAFKA, None):
            cluster = shared.get()
            if isinstance(cluster, str):
                pytest.fail(f"the Kafka of this run did not start: {cluster}", pytrace=False)
        else:
            cluster = servers.start_kafka(tmp_path_factory.mktemp("kafka"), stack)
        pytestconfig.stash[RAN_AGAINST]["kafka"] = cluster.description
        yield cluster


@pytest.fixture
def apache_kafka(kafka: servers.Kafka) -> servers.Kafka:
    """The same for tests that the in-process broker cannot serve."""
    if not kafka.is_real:
        servers.missing("Apache Kafka", f"this run has {kafka.description}")
    return kafka


@pytest.fixture(scope="session")
def redis_server(
    tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config
) -> Iterator[servers.Redis]:
    """The Redis of this run; fault tests kill and restart it."""
    with ExitStack() as stack:
        server = servers.start_redis(tmp_path_factory.mktemp("redis"), stack)
        pytestconfig.stash[RAN_AGAINST]["redis"] = server.description
        yield server


@pytest.fixture
def redis_url(redis_server: servers.Redis) -> str:
    """URL of an empty store."""
    redis_server.clear()
    return redis_server.url
