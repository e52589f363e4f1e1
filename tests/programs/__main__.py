"""Command line of random programs: ``python -m tests.programs --count 1000 --seed 1``."""

import inspect
import sys

from tests.campaigns import ProgramTester, run_from_command_line
from tests.programs import helpers
from tests.programs.checking import check, choose_modes
from tests.programs.generate import generate
from tests.programs.program import Program
from tests.programs.shrinking import smaller


def listing(program):
    """A program as text that runs alone."""
    source = inspect.getsource(helpers)
    return f"{source}\n\ncapture = nested = ef.function\n{program.text()}"


PROGRAMS = ProgramTester(generate, check, choose_modes, smaller, Program.text, listing)

if __name__ == "__main__":
    sys.exit(run_from_command_line(PROGRAMS, __doc__))
