"""CUDA's own compiler, where it is there: it needs no GPU."""

import shutil
import subprocess

import pytest

from eagerflow.codegen.cuda.modules import OPTIONS
from tests.codegen.cuda_cpu import joined, kernels_of

needs_nvcc = pytest.mark.skipif(shutil.which("nvcc") is None, reason="there is no nvcc")


def compile_for_gpus(texts, folder):
    """The PTX of all kernels of these texts."""
    (folder / "all.cu").write_text(joined(texts))
    command = ["nvcc", *OPTIONS, f"-arch=sm_{oldest_architecture()}", "-ptx", "all.cu"]
    called(command, folder)
    ptx = (folder / "all.ptx").read_text()
    assert ptx.count(".entry") == sum(len(kernels_of(t)) for t in texts)
    return ptx


def oldest_architecture():
    """The oldest that this compiler knows, from sm_70 on."""
    listed = subprocess.run(["nvcc", "--list-gpu-arch"], capture_output=True, text=True, check=True)
    known = [int(line.rpartition("_")[2]) for line in listed.stdout.split()]
    return min(n for n in known if n >= 70)


def called(command, folder):
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
