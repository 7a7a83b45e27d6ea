"""What fits: sizes into memory, and cases into the time that a run may take."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from typing import Any

from itfuse.bench.basic import DEFAULT
from itfuse.bench.case import LATENCY, Case
from itfuse.bench.timing import WARM_UP, Device
from itfuse.dtypes import as_dtype

MEMORY_SHARE = 0.8
_CHECKS = 2  # answers of each peer, before its timings
_FILLING = 4  # times as long as a pass over it takes it to fill a set of arrays
MOST_SETS = 16
_SETUP = 0.1  # seconds for inputs and comparisons
_HOST_BATCH = 0.004  # seconds of a batch of calls of which the host's time is taken
STARTS = "first results of new processes"
"""What the suite `latency` does beside its cases."""

_STARTS = {"cuda": 65.0, "cpu": 4.0}  # seconds of the new processes of the suite `latency`


def needs(case: Case, size: int, dtype: str) -> int:
    """Return the bytes that one set of a case needs, the unfused library's temporaries included."""
    itemsize = as_dtype(case.dtype or dtype, "benchmark").itemsize
    return (case.elements(size) + (1 + case.results + case.temporaries) * size) * itemsize


def fit(cases: list[Case], size: int, dtype: str, free: int) -> int:
    """Return the largest of `size`, `size / 2`, `size / 4`, ... that fits in `free` bytes.

    Examples
    --------
    >>> from itfuse.bench.cases import CASES
    >>> fit([CASES["dot"]], 2**20, "float32", 2**22)  # two inputs and four more arrays
    131072
    """
    budget = MEMORY_SHARE * free
    while size > 1 and max(needs(case, size, dtype) for case in cases) > budget:
        size //= 2
    return size


def suite_of(case: Case, suites: Iterable[str]) -> str:
    """Return the suite that a case runs in: the first of `suites` that has it, or its own first."""
    return next((one for one in suites if one in case.suites), (*case.suites, DEFAULT)[0])


def suites_of(case: Case, suites: Iterable[str]) -> tuple[str, ...]:
    """Return all of `suites` that have a case, or its own first.

    Examples
    --------
    >>> from itfuse.bench.cases import CASES
    >>> suites_of(CASES["dot"], ("reduce", "cpu", "scan")), suites_of(CASES["dot"], ("scan",))
    (('reduce', 'cpu'), ('default',))
    """
    return tuple(one for one in suites if one in case.suites) or (suite_of(case, ()),)


def estimate(case: Case, peers: Iterable[Any], device: Device, settings: Any) -> float:
    """Return about how many seconds a case takes, builds and checks included.

    What peers take to build is rough (`Peer.builds`); what they take to run is what they move, at
    a speed that is typical for the device.
    """
    rounds = settings.repeat + WARM_UP
    beside = [peer for peer in peers if case.kind in peer.kinds]
    beside = [peer for peer in beside if peer.may_have(case)]
    total: float = _SETUP + sum(peer.builds for peer in beside)
    if case.kind == LATENCY:
        return float(total + settings.repeat * _HOST_BATCH * len(beside))
    size = min(case.size, device.most_size) or settings.size
    itemsize = as_dtype(case.dtype or settings.dtype, "benchmark").itemsize
    once = (case.elements(size) + size * case.results) * itemsize / device.typical_speed
    one = max(size * itemsize, 1)
    sets = min(max(4 * device.cache // one, 1), MOST_SETS)
    total += _FILLING * sets * once
    more = 2 * case.temporaries * size * itemsize / device.typical_speed
    for peer in beside:
        total += (rounds + _CHECKS) * (once + (more if peer.name == device.library else 0))
    return float(total + (rounds + 2 * _CHECKS * len(beside)) * once)


class Schedule:
    """The cases of a run in order, and until when each may begin.

    Parameters
    ----------
    cases : list of Case
        What was asked for.
    peers : list of Peer
        What runs beside.
    device : Device
        Where it runs.
    settings : Settings
        Its `budget` is the seconds for all, 0 for no limit. Each suite has its share of them by
        what it is estimated to take, and what one leaves the next may use. Within a suite the
        cases that `--quick` keeps come first.
    """

    def __init__(self, cases: list[Case], peers: list[Any], device: Device, settings: Any) -> None:
        self.budget = float(settings.budget)
        self.estimates: dict[str, float] = {}
        self._suite = {case.name: suite_of(case, settings.suites) for case in cases}
        self._cost = {case.name: estimate(case, peers, device, settings) for case in cases}
        if "latency" in settings.suites:
            self._suite[STARTS] = "latency"
            self._cost[STARTS] = _STARTS[device.engine] / (3 if settings.quick else 1)
        for name, suite in self._suite.items():
            self.estimates[suite] = self.estimates.get(suite, 0.0) + self._cost[name]
        order = list(self.estimates)
        self.cases = cases
        if self.budget:
            self.cases = sorted(cases, key=lambda c: (order.index(self._suite[c.name]), c.extra))
        self.begin()
        self._until: dict[str, float] = {}
        so_far, total = 0.0, sum(self.estimates.values()) or 1.0
        for suite, cost in self.estimates.items():
            so_far += cost
            self._until[suite] = self.budget * so_far / total if self.budget else math.inf

    def begin(self) -> None:
        """Count the time from now on."""
        self._began = time.monotonic()
        self._tried: set[str] = set()
        self._pace: dict[str, tuple[float, float]] = {}

    def may_begin(self, name: str) -> bool:
        """Return whether a case, or `STARTS`, would end in time; the first of a suite is tried."""
        suite, spent = self._suite[name], time.monotonic() - self._began
        first = suite not in self._tried
        self._tried.add(suite)
        if first and self.budget:
            return spent < self.budget
        return spent + self._cost[name] * self._factor(suite) <= self._until[suite]

    def took(self, name: str, seconds: float) -> None:
        """Learn what a case took: estimates of what comes are corrected by it."""
        suite = self._suite[name]
        expected, found = self._pace.get(suite, (0.0, 0.0))
        self._pace[suite] = expected + self._cost[name], found + seconds

    def _factor(self, suite: str) -> float:
        """Return how much longer, or shorter, the suite's cases take than was estimated."""
        expected, found = self._pace.get(suite, (0.0, 0.0))
        return min(max(found / expected, 0.25), 4.0) if expected else 1.0

    def __str__(self) -> str:
        """Return the estimates in words."""
        parts = [f"{name} {clock(cost)}" for name, cost in self.estimates.items()]
        return f"about {clock(sum(self.estimates.values()))}: {', '.join(parts)}"


def clock(seconds: float) -> str:
    """Return a time as minutes and seconds.

    Examples
    --------
    >>> clock(75.2), clock(3.4)
    ('1:15', '3 s')
    """
    whole = round(seconds)
    return f"{whole // 60}:{whole % 60:02d}" if whole >= 60 else f"{max(whole, 1)} s"
