"""Lazily loaded ops: every lookup finds them."""

import subprocess
import sys

import pytest

import eagerflow as ef
from eagerflow import ops


def run(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout


@pytest.mark.parametrize("name", ops.LATE)
def test_names(name):
    assert getattr(ef, name) is getattr(ops, name)
    assert name in dir(ef)


def test_import_loads_none_of_them():
    loaded = run("import sys, eagerflow; print(sorted(sys.modules))")
    assert [m for m in ops.LATE.values() if f"eagerflow.ops.{m}'" in loaded] == []


def test_threads_that_ask_at_once_all_find_them():
    """The first one loads the modules; the others have to wait until it has."""
    code = """
import threading, time
import eagerflow
from eagerflow.op import ops
missing, late = [], ops.late
def slowly(name):
    time.sleep(0.2)
    return late(name)
ops.late = slowly
def look():
    try:
        ops["lstm"], ops["resize"]
    except KeyError as error:
        missing.append(error)
threads = [threading.Thread(target=look) for _ in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(missing)
"""
    assert run(code) == "[]\n"


def test_one_op_loads_its_own_module():
    code = """
import sys
from eagerflow.op import ops
import eagerflow
assert ops["resize"].name == "resize"
print(sorted(m for m in sys.modules if m.startswith("eagerflow.ops.nn.")))
"""
    loaded = run(code)
    assert "eagerflow.ops.nn.resizing" in loaded and "recurrent" not in loaded


def test_unknown_names_are_no_ops():
    code = """
import eagerflow
from eagerflow.op import ops
print("median_of_medians" in ops, "lstm_training" in ops, len(ops) > 200)
"""
    assert run(code) == "False True True\n"
