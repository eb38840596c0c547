"""The reasons for refused messages, each with an explanation and a remedy."""

from __future__ import annotations

from typing import NamedTuple


class Remedy(NamedTuple):
    """The meaning of a reason, and its remedy."""

    means: str
    do: str


_REPAIR_WRITER = (
    "Repair or stop the program that writes it. `dither deadletters drop` removes it from this "
    "list."
)
_INSPECT_DEVICE = (
    "No device that uses Dither's library sends this: look for another implementation, or for "
    "tampering. The report cannot be saved. `dither deadletters drop` removes it from this list."
)
_FAULTS_OF_DEVICES = {
    "empty": "the batch has no reports",
    "bad_batch_id": "the batch's id is not 16 bytes",
    "bad_length": "levels and values do not have the same number of reports",
    "bad_level": "a report claims a privacy level that the metric does not have",
    "bad_value": "a report has a value that the mechanism cannot produce",
    "bad_round": "it answers a round, and the metric has none",
    "bad_time": "its event time is before 1970, or Kafka's timestamp is beyond the year 9999",
}
REMEDY_BY_REASON = {
    "malformed": Remedy("the message is not a ReportBatch", _REPAIR_WRITER),
    "bad_frame": Remedy(
        "the message begins with the frame of a schema registry, for another message than "
        "ReportBatch",
        "Look at the serializer of the program that writes it (docs/schema-registry.md). "
        "`dither deadletters drop` removes it from this list.",
    ),
    "unknown_metric": Remedy(
        "the metric is not in the workers' metrics.toml",
        "If it should be counted, define it there; then run `dither deadletters replay "
        "--reason unknown_metric`.",
    ),
    "wrong_revision": Remedy(
        "the device has another definition of the metric than the workers",
        "Give the workers the devices' definition, then run `dither deadletters replay --reason "
        "wrong_revision`; or give the devices the new one. Reports of an old definition can never "
        "be added to sums of a new one.",
    ),
    **{reason: Remedy(means, _INSPECT_DEVICE) for reason, means in _FAULTS_OF_DEVICES.items()},
    "late": Remedy(
        "its pane was closed before it arrived",
        "It cannot be counted any more, because closed panes never change. A longer lateness of "
        "the metric helps future reports. `dither deadletters drop --reason late` removes it from "
        "this list.",
    ),
    "future": Remedy(
        "its event time is too far ahead of Kafka's clock",
        "Correct the device's clock. `dither deadletters replay --reason future` counts it once "
        "its time has come.",
    ),
    "too_large": Remedy(
        "the message has more than 33,554,432 bytes; it arrived compressed",
        "No device that uses Dither's library sends this: look for a flood (docs/abuse.md). "
        "`dither deadletters drop` removes it from this list.",
    ),
    "too_old": Remedy(
        "its event time is further before Kafka's clock than aggregate.past",
        "Correct the device's clock. If the time is right, as in a backfill: set a longer "
        "aggregate.past, restart the workers, then run `dither deadletters replay --reason "
        "too_old`.",
    ),
    "too_many_reports": Remedy(
        "the batch has more reports than the metric's max_batch_reports",
        "Let the device send smaller batches. Or raise the limit, then run `dither "
        "deadletters replay --reason too_many_reports`.",
    ),
    "over_limit": Remedy(
        "its key already had max_key_reports in the pane",
        "Look for a flood (docs/abuse.md). If the limit was too low, raise it, restart the "
        "workers, then run `dither deadletters replay --reason over_limit` while the pane is open.",
    ),
    "time_lost": Remedy(
        "its event time is its arrival in Kafka, and the topic gives replayed messages a new "
        "timestamp",
        "It would be counted in a wrong pane, or twice. Let the devices send event times.",
    ),
    "time_unsafe": Remedy(
        "its event time is its arrival in Kafka, and it is unknown whether the topic gives "
        "replayed messages a new timestamp",
        "Grant DescribeConfigs on the reports topic and set topics.managed = true, then replay "
        "again. Or let the devices send event times.",
    ),
    "truncated": Remedy(
        "the dead letter has only the message's beginning, because the broker did not accept the "
        "whole",
        "Read the original in the reports topic, while it is kept there. Give the dead-letter "
        "topic the max.message.bytes of the reports topic.",
    ),
    "no_partition": Remedy(
        "the reports topic lacks the partition from which it came",
        "The topic was recreated with fewer partitions: add the missing ones.",
    ),
    "replayed": Remedy(
        "it was replayed as often as --rounds allows, and refused each time",
        "Look at it with `dither deadletters explain`; then drop it, or raise --rounds.",
    ),
}
UNKNOWN_REASON = Remedy("refused by another version of Dither", "Ask that version's documentation.")


def remedy(reason: str) -> Remedy:
    """Return the meaning of a reason and its remedy."""
    return REMEDY_BY_REASON.get(reason, UNKNOWN_REASON)
