"""The service: consume, count, commit, serve, and the command line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aggregator.features.reader import Reader

__all__ = ["Reader"]


def __getattr__(name: str) -> Any:
    """Return `Reader`, imported on first use: `dither --help` starts without numpy and redis."""
    if name == "Reader":
        try:
            from aggregator.features.reader import Reader
        except ModuleNotFoundError as error:
            from aggregator.extras import explain_missing_module

            message = explain_missing_module(error, "Reader")
            raise ModuleNotFoundError(message or str(error), name=error.name) from error
        return Reader
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
