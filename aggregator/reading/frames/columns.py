"""The columns of tables of answers: their names, kinds and meanings."""

from __future__ import annotations

import dataclasses
import enum

ATTRIBUTE_PREFIX, AXIS_PREFIX = "by_", "axis_"
"""Prefixes of columns for attributes of devices and for axes, which no other column has."""


class ColumnKind(enum.Enum):
    """The kind of a column's values; None stands for a value that is unknown or does not apply."""

    TEXT = "text"
    FLOAT = "float"
    INTEGER = "integer"
    FLAG = "true or false"
    TIME = "time"


@dataclasses.dataclass(frozen=True)
class Column:
    """The kind and the meaning of a column; times are in ms since the epoch, and in us in Arrow."""

    kind: ColumnKind
    meaning: str


_TEXT_KIND, _FLOAT_KIND, _INTEGER_KIND, _FLAG_KIND, _TIME_KIND = ColumnKind

COLUMN_MEANINGS = {
    "metric": Column(_TEXT_KIND, "the metric's name"),
    "kind": Column(_TEXT_KIND, "the metric's kind"),
    "unit": Column(_TEXT_KIND, "the unit of `value`, `lower` and `upper`; empty if there is none"),
    "window_start": Column(_TIME_KIND, "where the window begins; null: unbounded"),
    "window_end": Column(_TIME_KIND, "where the window ends, exclusive; null: unbounded"),
    "label": Column(
        _TEXT_KIND, "the category, coordinate, quantile or string; null where there is one number"
    ),
    "edge": Column(_FLOAT_KIND, "the edge below which `value` is the share of the users"),
    "value": Column(_FLOAT_KIND, "the estimate, within its bounds"),
    "lower": Column(_FLOAT_KIND, "the lower bound"),
    "upper": Column(_FLOAT_KIND, "the upper bound; null also where a ratio has none"),
    "unbiased": Column(_FLOAT_KIND, "the estimate before clipping: for sums and means of rows"),
    "reports": Column(_INTEGER_KIND, "reports in the window, or in the slice"),
    "status": Column(
        _TEXT_KIND, "`not_ready`, `too_few_reports`, `provisional`, `final` or `expired`"
    ),
    "beta": Column(_FLOAT_KIND, "the failure probability of the bounds"),
    "bound": Column(_TEXT_KIND, "`fixed`, `anytime` or `normal`"),
    "target": Column(_TEXT_KIND, "`population` or `sample`"),
    "covers": Column(_TEXT_KIND, "what the bounds cover together"),
    "policy": Column(_TEXT_KIND, "the weights of the privacy levels"),
    "coverage": Column(_FLOAT_KIND, "the share of the window's reports that tables of slices have"),
    "comparison": Column(_TEXT_KIND, "the comparison's name in the definitions; else null"),
    "of": Column(_TEXT_KIND, "`difference` or `ratio`, of a and b"),
    "p_value": Column(_FLOAT_KIND, "the p-value of the hypothesis that a and b are equal"),
    "decided": Column(_FLAG_KIND, "whether `p_value` is at most `beta`"),
    "law": Column(_TEXT_KIND, "`joint` or `union`"),
    "alarm": Column(_TEXT_KIND, "the alarm's name in the definitions"),
    "slice": Column(_TEXT_KIND, "the slice that an alarm watches; empty: all reports"),
    "direction": Column(_TEXT_KIND, "the moves that an alarm looks for: `any`, `up` or `down`"),
    "state": Column(_TEXT_KIND, "of an alarm's series: `learning`, `watching` or `unwatchable`"),
    "watched_until": Column(_TIME_KIND, "the end of the last pane that an alarm has looked at"),
    "baseline": Column(_FLOAT_KIND, "the number with which an alarm compares"),
    "evidence": Column(_FLOAT_KIND, "evidence of a move, as a share of what an alarm needs"),
    "smallest_shift": Column(
        _FLOAT_KIND, "the smallest move that is seen with a probability of about 90%"
    ),
    "panes": Column(_INTEGER_KIND, "panes since the start, or since the last alarm"),
    "alarms": Column(_INTEGER_KIND, "alarms that the series has raised"),
    "last_alarm": Column(_TIME_KIND, "the end of the pane that raised the newest alarm"),
    "informative": Column(_FLAG_KIND, "whether the pane had reports at each level"),
    "raised": Column(_FLAG_KIND, "whether the pane raised an alarm"),
    "reason": Column(_TEXT_KIND, "why a series is not watched, or a message was refused"),
    "revision": Column(_TEXT_KIND, "the revision of a metric's definition"),
    "mechanism": Column(_TEXT_KIND, "the mechanism of a metric, or of one of its levels"),
    "levels": Column(_TEXT_KIND, "the privacy levels of a metric, with blanks between them"),
    "pane": Column(_TEXT_KIND, "the width of a metric's panes"),
    "refused": Column(_INTEGER_KIND, "reports of a metric that were refused"),
    "event_time": Column(_TIME_KIND, "how far the event time of a metric has come"),
    "epsilon": Column(_FLOAT_KIND, "a privacy level"),
    "log_ratio": Column(
        _FLOAT_KIND, "the logarithm of the largest ratio of a report's probabilities"
    ),
    "private": Column(_FLAG_KIND, "whether `log_ratio` is at most `epsilon`, in exact numbers"),
    "shuffled_epsilon": Column(_FLOAT_KIND, "the level if reports were shuffled (`--shuffled`)"),
    "largest_level": Column(_FLOAT_KIND, "the level that a shuffled crowd allows (`--central`)"),
    "wished": Column(_FLOAT_KIND, "half of the width that a metric's bounds may have in a plan"),
    "within": Column(_FLOAT_KIND, "half of the width that the bounds will have"),
    "needed": Column(_FLOAT_KIND, "how many devices a wished width takes"),
    "drawn": Column(_FLOAT_KIND, "the share of devices that draw a metric"),
    "lottery": Column(_FLOAT_KIND, "`within` under the lottery"),
    "split": Column(_FLOAT_KIND, "`within` under the best split of the budget"),
    "first_come": Column(
        _FLOAT_KIND, "`within` if metrics are answered in order, until the budget is spent"
    ),
    "place": Column(_TEXT_KIND, "partition and offset of a dead letter"),
    "origin": Column(_TEXT_KIND, "partition and offset of the refused message"),
    "arrived": Column(_TIME_KIND, "when the message reached Kafka"),
    "bytes": Column(_INTEGER_KIND, "the size of the message"),
    "replays": Column(_INTEGER_KIND, "how often the message was sent again"),
}
for _arm in "ab":
    COLUMN_MEANINGS |= {
        f"{_arm}_metric": Column(_TEXT_KIND, f"the metric of arm {_arm}"),
        f"{_arm}_slice": Column(_TEXT_KIND, f"the slice of arm {_arm}; empty: all reports"),
        f"{_arm}_start": Column(_TIME_KIND, f"where the window of arm {_arm} begins"),
        f"{_arm}_end": Column(_TIME_KIND, f"where the window of arm {_arm} ends, exclusive"),
        f"{_arm}_reports": Column(_INTEGER_KIND, f"the reports of arm {_arm}"),
        f"{_arm}_value": Column(_FLOAT_KIND, f"the estimate of arm {_arm}"),
        f"{_arm}_lower": Column(_FLOAT_KIND, f"the lower bound of arm {_arm}, with `each`"),
        f"{_arm}_upper": Column(_FLOAT_KIND, f"the upper bound of arm {_arm}, with `each`"),
    }

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
    return ColumnKind.TEXT if is_text else COLUMN_MEANINGS[name].kind
