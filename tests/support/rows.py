"""Tables of cases in one test: a row that fails names itself."""

import contextlib
from collections.abc import Iterator


@contextlib.contextmanager
def row(*name: object) -> Iterator[None]:
    """Check one row of a table; a failure says which one it is."""
    try:
        yield
    except BaseException as error:
        error.add_note(f"in the row {', '.join(map(str, name))}")
        raise
