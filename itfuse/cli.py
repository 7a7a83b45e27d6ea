"""The console script. The commands are in `itfuse.bench.app`."""

from __future__ import annotations

import sys

_NEEDED = ("rich", "typer")


def main() -> None:
    """Run the command line; without its libraries, say in one line how to get them and exit 2."""
    try:
        import rich  # noqa: F401 - typer works without it, the commands do not

        from itfuse.bench.app import app
    except ModuleNotFoundError as missing:
        if missing.name not in _NEEDED:
            raise
        print(
            f"itfuse: the command line needs {missing.name}, which is not installed: "
            "pip install 'itfuse[bench]'",
            file=sys.stderr,
        )
        raise SystemExit(2) from None
    app(prog_name="itfuse")
