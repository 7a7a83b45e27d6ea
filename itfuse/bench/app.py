"""The commands and their options. What takes long to import is imported by the command."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

import itfuse as itf
from itfuse import disk
from itfuse.bench.commands import bench
from itfuse.errors import CacheError

app = typer.Typer(
    name="itfuse",
    help="Explicit kernel fusion for CuPy arrays.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain help needs no import of rich
)


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


app.add_typer(bench, name="bench")


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

    with _one_line():
        for name, value in cache_lines().items():
            print(f"{name:10}{value}")


@cache.command()
def path() -> None:
    """Print the directory; exit 1 if there is none."""
    with _one_line():
        found = disk.directory()
        if found is None:
            raise CacheError(f"there is no cache directory: {disk.absent()}")
        print(found)


@cache.command()
def clear() -> None:
    """Remove every entry."""
    with _one_line():
        found = disk.directory()
        if found is None:
            print(f"nothing to remove: {disk.absent()}")
            return
        count = disk.clear()
        print(f"removed {count} {'entry' if count == 1 else 'entries'} from {found}")


@contextlib.contextmanager
def _one_line() -> Iterator[None]:
    """Say in one line what was wrong with what the user gave, and exit 1."""
    try:
        yield
    except (itf.ItfuseError, OSError) as why:
        print(f"itfuse: {str(why).strip()}", file=sys.stderr)
        raise typer.Exit(1) from None


@app.command()
def build(
    function: Annotated[
        str, typer.Argument(help="What to build: package.module:function.", metavar="FUNCTION")
    ],
    signature: Annotated[
        list[str],
        typer.Option(
            help="Arguments, such as \"f4[n], f4[n,1000], float, mode='a'\"; may be given again."
        ),
    ],
    output: Annotated[str, typer.Option("-o", "--output", help="File to write.", metavar="PATH")],
    arch: Annotated[str, typer.Option(help="Architectures: 80,90,120.")] = "90",
) -> None:
    """Compile a function's passes ahead of time, without a GPU; `itfuse.load` uses the file."""
    from itfuse.ahead import build as compile_ahead

    sys.path.insert(0, "")  # modules of the current directory, as with python -m
    with _one_line():
        made = compile_ahead(function, signature, arch.split(","), output)
    count = f"{made} compiled {'code' if made == 1 else 'codes'}"
    print(f"{output}: {count} for {arch}, {_bytes(output)}")


def _bytes(file: str) -> str:
    from itfuse.explain import bytes_text

    return bytes_text(Path(file).stat().st_size)
