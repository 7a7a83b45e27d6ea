"""Runs cases: checks every peer against the unfused answer, then times all of them in turn."""

from __future__ import annotations

import importlib.util
import math
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import numpy as np

import itfuse as itf
from itfuse.bench import counts, host, machine
from itfuse.bench.answers import Arrays, answer, arrays_of, nothing
from itfuse.bench.basic import DEFAULT
from itfuse.bench.case import COPY, FUSED, LATENCY, Case
from itfuse.bench.check import difference, peer_tolerance
from itfuse.bench.peers import NotForThis, Peer, registry
from itfuse.bench.remarks import listed, remark
from itfuse.bench.result import ABSENT, FAILED, OK, WRONG, Report, Row, Settings
from itfuse.bench.schedule import (
    MEMORY_SHARE,
    MOST_SETS,
    STARTS,
    Schedule,
    fit,
    needs,
    suite_of,
    suites_of,
)
from itfuse.bench.start import rows as start_rows
from itfuse.bench.timing import Device, first_line, without_failures
from itfuse.dtypes import as_dtype

_REPLAYED = 1 << 26  # bytes of a copy below which launches are replayed from a graph
_CEILING_ROUNDS = 9
_QUICK_ROUNDS = 7
_PROCESSES = 3


def start(
    device: Device,
    cases: list[Case],
    size: int | None,
    dtype: str,
    repeat: int | None,
    *,
    suites: tuple[str, ...] = (DEFAULT,),
    peers: list[Peer] | None = None,
    named: tuple[str, ...] = (),
    quick: bool = False,
    budget: float = 0.0,
    seed: int | None = None,
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
    suites : tuple of str
        What they were asked for as.
    peers : list of Peer, optional
        What to compare with; the unfused library only, if not given.
    named : tuple of str
        Cases that were asked for by name.
    quick : bool
        Whether a few rounds do.
    budget : float
        Seconds that the run may take; 0 for no limit.
    seed : int, optional
        Of the random inputs; any, if not given.
    """
    asked = size or device.default_size
    free = device.free_memory()
    free_sized = [case for case in cases if not case.size]
    fitting = fit(free_sized, asked, dtype, free) if free_sized else asked
    repeats = repeat or (_QUICK_ROUNDS if quick else device.default_repeat)
    report = Report(
        engine=device.engine,
        library=device.library,
        copy_name=device.copy_name,
        device=device.describe(),
        host=machine.host(),
        packages={"itfuse": itf.__version__, **machine.packages(), **machine.peer_packages()},
        settings=Settings(
            fitting,
            asked,
            dtype,
            repeats,
            secrets.randbits(31) if seed is None else seed,
            suites,
            _asked(peers),
            named,
            quick,
            budget,
        ),
        cases=[case.name for case in cases],
        date=datetime.now(UTC).isoformat(timespec="seconds"),
    )
    if fitting != asked:
        most = max(needs(case, asked, dtype) for case in free_sized)
        report.notes.append(
            f"{asked:,} elements need {most / 2**30:.1f} GiB and {free / 2**30:.1f} GiB are "
            f"free: scaled down to {fitting:,} elements"
        )
    with suppress(Exception):  # a device that does not say what it is still runs the cases
        report.arithmetic = device.arithmetic()
    if device.library == "numpy" and any("erf" in case.meaning for case in cases):
        report.notes.append("NumPy has no erf: the unfused gelu calls itfuse's own NumPy erf")
    return report


def _asked(peers: list[Peer] | None) -> tuple[str, ...]:
    if peers is None:
        return ()
    return ("all",) if len(peers) == len(registry()) else tuple(peer.name for peer in peers)


def run(
    device: Device,
    cases: list[Case],
    report: Report,
    began: Callable[[Case], None] = lambda case: None,
    peers: list[Peer] | None = None,
    *,
    planned: Callable[[Schedule], None] = lambda schedule: None,
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
    peers : list of Peer, optional
        What to compare with; the unfused library only, if not given.
    planned : callable, optional
        Called with the schedule before anything runs.
    """
    known = registry()
    compared = [known[FUSED], known[device.library]] if peers is None else _present(
        peers, device, report
    )  # fmt: skip
    schedule = Schedule(cases, compared, device, report.settings)
    planned(schedule)
    order = {case.name: at for at, case in enumerate(cases)}
    with _ctrl_c_ends(report), np.errstate(all="ignore"):
        _measure_ceilings(device, report)
        schedule.begin()
        done: set[tuple[str, str, int]] = set()
        too_large: list[str] = []
        too_late: list[str] = []
        for case in schedule.cases:
            size = _size(case, device, report)
            same = (case.meaning, case.kind, size)
            twice = bool(case.size) and size != case.size and same in done
            if twice or not schedule.may_begin(case.name):
                (too_large if twice else too_late).append(case.name)
                report.cases.remove(case.name)
                continue
            began(case)
            if case.size:
                done.add(same)
            if case.size and size != case.size:
                report.notes.append(
                    f"{case.name}: scaled down to {size:,} elements, the most that fit or that "
                    f"the {device.engine} engine is timed with"
                )
            row = _timed(device, case, replace(report.settings, size=size), compared)
            report.rows.append(row)
            schedule.took(case.name, row.seconds)
            if row.status == FAILED and (why := device.lost()):
                report.lost, report.interrupted = why, True
                report.notes.append(f"the device stopped answering ({why}): the run ends here")
                break
        if not report.lost:
            too_late += _starts(device, report, schedule)
            report.clocks += [found for found in [device.clocks()] if found]
        if too_large:
            report.notes.append(f"left out, since larger ones do not fit: {listed(too_large)}")
        if too_late:
            report.notes.append(
                f"the budget of {schedule.budget:g} s was spent: left out {len(too_late)}: "
                f"{listed(too_late)}"
            )
        remark(device, report)
    report.rows.sort(key=lambda row: order.get(row.case, len(order)))


def _compiles() -> bool:
    try:
        return importlib.util.find_spec("cuda.core") is not None
    except ModuleNotFoundError:
        return False


def _timed(device: Device, case: Case, settings: Settings, peers: list[Peer]) -> Row:
    """Return the row of a case, with the time that it took altogether."""
    start = time.monotonic()
    run_one = host.run_case if case.kind == LATENCY else run_case
    row = run_one(device, case, settings, peers)
    return replace(row, seconds=time.monotonic() - start)


def _starts(device: Device, report: Report, schedule: Schedule) -> list[str]:
    """Add what new processes need to their first results; return what there was no time for.

    Where there is no GPU they compile, if there is a compiler.
    """
    if "latency" not in report.settings.suites:
        return []
    if not schedule.may_begin(STARTS):
        return [STARTS]
    repeat = 1 if report.settings.quick else _PROCESSES
    began = time.monotonic()
    rows = start_rows(device.engine, repeat)
    if device.engine == "cpu" and _compiles():
        rows += start_rows("null", repeat)[1:]  # the import has been measured
    report.cases += [row.case for row in rows]
    each = (time.monotonic() - began) / len(rows)
    report.rows += [replace(row, seconds=each) for row in rows]
    return []


def _present(peers: list[Peer], device: Device, report: Report) -> list[Peer]:
    """Return the peers that can run here; the report says why the others cannot."""
    found = []
    for peer in peers:
        try:
            why = peer.missing(device)
        except Exception as error:  # an installed library that does not even import
            why = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
        if why:
            if device.engine in peer.engines or len(peers) < len(registry()):
                report.absent[peer.name] = why  # or else it is not of this kind of run
        else:
            found.append(peer)
    return found


def _measure_ceilings(device: Device, report: Report) -> None:
    nbytes = max(min(device.ceiling_bytes, device.free_memory() // 8), 1 << 16) // 16 * 16
    report.clocks += [found for found in [device.clocks()] if found]
    try:
        found = device.ceilings(nbytes, min(report.settings.repeat, _CEILING_ROUNDS))
    except Exception as why:  # the cases still say what they can
        report.notes.append(f"ceilings were not measured: {type(why).__name__}: {why}")
        return
    report.ceilings.update({name: value / 2**30 for name, value in found.items()})


def _size(case: Case, device: Device, report: Report) -> int:
    """Return the elements that a case runs with: its own, or the run's, as far as they fit."""
    if not case.size:
        return report.settings.size
    asked = min(case.size, device.most_size)
    return fit([case], asked, report.settings.dtype, device.free_memory())


@contextmanager
def _ctrl_c_ends(report: Report) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        report.interrupted = True


def run_case(
    device: Device, case: Case, settings: Settings, peers: list[Peer] | None = None
) -> Row:
    """Check one case with each of its peers, then time them.

    Returns
    -------
    Row
        An error is a row too, so that the other cases still run.
    """
    known = registry()
    compared = peers if peers is not None else [known[FUSED], known[device.library]]
    base = Row(
        case.name,
        case.meaning,
        OK,
        suite=suite_of(case, settings.suites),
        suites=suites_of(case, settings.suites),
        dtype=case.dtype or settings.dtype,
        size=settings.size,
        bars=case.promises(device.engine, settings.size, settings.dtype),
    )
    try:
        return _run_case(device, case, settings, compared, base)
    except Exception as why:  # whatever a library raises: this case failed, and the row says why
        return replace(base, status=FAILED, message=first_line(why))
    finally:
        with suppress(Exception):  # a lost device cannot give memory back
            device.trim()
            for peer in compared:
                peer.trim()


def _run_case(device: Device, case: Case, settings: Settings, peers: list[Peer], row: Row) -> Row:
    size = settings.size
    sets = [arrays_of(device, case, size, settings, 0)]
    spare = sets[0].spare
    numbers: dict[str, Any] = counts.plan_numbers(case, sets[0])
    numbers.update(counts.unfused_numbers(case, size, row.dtype))
    row = replace(row, copy_bytes=2 * spare.nbytes, **numbers)
    small = arrays_of(device, case, case.small, settings, MOST_SETS)
    refused: dict[str, str] = {}
    good: list[Peer] = []
    for arrays, last in ((small, False), (sets[0], True)):
        want = answer(device, case, arrays)
        if last:
            row = replace(row, least_bytes=sum(x.nbytes for x in (*arrays.inputs, *want)))
            if case.dynamic and row.passes:  # the plan knows only what it writes at most
                row = replace(row, bytes_written=sum(x.nbytes for x in want))
        for peer in peers:
            if peer.name in refused or case.kind not in peer.kinds:
                continue
            why = check(device, case, arrays, peer, want)
            if why:
                refused[peer.name] = why
            elif last:
                good.append(peer)
    del small, want
    row = judged(row, refused)
    if row.status == WRONG or not good:
        return row
    kernels, moved = counts.of_peers(device, case, sets[0], good, row)
    row = replace(row, kernels=kernels, moved=moved)
    device.trim()
    for peer in peers:  # what they keep for themselves is room for the sets
        peer.trim()
    count = _sets(device, case, size, settings.dtype)
    sets += [arrays_of(device, case, size, settings, number) for number in range(1, count)]
    timings, failed = _time(device, case, sets, good, settings.repeat)
    refused = {**row.peers, **{name: f"{FAILED}: {why}" for name, why in failed.items()}}
    return replace(judged(row, refused), sets=count, timings=timings)


def judged(row: Row, refused: dict[str, str]) -> Row:
    """Return a row with what was found of its peers; what was found of itfuse is its status."""
    others = {name: why for name, why in refused.items() if name != FUSED}
    own = refused.get(FUSED, "")
    if own:
        status = next((s for s in (WRONG, FAILED) if own.startswith(s)), ABSENT)
        row = replace(row, status=status, message=own.removeprefix(status).lstrip(": "))
    return replace(row, peers=others)


def _time(
    device: Device, case: Case, sets: list[Arrays], peers: list[Peer], repeat: int
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the timings, and what peers raised while they were bound or timed."""
    count = len(sets)
    bound, failed = {}, {}
    for peer in peers:
        try:
            bound[peer] = [peer.bind(case, one.inputs, one.out, device) for one in sets]
        except Exception as why:  # whatever a library raises: the others are timed all the same
            failed[peer.name] = first_line(why)

    def rotated(calls: list[Callable[[], Any]]) -> Callable[[int], Any]:
        return lambda number: calls[number % count]()

    def copy(number: int) -> None:
        one = sets[number % count]
        device.copy(one.spare, one.inputs[0])

    calls: dict[str, Any] = {peer.name: rotated(runs) for peer, runs in bound.items()}
    calls[COPY] = copy
    replay = []
    if 2 * sets[0].spare.nbytes <= _REPLAYED and not case.dynamic:
        replay = [peer.name for peer in peers if peer.replays] + [COPY]
    waits = {peer.name: peer.wait for peer in peers if peer.wait is not None}

    def measure(some: dict[str, Any]) -> dict[str, Any]:
        return device.measure(
            some,
            repeat,
            waits={name: wait for name, wait in waits.items() if name in some},
            replay=[name for name in replay if name in some],
            sets=count,
        )

    timings, later = without_failures(calls, measure, COPY)
    return timings, {**failed, **later}


def _sets(device: Device, case: Case, size: int, dtype: str) -> int:
    """Return the sets to rotate: enough that one input of each is four times the cache."""
    one = max(size * as_dtype(case.dtype or dtype, "benchmark").itemsize, 1)
    wanted = math.ceil(4 * device.cache / one)
    room = int(MEMORY_SHARE * device.free_memory()) // needs(case, size, dtype)
    return max(1, min(wanted, room, MOST_SETS))


def check(
    device: Device, case: Case, arrays: Arrays, peer: Peer, want: tuple[Any, ...] | None = None
) -> str:
    """Compute a case with a peer, into an `out` full of NaN; return what differs, or `""`.

    The text begins with `WRONG` or `FAILED`; any other says why the peer has no such case.
    """
    want = answer(device, case, arrays) if want is None else want
    if arrays.out is not None:
        arrays.out.fill(nothing(arrays.out.dtype))
    try:
        got = peer.answer(peer.bind(case, arrays.inputs, arrays.out, device)(), device)
    except NotForThis as why:
        return str(why) or "not available"
    except Exception as why:  # whatever a library raises: this peer failed, and the row says why
        return f"{FAILED}: {first_line(why)}"
    if len(got) != len(want):
        return f"{WRONG}: {len(got)} results, and {len(want)} unfused ones"
    tolerance = case.tolerance if peer.name == FUSED else peer_tolerance(case.tolerance)
    for a, b in zip(got, want, strict=True):
        kind = arrays.inputs[0].dtype if b.dtype.kind in "fc" else None
        wrong = difference(device.xp, a, b, tolerance, undecided=case.undecided, dtype=kind)
        if wrong:
            return f"{WRONG}: {wrong}"
    return ""
