"""Nothing that Dither emits during a trusted run has a sum that was not released."""

import base64
import re
import socket
import subprocess
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import httpx
import numpy as np

from aggregator.state.pane_keys import GRAINS_MS, PaneKey, metric_key
from aggregator.storage.redis_keys import tag
from tests.support.events import on_topic, service
from tests.support.reports.messages import EPOCH, batch
from tests.support.reports.trusted import MINUTE, PANE, definitions
from tests.support.running.deployment import Deployment, wait_until

METRICS = definitions([0.0005, 0.001], [0.001])
ADDRESS = rb"(127\.0\.0\.1|%b):\d+" % re.escape(socket.gethostname()).encode()
NUMBERS = rb"\b[0-9a-f]+(?:[.,][0-9a-f]+)*\b", rb"\b[0-9a-f]+(?:\.[0-9a-f]+)?\b"
"""With commas between digits, and between numbers."""
PANES = 3
"""The last one is open: its sums are never released."""
VOTES = (31_417, 27_183, 14_142)
"""More or less: the noise at these levels has a scale of thousands, so none is hit by chance."""


def reports(deployment: Deployment) -> list[tuple[int, bytes]]:
    """Return batches in all partitions and panes, of wages and votes that nobody has twice."""
    wage, party = (deployment.metrics[name] for name in ("wage", "party"))
    rng, found = np.random.default_rng(7), []
    for pane in range(PANES):
        for partition in range(deployment.partitions):
            time, seed = EPOCH + pane * PANE + MINUTE, 100 * pane + 10 * partition
            votes = np.repeat([0, 1, 2], np.array(VOTES) + 101 * pane + 11 * partition)
            contents = [
                batch(wage, rng.uniform(0, 100, 50).tolist(), 0.0005, time, seed),
                batch(wage, rng.uniform(0, 100, 70).tolist(), 0.001, time, seed + 1),
                batch(party, votes.tolist(), 0.001, time, seed + 2),
            ]
            found += [(partition, one.SerializeToString()) for one in contents]
    return found


def secrets(deployment: Deployment) -> dict[str, list[bytes]]:
    """Return every unreleased sum, in every form in which it could be told, by what it is."""
    found: dict[str, list[bytes]] = {}
    for name, metric in deployment.metrics.items():
        key, columns = metric_key(name, metric.revision), metric.randomizer.columns
        tables: dict[str, Any] = {}
        for partition in range(deployment.partitions):
            prefix = tag(deployment.topic, partition)
            for grain in ("pane", *GRAINS_MS, "total"):
                for start in deployment.store.panes.starts(partition, grain, key):
                    place = PaneKey(grain, key, start)
                    raw: Any = deployment.store.client.get(f"{prefix}:{place}")
                    vector = np.frombuffer(raw, "<i8")
                    tables[f"{prefix}:{place}"] = vector
                    tables[str(place)] = tables.get(str(place), 0) + vector
        assert len(tables) > PANES * deployment.partitions
        for name_of, vector in tables.items():
            table = vector.reshape(len(metric.levels), columns)
            both = table.sum(axis=0)
            for row, what in [*((one, "level") for one in table), (both, "sum")]:
                for value in row[1:].tolist():
                    found[f"{what} of {name_of}: {value}"] = told(metric, int(row[0]), value)
            whole = vector.astype("<i8").tobytes()
            found[f"statistic of {name_of}"] = encoded(whole)
    return found


def told(metric: Any, count: int, value: int) -> list[bytes]:
    """Return a sum as text and bytes, and what it says of its reports."""
    texts = [str(value), f"{value:,}", f"{value:x}"]
    if metric.kind == "mean":
        total = value / metric.randomizer.grid * 100
        numbers = [total, total / count, total / 100, total / 100 / count]
    else:
        numbers = [value / count]
    texts += [form(x) for x in numbers for form in (repr, "{:.6f}".format, "{:.8g}".format)]
    binary = [value.to_bytes(8, "little"), value.to_bytes(8, "big")]
    return [text.encode() for text in texts] + [form for raw in binary for form in encoded(raw)]


def encoded(raw: bytes) -> list[bytes]:
    """Return bytes as they are, and as text."""
    return [raw, raw.hex().encode(), base64.b64encode(raw).rstrip(b"="), repr(raw)[2:-1].encode()]


def leaks(emitted: dict[str, bytes], sums: dict[str, list[bytes]]) -> list[str]:
    """Return which sums are anywhere; digits only where they are a whole number.

    Ports and processes' ids are left out: they are as long as some sums.
    """
    sums_of: defaultdict[bytes, list[str]] = defaultdict(list)
    for what, forms in sums.items():
        for form in forms:
            sums_of[form].append(what)
    numeric = {form for form in sums_of if re.fullmatch(rb"[0-9a-f.,]+", form)}
    return [
        f"{what} as {form!r} in {place}"
        for place, said in emitted.items()
        for data in [re.sub(ADDRESS, b"", said)]
        for form in (
            *numeric.intersection(number for one in NUMBERS for number in re.findall(one, data)),
            *(form for form in sums_of.keys() - numeric if form in data),
        )
        for what in sums_of[form]
    ]


def asked(address: str) -> dict[str, bytes]:
    """Return what the server says to everything that can be asked, well or badly."""
    found = {}
    paths = ["/metrics", "/healthz", "/readyz", "/openapi.json", "/asyncapi.json", "/v1/status"]
    paths += ["/v1/metrics", "/"]
    for name in ("wage", "party"):
        one = f"/v1/metrics/{name}"
        questions = ["", "?window=10m", "?from=2013-01-01&to=2013-01-02", "?weights=uniform"]
        questions += ["?beta=0.5", "?target=sample", "?category=red", "?pointwise=true", "?top=1"]
        paths += [one, *(f"{one}/estimate{question}" for question in questions)]
        paths += [f"{one}/series", f"{one}/series?step=10m", f"{one}/series?step=1h"]
    with httpx.Client(base_url=address, timeout=60) as client:
        for path in paths:
            answer = client.get(path)
            assert answer.status_code in (200, 400), answer.text
            found[f"GET {path}"] = answer.content
        with client.stream("GET", "/v1/events") as stream:
            lines = b""
            for chunk in stream.iter_bytes():
                lines += chunk
                if lines.count(b"event: estimate") >= 2 and b"event: status" in lines:
                    break
            found["GET /v1/events"] = lines
    return found


def test_no_sum_leaves_but_in_a_release(defined: Callable[..., Deployment]) -> None:
    trusted, emitted = defined(METRICS, 2), dict[str, bytes]()
    trusted.produce([*reports(trusted), (0, b"no batch")])

    def released() -> bool:
        return trusted.store.registry.publisher_status()[1]["final"] >= 2 * (PANES - 1)

    with service(trusted, "--log-json", "--log-level=debug") as address:
        trusted.wait_until_counted()
        wait_until(released, "the closed panes are released")
        emitted |= {f"while counting, {path}": data for path, data in asked(address).items()}
        for first in reports(trusted)[:2]:  # duplicates by now late
            trusted.produce([first])
        trusted.dead(3)
        commands = [("metrics", "--json"), ("verify",), ("estimate", "wage"), ("weights",)]
        commands += [("estimate", "party", "--json"), ("deadletters", "list")]
        for command in commands:
            emitted[f"dither {' '.join(command)}"] = output(trusted.dither(*command))
    key = metric_key("wage", trusted.metrics["wage"].revision)
    damaged = f"{tag(trusted.topic, 0)}:pane:{key}:{EPOCH}"
    sums = secrets(trusted)
    client: Any = trusted.store.client
    client.setrange(damaged, 9, b"\x55")
    verified = trusted.dither("verify")
    assert "differ" in verified.stdout, "verify tells that, and not what"
    emitted["dither verify, of damage"] = output(verified)
    for number, event in enumerate(on_topic(trusted, isolation="read_uncommitted")):
        headers = b" ".join(value for value in event.headers.values())
        emitted[f"event {number}"] = event.key.encode() + headers + event.value
    letters = on_topic(trusted, trusted.deadletters)
    emitted |= {f"dead letter {n}": letter.value for n, letter in enumerate(letters)}
    for name in ("aggregate", "serve"):
        emitted[name] = trusted.log(name).read_bytes()
        assert b'"level": "debug"' in emitted[name]
    assert len(emitted) > 40
    assert leaks(emitted, sums) == []

    some = next(what for what in sums if what.startswith("sum of pane:wage"))
    for form in sums[some]:
        for leak in (b'{"value": %b}', b"value=%b, [%b,1]"):
            assert leaks({"a leak": leak.replace(b"%b", form)}, sums), "a leak would be found"


def output(run: subprocess.CompletedProcess[str]) -> bytes:
    return (run.stdout + run.stderr).encode()
