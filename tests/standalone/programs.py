"""Programs as they are written, run and compared in the tests."""

import os
import re
import subprocess
import sys

import numpy as np

import eagerflow as ef
import eagerflow.capture
from eagerflow.standalone.module import Module

WIDTH = 99
NEWER = {"cumulative_sum", "cumulative_prod", "unstack", "matvec", "vecmat"}
"""Functions that NumPy has since 2.1 and 2.2."""
ALONE = """
import sys

class NoOthers:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("eagerflow", "llvmlite", "ml_dtypes", "safetensors", "onnx"):
            raise ImportError(f"{name} is not to be needed")

sys.meta_path.insert(0, NoOthers())
import runpy
import numpy as np
program = runpy.run_path(sys.argv[1])
function, folder = program[sys.argv[2]], sys.argv[3]
reader = program.get("load_weights") or program.get("load_safetensors")
weights = [reader(program["WEIGHTS"])] if reader else []
given = [value for _, value in sorted(np.load(folder + "/given.npz").items())]
found = function(*given, *weights)
found = found if isinstance(found, tuple) else (found,)
np.savez(folder + "/found.npz", **{f"y{i:03}": y for i, y in enumerate(found)})
"""


def module_of(graph):
    return Module(graph, "model", ".npz", "load_weights")


def text_of(graph):
    """The text of a graph's program, which keeps to the width."""
    text = module_of(graph).text()
    assert all(len(line) <= WIDTH for line in text.split("\n")), text
    assert text.isascii() or "# " in text
    return text


def nested(arrays):
    found = {}
    for name, array in arrays.items():
        *folders, leaf = name.split("/")
        place = found
        for folder in folders:
            place = place.setdefault(folder, {})
        place[leaf] = np.array(array)
    return found


class Program:
    """A graph's program, executed in a namespace of its own."""

    def __init__(self, graph, width=WIDTH):
        module = module_of(graph)
        self.text = module.text()
        # How long the number of a name will be, the writer cannot know before.
        width += 12 if re.search(r"_\d{3}\b", self.text) else 0
        assert all(len(line) <= width for line in self.text.split("\n")), self.text
        assert NEWER.isdisjoint(re.findall(r"np\.(\w+)", self.text))
        assert "eagerflow" not in self.text.replace("written by eagerflow", "")
        self.namespace = {"__name__": "model", "__file__": "model.py"}
        exec(compile(self.text, "model.py", "exec", dont_inherit=True), self.namespace)
        self.function = self.namespace[module.name]
        self.weights = nested(module.arrays)
        self.weighted = module.weighted

    def __call__(self, *args):
        return self.function(*args, *([self.weights] if self.weighted else []))


def traced(f, *args, **named):
    """The graph of a function for arguments like these."""
    specs = [ef.TensorSpec(np.shape(x), np.asarray(x).dtype) for x in args]
    return ef.capture.trace(f, *specs, **named)


def run_alone(graph, args, folder, name, weights="npz"):
    """The results of a graph's program in a process that has only NumPy."""
    path = os.path.join(folder, "model.py")
    ef.capture.export_python(graph, path, weights=weights)
    np.savez(os.path.join(folder, "given.npz"), **{f"x{i:03}": x for i, x in enumerate(args)})
    command = [sys.executable, "-I", "-c", ALONE, path, name, str(folder)]
    subprocess.run(command, check=True, timeout=120)
    with np.load(os.path.join(folder, "found.npz")) as found:
        return [found[key] for key in sorted(found.files)]


def assert_close(found, wanted, units, like=()):
    """Results of one shape and dtype, within units in the last place of the largest numbers."""
    found, wanted = np.asarray(found), np.asarray(wanted)
    assert found.shape == wanted.shape
    assert found.dtype == wanted.dtype
    if wanted.dtype.kind not in "fc":
        np.testing.assert_array_equal(found, wanted)
        return
    wide = "complex128" if wanted.dtype.kind == "c" else "float64"
    a, b = found.astype(wide), wanted.astype(wide)
    sizes = [np.abs(x[np.isfinite(x)]) for x in (b, *like) if np.asarray(x).dtype.kind in "fc"]
    scale = max((float(x.max(initial=0)) for x in sizes), default=0.0)
    limit = units * float(np.finfo(wanted.dtype).eps) * np.maximum(np.abs(b), scale)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    with np.errstate(invalid="ignore"):
        assert (same | (np.abs(a - b) <= limit)).all(), (found, wanted)
