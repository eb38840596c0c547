"""A publisher in a process of its own, which stops itself (SIGSTOP) at a step of a release.

``python -m tests.support.running.stopping STEP SETTINGS``, the settings as JSON. The test that
started it then kills it or continues it: the whole process is frozen, and with it the renewal of
its lease.
"""

import functools
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

import msgspec

from aggregator.config import logging
from aggregator.config.settings import Settings
from aggregator.features.reader import Reader
from aggregator.publishing import events
from aggregator.publishing.event_producer import EventProducer
from aggregator.publishing.published_log import PublishedLog
from aggregator.publishing.publisher import Publisher
from aggregator.storage.connection import connect
from aggregator.storage.store import Store
from estimators import load_metrics
from producers.kafka.kafka_errors import ExplainingProducer

BEFORE, AFTER = "before", "after"
STEPS: dict[str, tuple[Any, str, str]] = {
    "nothing drawn": (PublishedLog, "draw_once", BEFORE),
    "drawn and not kept": (events, "release_data", AFTER),
    "kept and not published": (PublishedLog, "draw_once", AFTER),
    "in the transaction": (ExplainingProducer, "commit_transaction", BEFORE),
    "committed and not noted": (EventProducer, "publish", AFTER),
    "noted": (PublishedLog, "note_committed", AFTER),
}
"""The steps at which a publisher may stop: owner and name of the function, and before or after."""


def stop_at(step: str) -> None:
    """Make this process stop itself at a step, once."""
    owner, name, when = STEPS[step]
    call: Callable[..., Any] = getattr(owner, name)
    left = [signal.SIGSTOP]

    def stop(arguments: tuple[Any, ...]) -> None:
        # called after reading a topic that had no events
        is_empty = name == "note_committed" and not arguments[1]
        if name == "commit_transaction":
            arguments[0].flush(60)  # the broker has the event, which is not committed
        if left and not is_empty:
            os.kill(os.getpid(), left.pop())

    @functools.wraps(call)
    def stopping(*arguments: Any, **options: Any) -> Any:
        if when == BEFORE:
            stop(arguments)
        found = call(*arguments, **options)
        if when == AFTER:
            stop(arguments)
        return found

    setattr(owner, name, stopping)


def main(step: str, text: str) -> None:
    """Publish until the end of the process."""
    logging.configure("debug", as_json=True)
    settings = msgspec.json.decode(text, type=Settings)
    if step:
        stop_at(step)
    with Store(connect(settings.redis.url), settings.topics.reports) as store:
        Publisher(settings, Reader(store, load_metrics(settings.metrics))).run()


if __name__ == "__main__":
    main(*sys.argv[1:])
