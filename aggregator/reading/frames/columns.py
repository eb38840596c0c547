"""The columns of tables of answers: their names and kinds."""

from __future__ import annotations

import enum

ATTRIBUTE_PREFIX, AXIS_PREFIX = "by_", "axis_"
"""Prefixes of columns for attributes of devices and for axes, which no other column has."""


class ColumnKind(enum.Enum):
    """The kind of a column's values; times are in ms since the epoch, and in us in Arrow.

    None stands for a value that is unknown or does not apply.
    """

    TEXT = "text"
    FLOAT = "float"
    INTEGER = "integer"
    FLAG = "true or false"
    TIME = "time"


_NAMES_BY_KIND = {
    ColumnKind.TEXT: """
        metric kind unit label status bound target covers policy
        comparison of law a_metric a_slice b_metric b_slice
        alarm slice direction state reason revision mechanism levels pane place origin
    """,
    ColumnKind.FLOAT: """
        edge value lower upper unbiased beta coverage
        p_value a_value a_lower a_upper b_value b_lower b_upper
        baseline evidence smallest_shift epsilon log_ratio shuffled_epsilon largest_level
        wished within needed drawn lottery split first_come
    """,
    ColumnKind.INTEGER: "reports a_reports b_reports panes alarms refused bytes replays",
    ColumnKind.FLAG: "decided informative raised private",
    ColumnKind.TIME: """
        window_start window_end a_start a_end b_start b_end
        watched_until last_alarm event_time arrived
    """,
}
COLUMN_KINDS = {name: kind for kind, names in _NAMES_BY_KIND.items() for name in names.split()}
"""The kind of each column; docs/tables.md states its meaning."""

WINDOW_COLUMNS = ("metric", "kind", "unit", "window_start", "window_end")
NUMBER_COLUMNS = ("label", "value", "lower", "upper", "unbiased", "reports", "status")
STATEMENT_COLUMNS = ("beta", "bound", "target", "covers", "policy")
ESTIMATE_COLUMNS = (*WINDOW_COLUMNS, *NUMBER_COLUMNS, *STATEMENT_COLUMNS)
"""The columns of a table of an estimate, and of a series."""


def kind_of(name: str) -> ColumnKind:
    """Return the kind of a column.

    Examples
    --------
    >>> kind_of("value"), kind_of("by_country")
    (<ColumnKind.FLOAT: 'float'>, <ColumnKind.TEXT: 'text'>)
    """
    is_text = name.startswith((ATTRIBUTE_PREFIX, AXIS_PREFIX))
    return ColumnKind.TEXT if is_text else COLUMN_KINDS[name]
