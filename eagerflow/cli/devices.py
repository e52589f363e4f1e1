"""``eagerflow devices``: the available devices."""

from __future__ import annotations

import math
import os
import platform
import time
from typing import Any

import numpy as np

import eagerflow as ef
from eagerflow import extras
from eagerflow.runtime import blas
from eagerflow.settings import setting

__all__ = ["add_devices", "device_text", "run_devices", "why_no_gpu"]

SIZE, TRIES = 1024, 8


def add_devices(commands: Any) -> None:
    """Add the command to the parser's commands."""
    devices = commands.add_parser("devices", help="the devices that can be used here")
    devices.set_defaults(run=lambda options: run_devices())


def run_devices() -> int:
    """Print a line for each device, the speed of NumPy's matrix products, and missing packages."""
    for device in ef.devices():
        print(f"{device!s:<8}{device.full_name:<36}{device_text(device)}")
    print(f"NumPy's products: {_products()}")
    if not ef.devices("gpu"):
        print("no GPU: " + why_no_gpu())
    return 0


def device_text(device: ef.Device) -> str:
    """The library behind a device, and its hardware."""
    if device.type == "cpu":
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        return f"NumPy, {cores} cores, {platform.machine()}"
    stats = device.backend.memory_stats(device.index)
    total = stats.get("device_bytes")
    return device.backend.name + (f", {total / 2**30:.0f} GiB" if total else "")


def _products() -> str:
    """The BLAS kernels for matrix products, and their speed."""
    a, b = np.random.default_rng(0).standard_normal((2, SIZE, SIZE), np.float32)
    out, best = a @ b, math.inf
    for _ in range(TRIES):
        start = time.perf_counter()
        np.matmul(a, b, out)
        best = min(best, time.perf_counter() - start)
    kernels = blas.kernels()
    kind = f"OpenBLAS with kernels for {kernels}" if kernels else "a library other than OpenBLAS"
    chosen = setting(blas.CORE_TYPE)
    if kernels and chosen:
        kind += f" ({blas.CORE_TYPE}={chosen})"
    return f"{kind}, {2e-9 * SIZE**3 / best:.0f} GFLOP/s ({SIZE}x{SIZE} float32)"


def why_no_gpu() -> str:
    """The reason that there is no GPU."""
    if extras.load_if_there("cupy") is None:
        return "CuPy is not installed (pip install 'eagerflow[cuda12]' or 'eagerflow[cuda13]')"
    return "CuPy is installed, but finds no CUDA device"
