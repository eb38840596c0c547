"""What tests of reading share."""

from __future__ import annotations

from typing import Any

import pytest

from aggregator.storage.commands import Commands


@pytest.fixture
def trips(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of commands of each round trip to Redis from here on."""
    found: list[int] = []
    asked = Commands.replies

    def counted(self: Commands, commands: Any) -> Any:
        found.append(len(commands))
        return asked(self, commands)

    monkeypatch.setattr(Commands, "replies", counted)
    return found
