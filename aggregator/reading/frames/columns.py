"""The columns that tables of answers may have: what each is called, holds and means."""

from __future__ import annotations

import dataclasses
import enum

BY = "by_"
"""Before the name of an attribute of devices: its column collides with none below."""


class Kind(enum.Enum):
    """What a column holds; None stands for what is not known, or does not apply."""

    TEXT = "text"
    FLOAT = "float"
    INTEGER = "integer"
    FLAG = "true or false"
    TIME = "time"


@dataclasses.dataclass(frozen=True)
class Column:
    """A column; times are in ms since the epoch here, and in us wherever they leave as Arrow."""

    kind: Kind
    meaning: str


_TEXT, _FLOAT, _INTEGER, _FLAG, _TIME = Kind

COLUMNS = {
    "metric": Column(_TEXT, "the metric's name"),
    "kind": Column(_TEXT, "its kind"),
    "unit": Column(_TEXT, "the unit of `value`, `lower` and `upper`; empty if there is none"),
    "window_start": Column(_TIME, "where the window begins; null: unbounded"),
    "window_end": Column(_TIME, "where it ends, exclusive; null: unbounded"),
    "label": Column(
        _TEXT, "the category, coordinate, quantile or string; null where there is one number"
    ),
    "edge": Column(_FLOAT, "the edge below which `value` is the share of the users"),
    "value": Column(_FLOAT, "the estimate, within its bounds"),
    "lower": Column(_FLOAT, "its lower bound"),
    "upper": Column(_FLOAT, "its upper bound; null also where a ratio has none"),
    "unbiased": Column(_FLOAT, "what `value` was clipped from: for sums and means of rows"),
    "reports": Column(_INTEGER, "reports in the window, or in the slice"),
    "status": Column(_TEXT, "`not_ready`, `too_few_reports`, `provisional`, `final` or `expired`"),
    "beta": Column(_FLOAT, "the failure probability of the bounds"),
    "bound": Column(_TEXT, "`fixed`, `anytime` or `normal`"),
    "target": Column(_TEXT, "`population` or `sample`"),
    "covers": Column(_TEXT, "what the bounds cover together"),
    "policy": Column(_TEXT, "the weights of the privacy levels"),
    "coverage": Column(_FLOAT, "the share of the window's reports that tables of slices have"),
    "comparison": Column(_TEXT, "the comparison's name in the definitions; else null"),
    "of": Column(_TEXT, "`difference` or `ratio`, of a and b"),
    "p_value": Column(_FLOAT, "of the hypothesis that a and b are equal"),
    "decided": Column(_FLAG, "whether this p-value is at most `beta`"),
    "law": Column(_TEXT, "`joint` or `union`"),
    "alarm": Column(_TEXT, "the alarm's name in the definitions"),
    "slice": Column(_TEXT, "the slice that an alarm watches; empty: all reports"),
    "direction": Column(_TEXT, "the moves that an alarm looks for: `any`, `up` or `down`"),
    "state": Column(_TEXT, "of an alarm's series: `learning`, `watching` or `unwatchable`"),
    "watched_until": Column(_TIME, "the end of the last pane that an alarm has looked at"),
    "baseline": Column(_FLOAT, "what an alarm compares with"),
    "evidence": Column(_FLOAT, "against the baseline, as a share of what an alarm needs"),
    "smallest_shift": Column(_FLOAT, "the smallest move that would have been seen with 90%, about"),
    "panes": Column(_INTEGER, "panes since the start, or since the last alarm"),
    "alarms": Column(_INTEGER, "alarms that the series has raised"),
    "last_alarm": Column(_TIME, "the end of the pane that raised the newest of them"),
    "informative": Column(_FLAG, "whether the pane had reports at each level"),
    "raised": Column(_FLAG, "whether the pane raised an alarm"),
    "reason": Column(_TEXT, "why a series is not watched, or a message was refused"),
    "revision": Column(_TEXT, "the revision of a metric's definition"),
    "mechanism": Column(_TEXT, "the mechanism of a metric, or of one of its levels"),
    "levels": Column(_TEXT, "the privacy levels of a metric, with blanks between them"),
    "pane": Column(_TEXT, "the width of a metric's panes"),
    "refused": Column(_INTEGER, "reports of a metric that were refused"),
    "event_time": Column(_TIME, "how far the event time of a metric has come"),
    "epsilon": Column(_FLOAT, "a privacy level"),
    "log_ratio": Column(_FLOAT, "the logarithm of the largest ratio of a report's probabilities"),
    "private": Column(_FLAG, "whether it is at most `epsilon`, in exact numbers"),
    "shuffled_epsilon": Column(_FLOAT, "the level if reports were shuffled (`--shuffled`)"),
    "at_least": Column(_FLOAT, "what an attack shows that `epsilon` is at least (`--attack`)"),
    "attack_holds": Column(_FLAG, "whether `at_least` is at most `epsilon`"),
    "place": Column(_TEXT, "partition and offset of a dead letter"),
    "origin": Column(_TEXT, "partition and offset that its message had"),
    "arrived": Column(_TIME, "when the message reached Kafka"),
    "bytes": Column(_INTEGER, "the size of the message"),
    "replays": Column(_INTEGER, "how often it was sent again"),
}
for _arm in "ab":
    COLUMNS |= {
        f"{_arm}_metric": Column(_TEXT, f"the metric of arm {_arm}"),
        f"{_arm}_slice": Column(_TEXT, f"the slice of arm {_arm}; empty: all reports"),
        f"{_arm}_start": Column(_TIME, f"where the window of arm {_arm} begins"),
        f"{_arm}_end": Column(_TIME, "where it ends, exclusive"),
        f"{_arm}_reports": Column(_INTEGER, f"the reports of arm {_arm}"),
        f"{_arm}_value": Column(_FLOAT, f"the estimate of arm {_arm}"),
        f"{_arm}_lower": Column(_FLOAT, "its lower bound, where `each` was asked for"),
        f"{_arm}_upper": Column(_FLOAT, "its upper bound, where `each` was asked for"),
    }

WINDOW = ("metric", "kind", "unit", "window_start", "window_end")
NUMBER = ("label", "value", "lower", "upper", "unbiased", "reports", "status")
STATEMENT = ("beta", "bound", "target", "covers", "policy")
ESTIMATE = (*WINDOW, *NUMBER, *STATEMENT)
"""Of an estimate and of a series, so that their rows can be put together."""


def kind_of(name: str) -> Kind:
    """Return what a column holds.

    Examples
    --------
    >>> kind_of("value"), kind_of("by_country")
    (<Kind.FLOAT: 'float'>, <Kind.TEXT: 'text'>)
    """
    return Kind.TEXT if name.startswith(BY) else COLUMNS[name].kind
