"""``python -m eagerflow.keras program.py ...``: a program that imports Keras, on eagerflow."""

import runpy
import sys

import eagerflow.keras  # noqa: F401 (which puts the backend in place)

if len(sys.argv) < 2:
    sys.exit("usage: python -m eagerflow.keras program.py [arguments]")
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")
