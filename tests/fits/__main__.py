"""Command line of random models: ``python -m tests.fits --count 1000 --seed 1``."""

import sys

from tests.campaigns import ProgramTester, run_from_command_line
from tests.fits.checking import check, choose_modes
from tests.fits.fit import listing, short
from tests.fits.generate import generate
from tests.fits.shrinking import smaller

FITS = ProgramTester(generate, check, choose_modes, smaller, short, listing)

if __name__ == "__main__":
    sys.exit(run_from_command_line(FITS, __doc__))
