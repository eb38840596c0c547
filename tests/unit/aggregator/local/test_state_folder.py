"""The folder of an embedded deployment: one user at a time, and a new log beside older counts."""

from pathlib import Path
from typing import Any, cast

import pytest

from aggregator.config.settings import Settings
from aggregator.counting import recount
from aggregator.dead_letters.reader import MessagePosition
from aggregator.dead_letters.selection import HandledMarks
from aggregator.errors import DitherError, StateUnreadable
from aggregator.local import state_folder
from aggregator.local.state_folder import begin_new_log, redis_in_folder
from aggregator.storage.progress import TORN
from aggregator.storage.redis_keys import partitions_key, publisher_key, tag
from aggregator.storage.store import Store
from tests.support.rows import row

COUNTED = {"begin": "0", "next": "7", "high": "9", "begun": "4", "done": "4"}
EMBEDDED = {**COUNTED, "cluster": "mockCluster1234", "last": "6:0:00112233445566aa"}
OWNERS: dict[str, tuple[dict[str, str], tuple[int, str, str, str]]] = {
    # name: stored facts, and `next`, `gap`, `vanished` and `cluster` of the new log
    "counted": (EMBEDDED, (0, "2", "7", "")),
    "torn": ({**EMBEDDED, "next": "-2"}, (TORN, "0", "9", "")),
    "half a commit": ({**EMBEDDED, "begun": "5", "vanished": "1"}, (TORN, "0", "10", "")),
    "begun before": ({**EMBEDDED, "cluster": "", "gap": "3"}, (0, "5", "7", "")),
    "another Kafka": (
        {**COUNTED, "cluster": "MkU3OEVBNTcwNTJENDM2Qk"},
        (7, "", "", "MkU3OEVBNTcwNTJENDM2Qk"),
    ),
}


def test_a_new_log_begins_beside_the_counts_of_earlier_ones(store: Store) -> None:
    settings, client = Settings(), cast("Any", store.client)
    marks = HandledMarks(store, settings.topics.deadletters, "")
    marks.mark([MessagePosition(0, 5)])
    position = f"{publisher_key(store.topic)}:position"
    client.hset(position, mapping={"topic": "dither.estimates:", "0": 5, "has:events": 1})
    for number, (stored, _) in enumerate(OWNERS.values()):
        client.sadd(partitions_key(store.topic), number)
        client.hset(f"{tag(store.topic, number)}:owner", mapping=stored)
    client.sadd(partitions_key(store.topic), len(OWNERS))  # never counted
    for uncounted in (4, 0):  # the second time as after a kill before the first commit
        assert begin_new_log(store, settings) == uncounted
        for number, (name, (_, expected)) in enumerate(OWNERS.items()):
            with row(name):
                owner = store.owner(number)
                facts = [owner.get(field, "") for field in ("gap", "vanished", "cluster")]
                assert (int(owner["next"]), *facts) == expected
                if facts[1]:
                    refused = recount.describe_loss(owner, 0, 0, "")
                    assert refused.startswith(f"{facts[1]} offsets that were counted had left")
    assert store.owner(len(OWNERS)) == {}
    assert client.hmget(position, "topic", "0", "has:events") == [b"dither.estimates:", b"0", b"1"]
    assert MessagePosition(0, 5) not in marks.read({0: (0, 10)})
    client.sadd(f"{marks._prefix}:0:0", "spoilt")
    with pytest.raises(StateUnreadable, match=f"{marks._prefix}:0:0"):
        marks.read({0: (0, 10)})


def test_a_folder_is_locked_by_its_redis(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "new" / "counts"
    with redis_in_folder(folder) as server:
        server.start()
    with monkeypatch.context() as impatient:
        impatient.setattr(state_folder, "LOCK_SECONDS", 0.0)
        with pytest.raises(DitherError, match=f"another `dither up` uses the folder {folder}"):
            redis_in_folder(folder).__enter__()
    server.stop()
    with redis_in_folder(folder) as second, second:
        assert folder.stat().st_mode & 0o777 == 0o700
