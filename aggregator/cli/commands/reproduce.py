"""`dither reproduce`: the papers' tables and figures, from the product's own estimators."""

from __future__ import annotations

from aggregator.cli.commands.clone import command_of_clone

reproduce = command_of_clone(
    "reproduction.command",
    "reproduce",
    "the papers' experiments",
    "run `.venv/bin/dither reproduce` there",
)
