"""What a run gives back: settings, rows and the report. Plain values, readable at any moment."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field

import numpy as np

from itfuse.bench.case import BANDWIDTH, COPY, EVERY_PEER, FUSED, Bar
from itfuse.bench.timing import Timing

OK, WRONG, FAILED, ABSENT = "ok", "WRONG", "FAILED", "n/a"


@dataclass(frozen=True)
class Settings:
    """What a run was asked for.

    Attributes
    ----------
    size : int
        Elements of each input, after scaling down to what fits in memory.
    asked_size : int
        Elements that were asked for.
    dtype : str
        `float32` or `float64`; a case may have its own.
    repeat : int
        Timed rounds of each case.
    seed : int
        Of the random inputs.
    suites, peers, named : tuple of str
        Suites, peers and single cases that were asked for: no peers means the unfused library
        only, `all` every one that is here.
    quick : bool
        Whether cases that others stand for were left out.
    budget : float
        Seconds that the run might take; 0 for no limit.
    """

    size: int
    asked_size: int
    dtype: str
    repeat: int
    seed: int
    suites: tuple[str, ...] = ("default",)
    peers: tuple[str, ...] = ()
    named: tuple[str, ...] = ()
    quick: bool = False
    budget: float = 0.0


@dataclass(frozen=True)
class Row:
    """The result of one case.

    Attributes
    ----------
    case, meaning : str
        From the table.
    status : str
        `ok`; `WRONG` (itfuse's answer differs, it was not timed); `FAILED` (an error was raised);
        `n/a` (itfuse does not have it yet, the others may still be timed).
    message : str
        What was wrong.
    passes, bytes_read, bytes_written : int
        From the plan.
    copy_bytes : int
        Bytes read and written by the copy timed beside it.
    sets : int
        Sets of arrays that were rotated, so that no run finds its inputs in a cache.
    timings : dict of str to Timing
        `itfuse`, the peers by name, and `copy`.
    suite, dtype, kind : str
        Where the case belongs, the dtype that it ran in, `bandwidth` or `latency`.
    size : int
        Elements of each full input.
    least_bytes : int
        Every input and every output once: what a perfect fusion moves.
    unfused_passes, unfused_bytes : int
        Operations that the form makes of the unfused library, and what they move.
    suites : tuple of str
        Every suite that was asked for and has the case; it is timed once.
    kernels : dict of str to int
        For each timing: kernels that a call launches, where they could be counted.
    moved : dict of str to int
        For each timing: bytes that a call reads and writes, where somebody knows.
    peers : dict of str to str
        For each peer that was not timed: why.
    bars : tuple of Bar
        What was promised of this run.
    seconds : float
        What the case took altogether, builds and checks included.
    """

    case: str
    meaning: str
    status: str
    message: str = ""
    passes: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    copy_bytes: int = 0
    sets: int = 0
    timings: dict[str, Timing] = field(default_factory=dict)
    suite: str = "default"
    dtype: str = ""
    kind: str = BANDWIDTH
    size: int = 0
    least_bytes: int = 0
    unfused_passes: int = 0
    unfused_bytes: int = 0
    suites: tuple[str, ...] = ()
    kernels: dict[str, int] = field(default_factory=dict)
    moved: dict[str, int] = field(default_factory=dict)
    peers: dict[str, str] = field(default_factory=dict)
    bars: tuple[Bar, ...] = ()
    seconds: float = 0.0

    @property
    def bytes_moved(self) -> int:
        """Bytes read and written by the fused passes."""
        return self.bytes_read + self.bytes_written

    @property
    def gib_per_s(self) -> float:
        """Achieved bandwidth of itfuse in GiB/s."""
        return self.bytes_moved / self.timings[FUSED].median / 2**30

    @property
    def copy_gib_per_s(self) -> float:
        """Bandwidth of the copy timed beside it in GiB/s: this row's ceiling."""
        return self.copy_bytes / self.timings[COPY].median / 2**30

    @property
    def share(self) -> float:
        """Achieved bandwidth as a share of the ceiling. A pass that mostly reads can exceed 1."""
        return self.gib_per_s / self.copy_gib_per_s

    def peer_gib_per_s(self, name: str) -> float:
        """Return the bandwidth of any peer in GiB/s: each input and output counted once."""
        count = self.least_bytes or self.bytes_moved
        return count / self.timings[name].median / 2**30

    def speed_up(self, library: str) -> float:
        """Return how many times longer `library` takes than itfuse."""
        return self.timings[library].median / self.timings[FUSED].median

    def found(self, bar: Bar) -> float | None:
        """Return what `bar` limits, as this row has it; None where it was not measured.

        Examples
        --------
        >>> row = Row("c", "x", OK, timings={FUSED: Timing(2, 2, 2), "cupy": Timing(3, 3, 3)})
        >>> row.found(Bar(1.0, "cupy")), row.found(Bar(1.0, "torch")), row.found(Bar(1.0, ""))
        (1.5, None, 2)
        """
        own = self.timings.get(bar.of)
        if own is None:
            return None
        if not bar.against:
            return own.median
        if bar.against == COPY:
            if COPY not in self.timings:
                return None
            return self.peer_gib_per_s(bar.of) / self.copy_gib_per_s
        peers = [name for name in self.timings if name not in (FUSED, COPY, bar.of)]
        against = peers if bar.against == EVERY_PEER else [bar.against]
        times = [self.timings[name].median for name in against if name in self.timings]
        return min(times) / own.median if times else None

    def keeps(self, bar: Bar) -> bool | None:
        """Return whether `bar` is kept; None where it was not measured."""
        found = self.found(bar)
        return None if found is None else found <= bar.limit if not bar.against else (
            found >= bar.limit
        )  # fmt: skip

    @property
    def timed(self) -> bool:
        """Whether itfuse's time is known."""
        return self.status == OK and FUSED in self.timings

    @property
    def failures(self) -> dict[str, str]:
        """Peers that raised or were wrong, and how; those without a form are no failures."""
        return {n: why for n, why in self.peers.items() if why.startswith((WRONG, FAILED))}


@dataclass
class Report:
    """The result of a run, complete or not.

    Attributes
    ----------
    engine, library, copy_name : str
        What ran, what it is compared with, and what the ceiling is.
    device, host, packages : dict of str to str
        What was found of the machine.
    settings : Settings
        What was asked for.
    cases : list of str
        The cases asked for.
    date : str
        Start of the run, ISO 8601, UTC.
    rows : list of Row
        One for each case that ran.
    notes : list of str
        What a reader of the numbers should know.
    interrupted : bool
        Whether Ctrl-C, or the loss of the device, ended the run early.
    ceilings : dict of str to float
        GiB/s of `copy`, `read` and `write`, measured in this run before the cases.
    clocks : list of str
        The device's clocks before and after, as found.
    absent : dict of str to str
        Peers that cannot run here, and why.
    arithmetic : float
        Additions or products of float32 a second that the device has lanes for; 0 if not known.
    lost : str
        How the device was lost, if it was.
    """

    engine: str
    library: str
    copy_name: str
    device: dict[str, str]
    host: dict[str, str]
    packages: dict[str, str]
    settings: Settings
    cases: list[str]
    date: str
    rows: list[Row] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    interrupted: bool = False
    ceilings: dict[str, float] = field(default_factory=dict)
    clocks: list[str] = field(default_factory=list)
    absent: dict[str, str] = field(default_factory=dict)
    lost: str = ""
    arithmetic: float = 0.0

    @property
    def timed(self) -> list[Row]:
        """The rows that have timings of itfuse."""
        return [row for row in self.rows if row.timed]

    @property
    def ceiling(self) -> float | None:
        """Median bandwidth of the copies of all rows in GiB/s; None before any."""
        speeds = [row.copy_gib_per_s for row in self.timed if COPY in row.timings]
        return float(np.median(speeds)) if speeds else None

    @property
    def failed(self) -> bool:
        """Whether a case of itfuse is wrong or failed."""
        return any(row.status in (WRONG, FAILED) for row in self.rows) or bool(self.lost)

    @property
    def bars(self) -> list[tuple[Row, Bar]]:
        """Every promise of this run, with its row."""
        return [(row, bar) for row in self.rows for bar in row.bars]

    def command(self) -> str:
        """Return the command that runs this again."""
        settings = self.settings
        peers = settings.peers or (FUSED, self.library)
        parts = [
            f"itfuse bench --engine {self.engine}",
            f"--suite {','.join(settings.suites)}",
            f"--peer {shlex.quote(','.join(peers))}",
        ]
        parts += [f"--case {shlex.quote(name)}" for name in settings.named]
        parts += [
            f"--size '{size_text(settings.size)}'",
            f"--dtype {settings.dtype}",
            f"--repeat {settings.repeat}",
            f"--seed {settings.seed}",
        ]
        parts += ["--quick"] * settings.quick
        parts += [f"--budget {settings.budget:g}"] * bool(settings.budget)
        return " ".join(parts)


def size_text(size: int) -> str:
    """Return a number of elements as `--size` takes it: a power of two, or the number.

    Examples
    --------
    >>> size_text(1 << 28), size_text(1000)
    ('2**28', '1000')
    """
    power = size.bit_length() - 1
    return f"2**{power}" if size == 1 << power and power > 9 else str(size)
