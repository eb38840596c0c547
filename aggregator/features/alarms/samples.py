"""Prometheus samples of alarms: states, the evidence of series, and when alarms were raised."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from aggregator.features.alarms.alarm_answers import all_alarms
from aggregator.monitoring.metric_definitions import Exported, declared, exported_counter
from aggregator.monitoring.samples import Sample, Samples
from aggregator.storage.progress import TopicProgress
from aggregator.timestamps import from_iso

ALARM_EVIDENCE = Exported(
    "dither_alarm_evidence{alarm,series}",
    "Evidence against a series' baseline, as a share of what raises an alarm, on the scale of "
    "logarithms: 1 raises it.",
)
ALARM_RAISED = Exported(
    "dither_alarm_raised_timestamp_seconds{alarm,series,direction}",
    "End of the last pane that raised an alarm.",
)
ALARMS_TOTAL = exported_counter(
    "dither_alarms{alarm}", "Alarms that were raised since an alarm's start."
)
ALARM_STATE = Exported(
    "dither_alarm_state{alarm,state}",
    "1 for the state of an alarm: learning (its baseline is not final yet), watching, or "
    "unwatchable.",
)
ALARM_UNTIL = Exported(
    "dither_alarm_looked_until_timestamp_seconds{alarm}",
    "End of the last pane that an alarm has looked at.",
)
ALARM_SKIPPED = Exported(
    "dither_alarm_skipped_panes{alarm}", "Panes that had expired before an alarm looked at them."
)
ALARMS_PROMISED = Exported(
    "dither_alarms_promised_per_year",
    "Largest expected number of false alarms a year, over all alarms together.",
)


class AlarmSamples(Samples):
    """The states of alarms, with evidence once there is any."""

    title = "Alarms"
    exported = declared(globals())
    labels: ClassVar = {
        "alarm": "name of an alarm in `metrics.toml`",
        "series": "a slice and a category of an alarm, as in `country=DE,category=yes`; empty "
        "for all",
        "direction": "`up` or `down`",
        "state": "`learning`, `watching` or `unwatchable`",
    }

    def samples(self, overview: TopicProgress) -> Iterator[Sample]:
        """Yield the samples of all alarms."""
        answer = all_alarms(self.reader)
        if not answer.alarms:
            return
        yield Sample(ALARMS_PROMISED, answer.promised_per_year, ())
        for alarm in answer.alarms:
            yield Sample(ALARM_STATE, 1, (alarm.alarm, alarm.state))
            alarms = sum(series.alarms for series in alarm.series)
            yield Sample(ALARMS_TOTAL, alarms, (alarm.alarm,))
            yield Sample(ALARM_SKIPPED, alarm.skipped, (alarm.alarm,))
            if alarm.until is not None:
                yield Sample(ALARM_UNTIL, from_iso(alarm.until), (alarm.alarm,))
            for series in alarm.series:
                if series.evidence is not None:
                    names = ",".join(series.names)
                    yield Sample(ALARM_EVIDENCE, series.evidence, (alarm.alarm, names))
            last = {
                (",".join(raised.names), raised.direction): raised.at
                for raised in reversed(alarm.raised)
            }
            for labels, at in last.items():
                yield Sample(ALARM_RAISED, from_iso(at), (alarm.alarm, *labels))


SAMPLES_CLASS = AlarmSamples
