"""`dither bench`: benchmarks against a baseline and against other libraries."""

from __future__ import annotations

from aggregator.cli.commands.clone import command_of_clone

bench = command_of_clone("benchmarks.command", "bench", "the benchmarks", "run `make bench` there")
