"""The processor time and the memory of processes, also in their steady state."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.measure import CannotRunError

WARM_SHARE, END_SHARE = 0.4, 0.95
"""Shares of a log: after the first a virtual machine has compiled what runs often; after the second
threads wait."""
MIN_MEASURED_SHARE = 0.2
"""The part of a log that says what a message costs, at least."""
SCHEDULER_CLOCK = 2
"""The kernel's clock of a process' processor time, by its scheduler: CPUCLOCK_SCHED."""


@dataclass(frozen=True)
class Sample:
    """The progress of processes at a time.

    Attributes
    ----------
    processor_seconds : float
        The processor time that they had used, user and system.
    messages : int
        The number of messages that they had counted.
    """

    processor_seconds: float
    messages: int


def processor_seconds(pids: Iterable[int]) -> float:
    """Return the processor time of processes so far: user and system, of all their threads.

    Linux alone has such a clock for another process (clock_getcpuclockid).

    Examples
    --------
    >>> import os
    >>> 0 < processor_seconds([os.getpid()]) <= time.process_time()
    True
    """
    return sum(time.clock_gettime(~pid << 3 | SCHEDULER_CLOCK) for pid in pids)


def memory_of(pid: int) -> dict[str, int]:
    """Return the memory of a process, in bytes, by the kernel's names; Linux only."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {
        line.partition(":")[0]: 1024 * int(line.split()[1]) for line in lines if line[:2] == "Vm"
    }


def steady_rate(samples: Sequence[Sample], messages: int) -> float:
    """Return the messages a core second from the first warm sample to the last before the end.

    Parameters
    ----------
    samples : sequence of Sample
        The samples, in order of time.
    messages : int
        The number of messages in the whole log. If the log is over within a sample or two, all
        samples count.

    Raises
    ------
    CannotRunError
        If hardly any were counted between samples: one of two workers counted all, for instance,
        while the other started.

    Examples
    --------
    >>> steady_rate([Sample(0, 0), Sample(3, 50), Sample(4, 90), Sample(4.1, 100)], 100)
    40.0
    """
    warm_samples = [
        sample
        for sample in samples
        if WARM_SHARE * messages <= sample.messages <= END_SHARE * messages
    ]
    if len(warm_samples) < 2 or warm_samples[0].messages == warm_samples[-1].messages:
        warm_samples = list(samples)
    first, last = warm_samples[0], warm_samples[-1]
    counted = last.messages - first.messages
    if counted < MIN_MEASURED_SHARE * messages:
        raise CannotRunError(
            f"all but {counted:,} of {messages:,} were counted before the first look"
        )
    return counted / max(last.processor_seconds - first.processor_seconds, 1e-9)
