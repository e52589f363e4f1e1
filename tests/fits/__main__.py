"""``python -m tests.fits --count 1000 --seed 1``: random models, trained eagerly and captured."""

import sys

from tests.campaigns import Subject, run_from_command_line
from tests.fits.generate import generate, listing, short, smaller
from tests.fits.running import check, choose

FITS = Subject(generate, check, choose, smaller, short)

if __name__ == "__main__":
    sys.exit(run_from_command_line(FITS, listing, __doc__))
