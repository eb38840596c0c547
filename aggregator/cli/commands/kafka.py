"""`dither kafka`: Apache Kafka on this machine, from Maven jars."""

from __future__ import annotations

from aggregator.cli.commands.clone import command_of_clone

kafka = command_of_clone(
    "deploy.kafka.command", "kafka", "Apache Kafka's launcher", "run `.venv/bin/dither kafka` there"
)
