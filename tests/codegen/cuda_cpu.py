"""A look-alike of CuPy whose kernels run on the CPU: their text, compiled by g++ with a shim.

Compiling takes longer than all else, so the texts of many calls are compiled together first;
``RawModule`` finds its text among them.
"""

import ctypes
import re
import shutil
import subprocess
import types
from pathlib import Path

import numpy as np

from eagerflow.codegen.cuda import launch
from eagerflow.codegen.cuda.prelude import SUPPORT

_SHIM = Path(__file__).with_name("cuda_shim.h")
_KERNEL = re.compile(r'extern "C" __global__ void __launch_bounds__\(\d+\) (\w+)\(')
_BORDER = 64


class _Device:
    """The one device; it knows whether it is the current one."""

    id = 0

    def __init__(self):
        self.depth = 0

    def __enter__(self):
        self.depth += 1
        return self

    def __exit__(self, *error):
        self.depth -= 1


class Array:
    """An array on the device: CuPy's attributes that launches read, and no values."""

    def __init__(self, values, device):
        self.values, self.device = values, device
        self.shape, self.strides, self.dtype = values.shape, values.strides, values.dtype
        self.data = types.SimpleNamespace(ptr=values.ctypes.data)


class Cupy(types.ModuleType):
    """``cupy``, with modules that were compiled before."""

    def __init__(self, libraries):
        super().__init__("cupy")
        self.libraries, self.device, self.launches, self.given = libraries, _Device(), [], []

    def wrap(self, values):
        return Array(values, self.device)

    def empty(self, count, dtype):
        """A buffer with borders that holds garbage, since its contents must not matter."""
        assert self.device.depth, "memory is taken on the device that is current"
        size = count * np.dtype(dtype).itemsize
        memory = np.full(size + 2 * _BORDER, 0xA5, np.uint8)
        start = _BORDER + -(memory.ctypes.data + _BORDER) % 16
        self.given.append((memory, start, size))
        return self.wrap(memory[start : start + size].view(dtype))

    def touched(self):
        """How many bytes beside the buffers were written."""
        changed = 0
        for memory, start, size in self.given:
            changed += int((np.r_[memory[:start], memory[start + size :]] != 0xA5).sum())
        return changed

    def array(self, array, order):
        assert order == "C"
        return self.wrap(np.array(array.values, order="C"))

    def RawModule(self, code, options):
        assert options == ("--std=c++17", "--fmad=false")

        def get_function(name):
            return lambda *given: self._launch(name, self.libraries[code], code, given)

        return types.SimpleNamespace(get_function=get_function)

    def _launch(self, name, place, code, given):
        assert self.device.depth, "kernels run on the device that is current"
        self.launches.append(name)
        launch_on_cpu(code, place, name, *given)


def launch_on_cpu(code, place, name, grid, block, given):
    """Run a kernel of a text that ``compile_for_cpu`` found a place for."""
    assert block[0] * block[1] * block[2] <= 1024 and grid[1] <= 65535
    assert all(type(g) in (np.uint64, np.int64) for g in given), "eight bytes each"
    library, number = place
    run = getattr(library, f"run_{number}_{kernels_of(code).index(name)}")
    sizes = (ctypes.c_uint * 6)(*grid, *block)
    cells = np.array([int(g) % 2**64 for g in given], np.uint64)
    places = (ctypes.c_void_p * len(given))(*(cells.ctypes.data + 8 * i for i in range(len(given))))
    found = run(sizes, len(given), places)
    assert found >= 0, f"{name} takes {-1 - found} arguments, not {len(given)}"
    assert found == 0, f"the threads of a block of {name} wait for each other in vain"


def kernels_of(text):
    """Names of the kernels of a text."""
    return _KERNEL.findall(text)


def joined(texts):
    """One text of many modules, each in a namespace of its own."""
    parts = [SUPPORT]
    for number, text in enumerate(texts):
        own = text.removeprefix(SUPPORT.rstrip()).replace('extern "C" ', "")
        parts.append(f"namespace k{number} {{\n{own}\n}}")
    return "\n".join(parts)


def compile_for_cpu(texts, folder):
    """Library and number for each text; two compilers share the work."""
    texts = list(dict.fromkeys(texts))
    halves = [texts[::2], texts[1::2]]
    started = [
        (_start(half, Path(folder) / f"kernels{n}"), half) for n, half in enumerate(halves) if half
    ]
    found = {}
    for (process, library), half in started:
        message = process.communicate()[1].decode()
        assert process.returncode == 0, message[-5000:]
        loaded = ctypes.CDLL(str(library))
        found |= {text: (loaded, number) for number, text in enumerate(half)}
    return found


def _start(texts, place):
    entries = [
        f'extern "C" int run_{number}_{k}(const unsigned *sizes, int count, void **given) '
        f"{{ return shim::run(k{number}::{name}, sizes, count, given); }}"
        for number, text in enumerate(texts)
        for k, name in enumerate(kernels_of(text))
    ]
    place.with_suffix(".cpp").write_text(
        "\n".join([f'#include "{_SHIM}"', joined(texts), *entries, ""])
    )
    library = place.with_suffix(".so")
    options = "-std=c++17 -O0 -w -fPIC -shared -ffp-contract=off -fno-strict-aliasing".split()
    command = [shutil.which("g++"), *options, "-o", library, place.with_suffix(".cpp")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    return process, library


def prepared(region, inputs, outputs, sizes):
    """The program of a call with these NumPy arrays."""
    places = [launch.Memory(a.ctypes.data % 16, a.strides) for a in (*inputs, *outputs)]
    return launch.prepare(region, places, sizes)
