"""`itfuse bench`, `bench list` and `bench compare`: options, files, exit codes."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from itfuse.errors import ConfigError, DeviceError

INTERRUPTED = 130  # 128 + SIGINT, as shells report it

bench = typer.Typer(
    help="Time fused passes beside other libraries and a copy, in one run.",
    invoke_without_command=True,
    rich_markup_mode=None,
    add_completion=False,
)


class EngineName(StrEnum):
    """Where the benchmark may run."""

    auto = "auto"
    cuda = "cuda"
    cpu = "cpu"


class DTypeName(StrEnum):
    """What the cases are defined for."""

    float32 = "float32"
    float64 = "float64"


@bench.callback()
def run(
    context: typer.Context,
    suite: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME[,NAME]",
            help="Run these suites beside every peer that is here; `all` is every suite, "
            "`itfuse bench list` lists them.",
        ),
    ] = None,
    peer: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME[,NAME]",
            help="Compare with these only, and with the unfused library; `all` is every one.",
        ),
    ] = None,
    size: Annotated[
        str | None,
        typer.Option(
            help="Elements of each input: 2**26, 1e6, 64Mi. [default: 2**28 on a GPU, 2**24 on "
            "the CPU; less if memory is short]"
        ),
    ] = None,
    dtype: Annotated[DTypeName, typer.Option(help="Of the inputs.")] = DTypeName.float32,
    case: Annotated[
        list[str] | None, typer.Option(help="Run only this case; may be given again.")
    ] = None,
    repeat: Annotated[
        int | None,
        typer.Option(min=1, max=10_000, help="Timed rounds. [default: 30 on a GPU, 9 on the CPU]"),
    ] = None,
    json: Annotated[
        str | None,
        typer.Option(metavar="PATH", help="Save the results; - prints them, the table to stderr."),
    ] = None,
    csv: Annotated[
        str | None, typer.Option(metavar="PATH", help="Save a line for each case and peer.")
    ] = None,
    markdown: Annotated[
        str | None, typer.Option(metavar="PATH", help="Save tables in Markdown.")
    ] = None,
    html: Annotated[
        str | None, typer.Option(metavar="PATH", help="Save one page with pictures and tables.")
    ] = None,
    save_plot: Annotated[
        str | None,
        typer.Option(metavar="PATH", help="Save the pictures: .png, .svg or .pdf (matplotlib)."),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Few rounds, and fewer lengths, dtypes and sizes.")
    ] = False,
    budget: Annotated[
        float,
        typer.Option(
            min=0.0,
            help="Seconds that the run may take, shared among the suites; cases "
            "that no longer fit are left out and named. [default: no limit]",
        ),
    ] = 0.0,
    seed: Annotated[
        int | None,
        typer.Option(min=0, max=2**31 - 1, help="Of the random inputs. [default: any]"),
    ] = None,
    engine: Annotated[
        EngineName, typer.Option(help="auto takes the GPU if there is one.")
    ] = EngineName.auto,
) -> None:
    """Time fused passes beside the unfused library and a copy, in one run.

    Without --suite and --case: eight cases on a GPU, beside CuPy; the suite cpu on the CPU, beside
    NumPy and numexpr. Every answer is checked before it is timed.

    Exit codes: 0, 1 if a case is wrong or failed, or if a peer that was asked for by name cannot
    run here, 2 for bad options, 130 after Ctrl-C, which keeps the results so far.
    """
    if context.invoked_subcommand is not None:
        return
    from itfuse.bench import basic, cases, options, peers, report, runner, timing

    outputs = {"json": json, "csv": csv, "markdown": markdown, "html": html}
    _refuse_unwritable(outputs, save_plot)
    elements = _option("--size", lambda: None if size is None else options.parse_size(size))
    wanted = _option("--suite", lambda: cases.suites(suite or []))
    asked = _option("--peer", lambda: peers.choose(peer or []))
    absent: dict[str, str] = {}
    try:
        device = timing.open_device("cpu" if wanted == ["cpu"] and engine == "auto" else engine)
    except DeviceError as wrong:
        raise typer.BadParameter(str(wrong), param_hint="--engine") from None
    if not wanted and not case and device.engine == "cpu":
        wanted = ["cpu"]
        why = "" if peer else peers.registry()["numexpr"].missing(device)
        absent = {"numexpr": why} if why else {}
        asked = asked if peer else peers.choose(["numpy", *["numexpr"] * (not why)])
    elif not wanted and not peer:
        asked = peers.choose([device.library])
    wanted = wanted or [basic.DEFAULT]
    # Whoever is asked for, the unfused library is what the others are measured by.
    compared = peers.choose([one.name for one in asked] + [device.library])
    if "cpu" in wanted and device.engine != "cpu":
        if "all" not in ",".join(suite or []).lower():
            raise typer.BadParameter(
                "the suite cpu runs on the CPU engine: run it alone, or with --engine cpu",
                param_hint="--suite",
            )
        wanted.remove("cpu")
    chosen = _option("--case", lambda: cases.chosen(case or [], wanted))
    if quick and not case:
        chosen = [one for one in chosen if not one.extra]

    console = report.terminal(stderr="-" in outputs.values())
    named = tuple(one.name for one in chosen) if case else ()
    result = runner.start(
        device,
        chosen,
        elements,
        dtype.value,
        repeat,
        suites=tuple(wanted),
        peers=compared,
        named=named,
        quick=quick,
        budget=budget,
        seed=seed,
    )
    result.absent.update(absent)
    console.print(report.title(result), soft_wrap=True)

    def planned(schedule: Any) -> None:
        console.print(f"{schedule}", style="dim", soft_wrap=True)

    with report.progress(lambda: len(result.cases)) as began:

        def starts(next_case: Any) -> None:
            if result.rows:  # kept, whatever the next case does
                save_rows(result, outputs)
            began(next_case)

        runner.run(device, chosen, result, starts, compared, planned=planned)
    report.show(result, console)
    written = save_all(result, outputs, save_plot)
    if result.interrupted and not result.lost:
        raise typer.Exit(INTERRUPTED)
    named_peers = bool(peer) and result.settings.peers != ("all",)
    away = named_peers and any(one.name in result.absent for one in asked)
    if result.failed or not written or not result.rows or away:  # no row: too small a budget
        raise typer.Exit(1)


def _refuse_unwritable(outputs: dict[str, str | None], save_plot: str | None) -> None:
    from itfuse.bench import plot, report

    for name, path in {**outputs, "save-plot": save_plot}.items():
        if path is None:
            continue
        why = "a picture needs a file" if name == "save-plot" and path == "-" else ""
        if why := why or report.unwritable(path):
            raise typer.BadParameter(why, param_hint=f"--{name}")
    if sum(path == "-" for path in outputs.values()) > 1:
        raise typer.BadParameter("only one result can be printed", param_hint="-")
    if save_plot is not None and (why := plot.unusable(save_plot)):
        raise typer.BadParameter(why, param_hint="--save-plot")


def _option(name: str, parse: Callable[[], Any]) -> Any:
    try:
        return parse()
    except ConfigError as wrong:
        raise typer.BadParameter(str(wrong), param_hint=name) from None


def save_all(result: Any, outputs: dict[str, str | None], plot_path: str | None) -> bool:
    """Write every output that was asked for; what cannot be written goes to a temporary file.

    Returns
    -------
    bool
        Whether all of them were written where they were asked for.
    """
    from itfuse.bench import plot

    texts = _texts(result)
    failed = []
    for name, path in outputs.items():
        if path is not None and (why := _write(path, texts[name])):
            failed.append(why)
    if plot_path is not None and (
        why := _write(plot_path, lambda: plot.picture(result, plot_path))
    ):
        failed.append(why)
    for why in failed:
        print(f"itfuse: {why}", file=sys.stderr)
    if failed:
        rescue = Path(tempfile.gettempdir()) / f"itfuse-bench-{result.date.replace(':', '')}.json"
        if not _write(str(rescue), texts["json"]):
            print(f"itfuse: the results are in {rescue}", file=sys.stderr)
    return not failed


def save_rows(result: Any, outputs: dict[str, str | None]) -> None:
    """Write the rows so far to every file that was asked for; a picture is made at the end only."""
    from itfuse.bench import report

    for name, make in _texts(result).items():
        path = outputs.get(name)
        if path not in (None, "-"):
            with suppress(OSError):  # said at the end, if it is still so
                report.write(make(), str(path))


def _texts(result: Any) -> dict[str, Callable[[], str]]:
    from itfuse.bench import export, page, report

    return {
        "json": lambda: report.json_text(result),
        "csv": lambda: export.csv_text(result),
        "markdown": lambda: export.markdown(result),
        "html": lambda: page.page(result),
    }


def _write(path: str, make: Callable[[], str | bytes]) -> str:
    from itfuse.bench import report

    try:
        report.write(make(), path)
    except OSError as why:
        return f"cannot write {path}: {why.strerror or why}"
    except ConfigError as why:
        return f"cannot write {path}: {why}"
    return ""


@bench.command("list")
def list_all(
    suite: Annotated[
        str | None, typer.Argument(help="Only the cases of this suite.", metavar="SUITE")
    ] = None,
) -> None:
    """List the suites with their cases, about how long each takes, and the peers that are here."""
    from itfuse.bench import cases, peers, report, runner, schedule, timing

    console = report.terminal()
    names = _option("SUITE", lambda: cases.suites([suite] if suite else list(cases.SUITES)))
    device = timing.open_device("auto")
    absent = {name: why for name, peer in peers.registry().items() if (why := peer.missing(device))}
    here = [peer for name, peer in peers.registry().items() if name not in absent]
    for name in names:
        some = cases.of_suite(name)
        found = runner.start(device, some, None, "float32", None, suites=(name,))
        takes = schedule.Schedule(some, here, device, found.settings).estimates[name]
        about = f"{name}: {cases.SUITES[name]}; {len(some)} cases, about {schedule.clock(takes)}"
        console.print(about, style="bold", soft_wrap=True)
        for one in some:
            meaning = one.meaning if len(one.meaning) <= 70 else one.meaning[:67] + "..."
            console.print(f"  {one.name:28}{meaning}", soft_wrap=True)
    if suite:
        return
    console.print("peers", style="bold")
    for peer in peers.registry().values():
        why = f" (not here: {absent[peer.name]})" if peer.name in absent else ""
        console.print(f"  {peer.name:24}{peer.title}{why}", soft_wrap=True)


@bench.command()
def compare(
    old: Annotated[str, typer.Argument(help="A result saved with --json.", metavar="OLD.json")],
    new: Annotated[str, typer.Argument(help="A later one.", metavar="NEW.json")],
    threshold: Annotated[
        float,
        typer.Option(min=0.0, max=10.0, help="Share by which a time may grow, or its noise."),
    ] = 0.05,
) -> None:
    """Compare itfuse's times of two results.

    Exit codes: 0, 1 if a case became slower, is gone or is broken, 2 if the files cannot be
    compared, or have no timed case of the same size in common.
    """
    from itfuse.bench import compare as comparison
    from itfuse.bench import report

    before = _option("OLD.json", lambda: report.load(old))
    after = _option("NEW.json", lambda: report.load(new))
    changes = comparison.compare(before, after, threshold)
    if not any(one.ratio or one.verdict == comparison.BROKEN for one in changes):
        other = any(one.verdict == comparison.OTHER for one in changes)
        what = "timed case of the same size" if other else "timed case"
        raise typer.BadParameter(f"the results have no {what} in common")
    console = report.terminal()
    for why in comparison.differences(before, after):
        console.print(f"note: {why}", style="yellow")
    comparison.show(changes, console)
    if any(one.verdict in comparison.BAD for one in changes):
        raise typer.Exit(1)
