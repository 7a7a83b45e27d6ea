"""Runs cases: checks each against the unfused answer, then times both and a copy in turn."""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import numpy as np

import itfuse as itf
from itfuse.bench import machine
from itfuse.bench.cases import Case
from itfuse.bench.timing import Device, Timing

OK, WRONG, FAILED = "ok", "WRONG", "FAILED"
FUSED, COPY = "itfuse", "copy"
"""Names of timings; the unfused one is called after its library."""

_SMALL = 1009  # elements of the second check: a prime, which no block or vector width divides
_BLOCK = 1 << 22  # elements compared at a time
_MOST_SETS = 16
_MEMORY_SHARE = 0.8


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
        `float32` or `float64`.
    repeat : int
        Timed rounds of each case.
    seed : int
        Of the random inputs.
    """

    size: int
    asked_size: int
    dtype: str
    repeat: int
    seed: int


@dataclass(frozen=True)
class Row:
    """The result of one case.

    Attributes
    ----------
    case, meaning : str
        From the table.
    status : str
        `ok`, `WRONG` (the check failed, nothing was timed) or `FAILED` (an error was raised).
    message : str
        What was wrong.
    passes, bytes_read, bytes_written : int
        From the plan.
    copy_bytes : int
        Bytes read and written by the copy timed beside it.
    sets : int
        Sets of arrays that were rotated, so that no run finds its inputs in a cache.
    timings : dict of str to Timing
        `itfuse`, the unfused library's name, and `copy`.
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

    def speed_up(self, library: str) -> float:
        """Return how many times longer `library` takes than itfuse."""
        return self.timings[library].median / self.timings[FUSED].median


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
        Whether Ctrl-C ended the run early.
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

    @property
    def timed(self) -> list[Row]:
        """The rows that have timings."""
        return [row for row in self.rows if row.status == OK]

    @property
    def ceiling(self) -> float | None:
        """Median bandwidth of the copies of all rows in GiB/s; None before any."""
        speeds = [row.copy_gib_per_s for row in self.timed]
        return float(np.median(speeds)) if speeds else None


@dataclass(frozen=True)
class _Arrays:
    inputs: tuple[Any, ...]
    out: Any
    spare: Any  # the copy's target, and where an elementwise unfused answer goes


def _needs(case: Case, size: int, dtype: str) -> int:
    """Return the bytes that one set of a case needs, the unfused library's temporaries included."""
    return (case.elements(size) + (2 + case.temporaries) * size) * np.dtype(dtype).itemsize


def fit(cases: list[Case], size: int, dtype: str, free: int) -> int:
    """Return the largest of `size`, `size / 2`, `size / 4`, ... that fits in `free` bytes.

    Examples
    --------
    >>> from itfuse.bench.cases import CASES
    >>> fit([CASES["dot"]], 2**20, "float32", 2**22)  # two inputs and four more arrays
    131072
    """
    budget = _MEMORY_SHARE * free
    while size > 1 and max(_needs(case, size, dtype) for case in cases) > budget:
        size //= 2
    return size


def start(
    device: Device, cases: list[Case], size: int | None, dtype: str, repeat: int | None
) -> Report:
    """Return the empty report of a run: sizes chosen, machine described, nothing timed.

    Parameters
    ----------
    device : Device
        Where to run.
    cases : list of Case
        What to run.
    size, repeat : int or None
        Elements of each input and timed rounds; None takes the device's default.
    dtype : str
        `float32` or `float64`.
    """
    asked = size or device.default_size
    free = device.free_memory()
    fitting = fit(cases, asked, dtype, free)
    report = Report(
        engine=device.engine,
        library=device.library,
        copy_name=device.copy_name,
        device=device.describe(),
        host=machine.host(),
        packages={"itfuse": itf.__version__, **machine.packages()},
        settings=Settings(
            fitting, asked, dtype, repeat or device.default_repeat, secrets.randbits(31)
        ),
        cases=[case.name for case in cases],
        date=datetime.now(UTC).isoformat(timespec="seconds"),
    )
    if fitting != asked:
        most = max(_needs(case, asked, dtype) for case in cases)
        report.notes.append(
            f"{asked:,} elements need {most / 2**30:.1f} GiB and {free / 2**30:.1f} GiB are "
            f"free: scaled down to {fitting:,} elements"
        )
    if device.library == "numpy" and any("erf" in case.meaning for case in cases):
        report.notes.append("NumPy has no erf: the unfused gelu calls itfuse's own NumPy erf")
    return report


def run(
    device: Device,
    cases: list[Case],
    report: Report,
    began: Callable[[Case], None] = lambda case: None,
) -> None:
    """Run `cases` and append a row for each to `report`, which is whole at any moment.

    Parameters
    ----------
    device : Device
        Where to run.
    cases : list of Case
        What to run.
    report : Report
        From `start`. Ctrl-C sets `interrupted` and returns; the rows so far stay.
    began : callable, optional
        Called with each case before it runs.
    """
    with _ctrl_c_ends(report):
        for case in cases:
            began(case)
            report.rows.append(run_case(device, case, report.settings))
        cached = [row.case for row in report.timed if _from_cache(row, device)]
        if cached:
            report.notes.append(
                f"inputs this small stay in the {device.cache / 2**20:.0f} MiB cache, so GiB/s "
                f"is not that of memory: {', '.join(cached)}"
            )


@contextmanager
def _ctrl_c_ends(report: Report) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        report.interrupted = True


def _from_cache(row: Row, device: Device) -> bool:
    return row.sets * row.copy_bytes < 2 * device.cache


def run_case(device: Device, case: Case, settings: Settings) -> Row:
    """Check one case, then time it.

    Returns
    -------
    Row
        An error is a row too, so that the other cases still run.
    """
    try:
        return _run_case(device, case, settings)
    except Exception as why:  # whatever a library raises: this case failed, and the row says why
        text = (str(why).splitlines() or [""])[0]
        return Row(case.name, case.meaning, FAILED, f"{type(why).__name__}: {text}")


def _run_case(device: Device, case: Case, settings: Settings) -> Row:
    size, dtype = settings.size, settings.dtype
    sets = [_arrays(device, case, size, settings, 0)]
    plan = itf.plan(_expression(case, sets[0]))
    numbers = {
        "passes": plan.passes,
        "bytes_read": plan.bytes_read,
        "bytes_written": plan.bytes_written,
        "copy_bytes": 2 * sets[0].spare.nbytes,
    }
    for arrays in (_arrays(device, case, _SMALL, settings, _MOST_SETS), sets[0]):
        wrong = check(device, case, arrays)
        if wrong:
            return Row(case.name, case.meaning, WRONG, wrong, **numbers)
    count = _sets(device, case, size, dtype)
    sets += [_arrays(device, case, size, settings, number) for number in range(1, count)]

    def fused(number: int) -> None:
        arrays = sets[number % count]
        _expression(case, arrays).compute(out=arrays.out, engine=device.engine)

    def unfused(number: int) -> None:
        arrays = sets[number % count]
        case.unfused(device.xp, arrays.out, *arrays.inputs)

    def copy(number: int) -> None:
        arrays = sets[number % count]
        device.copy(arrays.spare, arrays.inputs[0])

    calls = {FUSED: fused, device.library: unfused, COPY: copy}
    timings = device.measure(calls, settings.repeat)
    return Row(case.name, case.meaning, OK, sets=count, timings=timings, **numbers)


def _sets(device: Device, case: Case, size: int, dtype: str) -> int:
    """Return the sets to rotate: enough that one input of each is four times the cache."""
    one = size * np.dtype(dtype).itemsize
    wanted = math.ceil(4 * device.cache / one)
    room = int(_MEMORY_SHARE * device.free_memory()) // _needs(case, size, dtype)
    return max(1, min(wanted, room, _MOST_SETS))


def _arrays(device: Device, case: Case, size: int, settings: Settings, number: int) -> _Arrays:
    dtype = settings.dtype
    seed = settings.seed + 100 * number
    inputs = tuple(
        device.random(shape, dtype, seed + k) for k, shape in enumerate(case.shapes(size))
    )
    result = case.fused(*(itf.asarray(x) for x in inputs))
    # Filled, so that a fresh page costs nobody's first timing.
    out = device.xp.full(result.shape, np.nan, result.dtype)
    return _Arrays(inputs, out, device.xp.full(inputs[0].shape, np.nan, dtype))


def _expression(case: Case, arrays: _Arrays) -> Any:
    return case.fused(*(itf.asarray(x) for x in arrays.inputs))


def check(device: Device, case: Case, arrays: _Arrays) -> str:
    """Compute fused, into an `out` full of NaN, and unfused; return what differs, or `""`."""
    arrays.out.fill(np.nan)
    _expression(case, arrays).compute(out=arrays.out, engine=device.engine)
    same_shape = arrays.spare.shape == arrays.out.shape
    want = arrays.spare if same_shape else device.xp.empty_like(arrays.out)
    case.unfused(device.xp, want, *arrays.inputs)
    return difference(device.xp, arrays.out, want, case.tolerance)


def difference(xp: Any, got: Any, want: Any, tolerance: float) -> str:
    """Say where `got` is not `want`.

    Parameters
    ----------
    xp : module
        NumPy or CuPy.
    got, want : array
        Of the same shape and floating-point dtype.
    tolerance : float
        Allowed difference in units of epsilon times (|want| + 1).

    Returns
    -------
    str
        Empty if they agree; NaN agrees with nothing.

    Examples
    --------
    >>> difference(np, np.float32([1, 3, 2]), np.float32([1, 2, 2]), 4)
    'element 1 of 3 is 3.0, and the unfused answer 2.0'
    """
    allowed = tolerance * np.finfo(want.dtype).eps
    got, want = got.reshape(-1), want.reshape(-1)
    for at in range(0, want.size, _BLOCK):
        a, b = got[at : at + _BLOCK], want[at : at + _BLOCK]
        good = xp.abs(a - b) <= allowed * (xp.abs(b) + 1)
        if not bool(good.all()):
            first = int(xp.flatnonzero(~good)[0])
            return (
                f"element {at + first} of {want.size} is {float(a[first])}, and the unfused "
                f"answer {float(b[first])}"
            )
    return ""
