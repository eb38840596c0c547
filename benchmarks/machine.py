"""The machine and the versions that a run was made with, in general terms."""

from __future__ import annotations

import os
import platform
import re
from contextlib import closing
from importlib.metadata import version
from pathlib import Path

import confluent_kafka

from aggregator.storage.connection import connect
from benchmarks.places import Places
from deploy.kafka.distribution import kafka_version

CPU_INFO = Path("/proc/cpuinfo")


def described(places: Places) -> dict[str, str]:
    """Return the facts that matter for speed; of servers, only those that were started."""
    facts = {
        "processor": f"{os.cpu_count()} x {_processor()}",
        "system": f"{platform.system()} {platform.machine()}",
        "Python": platform.python_version(),
        "numpy": version("numpy"),
        "librdkafka": confluent_kafka.libversion()[0],
    }
    if "kafka" in places.__dict__:
        real = f"Apache Kafka {kafka_version()}"
        facts["Kafka"] = real if places.is_real else "in-process (librdkafka)"
    if "redis" in places.__dict__:
        with closing(connect(places.redis)) as client:
            server = client.info("server")
        facts["Redis"] = f"{server.get('server_name', 'redis')} {server['redis_version']}"
    return facts


def _processor() -> str:
    """Return the processor's model, without the words that say nothing."""
    if CPU_INFO.exists():
        for model in re.findall(r"^model name\s*: (.*)", CPU_INFO.read_text(), re.MULTILINE):
            return re.sub(r"\((R|TM)\)|\bCPU\b", "", model).strip()
    return platform.processor() or "unknown"
