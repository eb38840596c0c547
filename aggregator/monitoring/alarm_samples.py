"""Alarms as samples of exported metrics."""

from __future__ import annotations

from collections.abc import Iterator

from aggregator.alarms.standing import all_alarms
from aggregator.monitoring import metric_definitions as exported
from aggregator.monitoring.answer_samples import Sample
from aggregator.reading.reader import Reader
from aggregator.timestamps import from_iso


def alarm_samples(reader: Reader) -> Iterator[Sample]:
    """Yield how alarms stand; nothing without alarms, no evidence where there is none yet.

    Parameters
    ----------
    reader : Reader
    """
    found = all_alarms(reader)
    if not found.alarms:
        return
    yield Sample(exported.ALARMS_PROMISED, found.promised_per_year, ())
    for alarm in found.alarms:
        yield Sample(exported.ALARM_STATE, 1, (alarm.alarm, alarm.state))
        yield Sample(exported.ALARMS, sum(one.alarms for one in alarm.series), (alarm.alarm,))
        yield Sample(exported.ALARM_SKIPPED, alarm.skipped, (alarm.alarm,))
        if alarm.until is not None:
            yield Sample(exported.ALARM_UNTIL, from_iso(alarm.until), (alarm.alarm,))
        for one in alarm.series:
            if one.evidence is not None:
                names = ",".join(one.names)
                yield Sample(exported.ALARM_EVIDENCE, one.evidence, (alarm.alarm, names))
        last = {(",".join(one.names), one.direction): one.at for one in reversed(alarm.raised)}
        for labels, at in last.items():
            yield Sample(exported.ALARM_RAISED, from_iso(at), (alarm.alarm, *labels))
