"""Reasons for which messages are refused, in words, and what to do about each."""

from __future__ import annotations

from typing import NamedTuple


class Remedy(NamedTuple):
    """A reason in words, and what a person can do."""

    means: str
    do: str


_FOREIGN = "Repair or stop what writes it; `dither deadletters drop` hides it here."
_DEVICE = (
    "No device that uses Dither's library sends this: look for another implementation, or for "
    "somebody who tampers. Nothing can be saved; `dither deadletters drop` hides it here."
)
REMEDIES = {
    "malformed": Remedy("the message is no ReportBatch", _FOREIGN),
    "unknown_metric": Remedy(
        "the metric is not in the workers' metrics.toml",
        "If it should be counted: define it there, then `dither deadletters replay "
        "--reason unknown_metric`.",
    ),
    "wrong_revision": Remedy(
        "the device has another definition of the metric than the workers",
        "Give the workers the devices' definition, then `dither deadletters replay "
        "--reason wrong_revision`; or give the devices the new one. Reports of an old definition "
        "can never be added to sums of a new one.",
    ),
    "empty": Remedy("the batch has no reports", _DEVICE),
    "bad_batch_id": Remedy("the batch's id is not 16 bytes", _DEVICE),
    "bad_length": Remedy("levels and values do not have the same number of reports", _DEVICE),
    "bad_level": Remedy("a report claims a privacy level that the metric does not have", _DEVICE),
    "bad_value": Remedy("a report is none that the mechanism can make", _DEVICE),
    "bad_round": Remedy("it answers a round, and the metric has none", _DEVICE),
    "bad_time": Remedy("its event time is before 1970", _DEVICE),
    "late": Remedy(
        "its pane was closed before it came",
        "It cannot be counted any more: closed panes never change. Give the metric a longer "
        "lateness for those to come; `dither deadletters drop --reason late` hides it here.",
    ),
    "future": Remedy(
        "its event time is too far ahead of Kafka's clock",
        "Set the device's clock. `dither deadletters replay --reason future` counts it once its "
        "time has come.",
    ),
    "too_large": Remedy(
        "the message has more than 33,554,432 bytes: it was compressed when it came",
        "Nobody who uses Dither's library sends this: look for who floods (docs/abuse.md). "
        "`dither deadletters drop` hides it here.",
    ),
    "too_old": Remedy(
        "its event time is further before Kafka's clock than aggregate.past",
        "Set the device's clock. If the time is right, as in a backfill: set a longer "
        "aggregate.past, restart the workers, then `dither deadletters replay --reason too_old`.",
    ),
    "too_many_reports": Remedy(
        "the batch has more reports than the metric's max_batch_reports",
        "Let the device send smaller batches; or allow more, then `dither "
        "deadletters replay --reason too_many_reports`.",
    ),
    "over_limit": Remedy(
        "its key had its max_key_reports of the pane already",
        "Look for who floods (docs/abuse.md). If the limit was too low: raise it, restart the "
        "workers, then `dither deadletters replay --reason over_limit` while the pane is open.",
    ),
    "time_lost": Remedy(
        "its event time is when it reached Kafka, and the reports topic stamps what is sent again",
        "It would be counted in a wrong pane, or twice. Let the devices write event times.",
    ),
    "truncated": Remedy(
        "the dead letter has only its beginning: the broker would not take it whole",
        "Read the original in the reports topic while that keeps it. Let the dead-letter topic "
        "have the max.message.bytes of the reports topic.",
    ),
    "no_partition": Remedy(
        "the reports topic does not have the partition that it came from",
        "The topic was created again with fewer partitions: add the missing ones.",
    ),
    "replayed": Remedy(
        "it was sent again before, as often as --rounds allows, and refused each time",
        "Look at it with `dither deadletters explain`; then drop it, or allow more rounds.",
    ),
}
UNKNOWN = Remedy("refused by another version of Dither", "Ask that version's documentation.")


def remedy(reason: str) -> Remedy:
    """Return what a reason means and what to do."""
    return REMEDIES.get(reason, UNKNOWN)
