"""Tables of cases in one test: a failure names its row."""

import contextlib
from collections.abc import Iterator


@contextlib.contextmanager
def row(*name: object) -> Iterator[None]:
    """Check one row of a table; a failure names the row."""
    try:
        yield
    except BaseException as error:
        error.add_note(f"in the row {', '.join(map(str, name))}")
        raise
