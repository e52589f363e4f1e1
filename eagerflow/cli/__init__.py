"""The ``eagerflow`` command."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence

from eagerflow.errors import EagerflowError, printable

__all__ = ["main", "make_parser"]

COMMANDS = {
    "demo": "demo",
    "devices": "devices",
    "show": "graphs",
    "run": "run",
    "export": "export",
    "join": "join",
    "diff": "graphs",
    "check": "graphs",
    "serve": "serve",
    "bench-serve": "bench_serve",
    "cluster": "cluster",
    "info": "info",
    "cache": "cache",
    "completion": "completion",
}
"""Each command, in the order of the help, and the submodule with its ``add_`` function.

A module is imported only for its command: importing all of them would double the start-up time of
each command.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit status: 0, 1 for a difference or a fault, 2 for an error.

    ``arguments`` are those of the command line (default: the process's own).

    >>> from eagerflow.cli import main
    >>> main(["devices"])
    cpu:0 ...
    0
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    options = make_parser(given[:1]).parse_args(given)
    try:
        status: int = options.run(options)
        return status
    except EagerflowError as error:
        print(f"eagerflow {options.command}: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader of our output, such as head, has closed it
        sys.stderr.close()
        return 0
    except OSError as error:
        print(f"eagerflow {options.command}: {printable(str(error))}", file=sys.stderr)
        return 2


def make_parser(wanted: Sequence[str] = ()) -> argparse.ArgumentParser:
    """The parser of the command line, with the commands ``wanted`` if all of them are known.

    Otherwise it has all commands.

    >>> from eagerflow.cli import make_parser
    >>> make_parser(["demo"]).parse_args(["demo"]).epochs
    12
    """
    parser = argparse.ArgumentParser(
        prog="eagerflow", description="Tensors that compute at once, with gradients and layers."
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="command")
    known = wanted if wanted and COMMANDS.keys() >= set(wanted) else COMMANDS
    for name in known:
        module = importlib.import_module(f"{__name__}.{COMMANDS[name]}")
        getattr(module, f"add_{name.replace('-', '_')}")(commands)
    return parser
