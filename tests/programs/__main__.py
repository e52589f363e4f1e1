"""``python -m tests.programs --count 1000 --seed 1``: random programs, run in all ways."""

import inspect
import sys

from tests.campaigns import Subject, run_from_command_line
from tests.programs import generate as generating
from tests.programs import helpers
from tests.programs.generate import generate
from tests.programs.running import check, choose
from tests.programs.shrinking import smaller


def listing(program, way="fast"):
    """A program as text that runs by itself; ``capture`` is what fails."""
    helps = inspect.getsource(helpers)
    for f in (generating.numbers, generating.filled):
        helps += "\n\n" + inspect.getsource(f)
    how = "ef.function" if "fast" in way else 'functools.partial(ef.function, numerics="exact")'
    head = f"import functools\ncapture = nested = {how}  # {way}\n"
    return f"{helps}\n\n{head}{text(program)}"


def text(program):
    return program.setup() + "\n" + "\n".join(program.statements())


PROGRAMS = Subject(generate, check, choose, smaller, text)

if __name__ == "__main__":
    sys.exit(run_from_command_line(PROGRAMS, listing, __doc__))
