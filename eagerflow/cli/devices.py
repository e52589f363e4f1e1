"""``eagerflow devices``: what there is to compute on."""

from __future__ import annotations

import os
import platform

import eagerflow as ef
from eagerflow import extras

__all__ = ["run_devices"]


def run_devices() -> int:
    """Print a line for each device, and what would add more."""
    for device in ef.devices():
        print(f"{device!s:<8}{device.full_name:<36}{_description(device)}")
    if not ef.devices("gpu"):
        print("no GPU: " + _why_no_gpu())
    return 0


def _description(device: ef.Device) -> str:
    if device.type == "cpu":
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        return f"NumPy, {cores} cores, {platform.machine()}"
    stats = device.backend.memory_stats(device.index)
    total = stats.get("device_bytes")
    return device.backend.name + (f", {total / 2**30:.0f} GiB" if total else "")


def _why_no_gpu() -> str:
    if extras.load_if_there("cupy") is None:
        return "CuPy is not installed (pip install 'eagerflow[cuda12]' or 'eagerflow[cuda13]')"
    return "CuPy is installed, but finds no CUDA device"
