"""Time, chance and the processes of a schedule: one runs at a time, until its next call."""

from __future__ import annotations

import contextlib
import heapq
import itertools
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

from greenlet import greenlet

from aggregator.clock import Clock

EPOCH_MS = 1_388_534_400_000
"""What the clock on the wall says when a schedule begins."""
JUMPS_MS = [days * 86_400_000 for days in (0, 5, -5, 1, -1)]
CALL_SECONDS = 0.02
"""How long a call takes at most, where nothing holds it up."""


class Crash(BaseException):
    """The process is dead: nothing of it runs any more."""


class World:
    """What everything in a schedule shares.

    Parameters
    ----------
    seed : int
        Decides everything that happens.

    Attributes
    ----------
    now : float
        Seconds since the schedule began.
    chances : dict of str to float
        How likely a fault is, at each call that it could strike; what is missing never happens.
    calm : bool
        Whether the faults are over.
    injected : Counter
        Faults so far, by kind.
    ended : int
        Processes that are over.
    """

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.now = 0.0
        self.calm = False
        self.chances: dict[str, float] = {}
        self.injected: Counter[str] = Counter()
        self.processes: list[Process] = []
        self.ended = 0
        self.trace: list[tuple[float, str, str, Any]] = []
        self._later: list[tuple[float, int, Callable[[], None]]] = []
        self._number = itertools.count()

    def note(self, who: str, what: str, detail: Any = "") -> None:
        """Write a line of the trace."""
        self.trace.append((self.now, who, what, detail))

    def story(self) -> list[str]:
        """Return the trace as text."""
        return [f"{at:9.3f} {who:<4} {what} {told}".rstrip() for at, who, what, told in self.trace]

    def strikes(self, kind: str, who: str) -> bool:
        """Whether a fault happens now."""
        chance = self.chances.get(kind)
        if chance is None or self.calm or self.rng.random() >= chance:
            return False
        self.inject(kind, who)
        return True

    def inject(self, kind: str, who: str, detail: Any = "") -> None:
        """Count a fault."""
        self.injected[kind] += 1
        self.note(who, f"FAULT {kind}", detail)

    def later(self, seconds: float, action: Callable[[], None]) -> None:
        """Do something after a while."""
        heapq.heappush(self._later, (self.now + seconds, next(self._number), action))

    def turn(self) -> None:
        """Let one process run up to its next call; where none can, let time pass."""
        while self._later and self._later[0][0] <= self.now:
            heapq.heappop(self._later)[2]()
        ready = [p for p in self.processes if p.wake <= self.now and not p.frozen]
        if not ready:
            awake = [p for p in self.processes if not p.frozen]
            moments = [p.wake for p in awake]
            if self._later:
                moments.append(self._later[0][0])
            self.now = max(self.now, min(moments, default=self.now + 1.0))
            ready = [p for p in awake if p.wake <= self.now]
        if ready:
            ready[int(self.rng.random() * len(ready))].resume()


class Process:
    """A worker's process: a thread of control that can be frozen, woken up and killed."""

    def __init__(self, world: World, name: str, main: Callable[[Process], None]) -> None:
        self.world, self.name = world, name
        self.wake = world.now
        self.frozen = False
        self.dead = False
        self.failure: Exception | None = None
        self._greenlet = greenlet(main)
        world.processes.append(self)

    def resume(self) -> None:
        """Run it up to its next call."""
        try:
            self._greenlet.switch(self)  # what it begins with; later, nobody looks at it
        except Exception as error:  # what the process died of, for whoever started it
            self.failure = error
        if self._greenlet.dead:
            self._gone()

    def pause(self, seconds: float = 0.0) -> None:
        """Be at a call that takes so long: others run, and this may be the end."""
        if self.dead:
            raise Crash
        self.wake = self.world.now + seconds + self.world.rng.random() * CALL_SECONDS
        self._greenlet.parent.switch()

    def kill(self) -> None:
        """End it where it stands."""
        self.dead = True
        with contextlib.suppress(Crash):
            self._greenlet.throw(Crash)
        self._gone()

    def _gone(self) -> None:
        self.dead = True
        self.world.ended += 1
        self.world.processes.remove(self)


class ProcessClock(Clock):
    """The clock of a process, whose time of day jumps whenever it looks."""

    def __init__(self, process: Process) -> None:
        self._process = process

    def monotonic(self) -> float:
        return self._process.world.now

    def sleep(self, seconds: float) -> None:
        self._process.pause(seconds)

    def now_ms(self) -> int:
        world = self._process.world
        return EPOCH_MS + int(world.now * 1000) + world.rng.choice(JUMPS_MS)


class TraceLog:
    """The worker's log, as lines of the trace."""

    def __init__(self, world: World) -> None:
        self._world = world

    def debug(self, event: str, **fields: Any) -> None:
        self._world.note("log", event, fields)

    info = warning = error = debug
