"""The commands and their options. What takes long to import is imported by the command."""

from __future__ import annotations

import sys
from enum import StrEnum
from typing import Annotated

import typer

import itfuse as itf
from itfuse import disk
from itfuse.errors import ConfigError, DeviceError

INTERRUPTED = 130  # 128 + SIGINT, as shells report it

app = typer.Typer(
    name="itfuse",
    help="Explicit kernel fusion for CuPy arrays.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain help needs no import of rich
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


def _version(wanted: bool) -> None:
    if wanted:
        print(f"itfuse {itf.__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Explicit kernel fusion for CuPy arrays."""


@app.command()
def bench(
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
    engine: Annotated[
        EngineName, typer.Option(help="auto takes the GPU if there is one.")
    ] = EngineName.auto,
) -> None:
    """Time fused passes beside the unfused library and a copy, in one run.

    Every answer is checked before it is timed. Exit codes: 0, 1 if a case is wrong or failed,
    2 for bad options, 130 after Ctrl-C, which keeps the results so far.
    """
    from itfuse.bench import cases, options, report, runner, timing

    if json is not None and (why := report.unwritable(json)):
        raise typer.BadParameter(why, param_hint="--json")
    try:
        elements = None if size is None else options.parse_size(size)
    except ConfigError as wrong:
        raise typer.BadParameter(str(wrong), param_hint="--size") from None
    try:
        chosen = cases.select(case or [])
    except ConfigError as wrong:
        raise typer.BadParameter(str(wrong), param_hint="--case") from None
    try:
        device = timing.open_device(engine)
    except DeviceError as wrong:
        raise typer.BadParameter(str(wrong), param_hint="--engine") from None

    console = report.terminal(stderr=json == "-")
    result = runner.start(device, chosen, elements, dtype.value, repeat)
    console.print(report.title(result))
    with report.progress(len(chosen)) as began:
        runner.run(device, chosen, result, began)
    report.show(result, console)
    failed = any(row.status != runner.OK for row in result.rows)
    if json is not None:
        try:
            report.save(result, json)
        except OSError as why:
            print(f"itfuse: cannot write {json}: {why.strerror}", file=sys.stderr)
            failed = True
    if result.interrupted:
        raise typer.Exit(INTERRUPTED)
    if failed:
        raise typer.Exit(1)


@app.command()
def doctor() -> None:
    """Report GPU, driver, versions, engines and why not, cache, and copy bandwidth."""
    from itfuse.bench.doctor import doctor as examine
    from itfuse.bench.report import terminal

    examine(terminal())


cache = typer.Typer(help="The cache of compiled code on disk.", no_args_is_help=True)
app.add_typer(cache, name="cache")


@cache.command()
def info() -> None:
    """Say where it is, whether it is usable, and how full."""
    from itfuse.bench.doctor import cache_lines

    for name, value in cache_lines().items():
        print(f"{name:10}{value}")


@cache.command()
def path() -> None:
    """Print the directory."""
    print(disk.info().path)


@cache.command()
def clear() -> None:
    """Remove every entry."""
    count = disk.clear()
    print(f"removed {count} {'entry' if count == 1 else 'entries'} from {disk.info().path}")


@app.command()
def build(
    function: Annotated[
        str, typer.Argument(help="What to build: package.module:function.", metavar="FUNCTION")
    ],
    signature: Annotated[
        list[str],
        typer.Option(help='Arguments, such as "f4[n],f4[n,1000],float"; may be given again.'),
    ],
    output: Annotated[str, typer.Option("-o", "--output", help="File to write.", metavar="PATH")],
    arch: Annotated[str, typer.Option(help="Architectures: 80,90,120.")] = "90",
) -> None:
    """Compile a function's passes ahead of time, without a GPU; `itfuse.load` uses the file."""
    from itfuse.ahead import build as compile_ahead

    try:
        made = compile_ahead(function, signature, arch.split(","), output)
    except (itf.ItfuseError, ImportError, AttributeError, OSError) as why:
        print(f"itfuse: {why}", file=sys.stderr)
        raise typer.Exit(1) from None
    print(f"{output}: {made} compiled codes for {arch}")
