"""A reporter over HTTP that records what it reports."""

from typing import Any

from producers import HttpReporter


class NotedReporter(HttpReporter):
    """Records each given value and time, once the report is charged and in the queue."""

    def __init__(self, *given: Any, **options: Any) -> None:
        self.noted: list[tuple[Any, Any]] = []
        super().__init__(*given, **options)

    def report(self, value: Any, epsilon: Any, time: Any = None, **more: Any) -> None:
        """Report a value, and record it."""
        super().report(value, epsilon, time, **more)
        self.noted.append((value, time))
