"""Each module of ops may be the first that a program uses: none depends on what others import."""

import subprocess
import sys

import pytest

import eagerflow as ef

SCRIPT = """
import importlib, os, sys
import eagerflow as ef
from eagerflow import ops

def load(name):
    child = os.fork()
    if child == 0:
        try:
            importlib.import_module(name)
        except BaseException as error:
            print(name, repr(error), flush=True)
            os._exit(1)
        os._exit(0)
    return os.waitpid(child, 0)[1]

names = [f"eagerflow.ops.{name}" for name in sorted(set(ops.LATE.values()))]
names += [f"eagerflow.{name}" for name in ("primitives", "nn", "capture", "plan", "fusion")]
assert len(names) > 40
sys.exit(any([load(name) for name in names]))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="processes are forked")
def test_each_module_of_ops_may_be_loaded_first():
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", ["a.b", "primitives.none", "", "1", "__wrapped__"])
def test_names_that_are_none_are_missing(name):
    assert not hasattr(ef, name)
    assert not hasattr(ef.nn, name)
