"""Context managers that close what they are."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self

from producers.delivery.errors import DeliveryError


class Closing(ABC):
    """A context manager that closes itself; an error under way is kept, with what was lost."""

    @abstractmethod
    def close(self) -> object:
        """Close it."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self.close()
        except DeliveryError as undelivered:
            if error is None:
                raise
            error.add_note(str(undelivered))
