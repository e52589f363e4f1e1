"""The ``eagerflow`` command."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from eagerflow.cli.demo import run_demo
from eagerflow.cli.devices import run_devices
from eagerflow.cli.export import add_export
from eagerflow.cli.graphs import add_check, add_diff, add_show
from eagerflow.cli.run import add_run
from eagerflow.cli.serve import add_serve
from eagerflow.errors import EagerflowError, printable

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; gives its exit status: 0, 1 for a difference or a fault, 2 for an error.

    ``arguments`` are those of the command line (default: the process's own).

    >>> from eagerflow.cli import main
    >>> main(["devices"])
    cpu:0 ...
    0
    """
    options = _parser().parse_args(arguments)
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


def _parser() -> argparse.ArgumentParser:
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
    for add in (add_show, add_run, add_export, add_diff, add_check, add_serve):
        add(commands)
    return parser
