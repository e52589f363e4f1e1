"""The ``eagerflow`` command."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from eagerflow.cli.cache import add_cache
from eagerflow.cli.completion import add_completion
from eagerflow.cli.demo import run_demo
from eagerflow.cli.devices import run_devices
from eagerflow.cli.export import add_export
from eagerflow.cli.graphs import add_check, add_diff, add_show
from eagerflow.cli.info import add_info
from eagerflow.cli.join import add_join
from eagerflow.cli.run import add_run
from eagerflow.cli.serve import add_serve
from eagerflow.errors import EagerflowError, printable

__all__ = ["main", "make_parser"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; gives its exit status: 0, 1 for a difference or a fault, 2 for an error.

    ``arguments`` are those of the command line (default: the process's own).

    >>> from eagerflow.cli import main
    >>> main(["devices"])
    cpu:0 ...
    0
    """
    options = make_parser().parse_args(arguments)
    try:
        status: int = options.run(options)
        return status
    except EagerflowError as error:
        print(f"eagerflow {options.command}: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader of our output, such as head, has seen enough
        sys.stderr.close()
        return 0
    except OSError as error:
        print(f"eagerflow {options.command}: {printable(str(error))}", file=sys.stderr)
        return 2


def make_parser() -> argparse.ArgumentParser:
    """The parser of the command line, with all commands.

    >>> from eagerflow.cli import make_parser
    >>> make_parser().parse_args(["demo"]).epochs
    12
    """
    parser = argparse.ArgumentParser(
        prog="eagerflow", description="Tensors that compute at once, with gradients and layers."
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="command")
    demo = commands.add_parser(
        "demo", help="a first session, then a network trained on handwritten digits"
    )
    demo.add_argument(
        "--output",
        type=Path,
        default=Path("eagerflow-demo"),
        metavar="FOLDER",
        help="where the picture goes (default: %(default)s)",
    )
    demo.add_argument("--epochs", type=int, default=12, help="default: %(default)s")
    demo.add_argument("--seed", type=int, default=0, help="default: %(default)s")
    demo.set_defaults(run=lambda o: run_demo(o.output, o.epochs, o.seed))
    devices = commands.add_parser("devices", help="the devices that can be used here")
    devices.set_defaults(run=lambda o: run_devices())
    for add in (
        add_show,
        add_run,
        add_export,
        add_join,
        add_diff,
        add_check,
        add_serve,
        add_info,
        add_cache,
    ):
        add(commands)
    add_completion(commands, parser)
    return parser
