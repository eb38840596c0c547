"""Values of a device arrive exactly once over a bad network, though its process is killed."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pytest

from producers.http.report_queue import ReportQueue
from tests.support.running.deployment import Deployment
from tests.support.running.flaky_gateway import FlakyGateway, drawn

pytestmark = pytest.mark.more

CATEGORIES = 20
METRICS = f"""
[metrics]
label = {{kind = "frequency", mechanism = "grr", categories = {CATEGORIES}, levels = [64], \
pane = "1d", lateness = "1d"}}
"""
"""At epsilon = 64 a report is the value, but for a chance of 10^-26: so arrivals can be counted."""

DEVICE = """
import logging, random, sys
from producers import HttpReporter
logging.disable(logging.CRITICAL)
url, queue, count, categories, seed = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:])
source = random.Random(seed)
with HttpReporter("label", url, queue=queue, batch_reports=500, batch_age=1) as reporter:
    begin = reporter.totals.taken
    print("taken", begin, flush=True)
    while begin < count:
        end = min(count, begin + source.randint(1, 200))
        reporter.report([value % categories for value in range(begin, end)], epsilon=64)
        begin = end
    while reporter.totals.left:
        try:
            reporter.flush(600)
        except Exception as error:
            print(error, flush=True)
    print("done", reporter.totals, flush=True)
"""


def run_device(url: str, queue: Path, count: int, kills: int, seed: int) -> list[int]:
    """Run a device to its end, killed so often; return what it had taken at each start."""
    source, taken = random.Random(seed), []
    for attempt in range(kills + 1):
        arguments = [url, str(queue), count, CATEGORIES, seed + attempt]
        device = subprocess.Popen(
            [sys.executable, "-c", DEVICE, *map(str, arguments)],
            stdout=subprocess.PIPE,
            text=True,
            env=dict(os.environ),
        )
        assert device.stdout is not None
        with device:
            taken.append(int(device.stdout.readline().split()[1]))
            if attempt < kills:
                time.sleep(source.uniform(0.05, 1.5))
                device.send_signal(signal.SIGKILL)
            else:
                said = device.stdout.read()
                assert device.wait() == 0, said
                assert "done" in said
    return taken


def test_every_value_arrives_just_once(defined: Callable[..., Deployment], tmp_path: Path) -> None:
    count, deployment, queue = 4_000, defined(METRICS), tmp_path / "reports.queue"
    with (
        deployment.worker(),
        deployment.serving() as address,
        FlakyGateway(urlsplit(address).port or 0, drawn(7, 0.3)) as flaky,
    ):
        taken = run_device(flaky.url, queue, count, kills=2, seed=3)
        deployment.wait_until_counted(300)
        posted = deployment.keys()
        del posted[b""]  # heartbeats have no key
        counts, found = deployment.counts(), deployment.reader().estimate("label")
    assert taken[0] == 0
    assert taken == sorted(taken)
    held = ReportQueue(queue)
    totals = held.totals("label")
    held.close()
    assert (totals.taken, totals.delivered, totals.left) == (count, count, 0)
    assert (totals.dropped, totals.refused) == (0, 0)
    assert len(posted) == totals.batches
    assert counts["accepted:label"] == count, counts
    assert {name for name in counts if not name.startswith("accepted:")} <= {"duplicate:label"}
    assert flaky.done["cut_answer"] + flaky.done["half_answer"] + flaky.done["post_twice"] > 0
    assert posted.total() > len(posted), "no batch came twice: the network was too good"
    expected = np.bincount(np.arange(count) % CATEGORIES)
    assert np.rint(np.asarray(found.value) * count).astype(int).tolist() == expected.tolist()
