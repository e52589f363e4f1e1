"""``eagerflow info``: versions, processor, threads, caches, devices, settings, missing packages.

Bug reports should include its output.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import sys
from collections.abc import Iterator
from importlib import metadata
from typing import Any

import numpy as np

import eagerflow as ef
from eagerflow.cli.cache import cache_facts, size_text
from eagerflow.cli.devices import device_text, why_no_gpu
from eagerflow.errors import printable
from eagerflow.graph.text import aligned_columns, bytes_text
from eagerflow.runtime import blas, machine_code, threads
from eagerflow.runtime.cache import ObjectCache
from eagerflow.runtime.processor import memory_bytes, processor_name
from eagerflow.settings import SETTINGS, setting

__all__ = ["add_info", "collect"]

CORE = "always"  # stands for packages outside of extras
_REQUIREMENT = re.compile(
    r"(?P<name>[\w.-]+)\s*(?:\[(?P<of>[\w,\s-]*)\])?\s*(?P<versions>[^;]*)"
    r"(?:.*\bextra == ['\"](?P<extra>[\w-]+)['\"])?"
)


def add_info(commands: Any) -> None:
    """Add the command to the parser's commands."""
    info = commands.add_parser(
        "info", help="versions, processor, threads, caches, devices, settings, missing packages"
    )
    info.add_argument("--json", action="store_true", help="as JSON")
    info.set_defaults(run=_info)


def _info(options: argparse.Namespace) -> int:
    found = collect()
    print(json.dumps(found, indent=2) if options.json else printable(_text(found), "\n"))
    return 0


# Facts -------------------------------------------------------------------------------------------


def collect() -> dict[str, Any]:
    """All facts, in a nest that can be written as JSON.

    >>> from eagerflow.cli.info import collect
    >>> facts = collect()
    >>> facts["eagerflow"]["version"] == ef.__version__, facts["devices"][0]["name"]
    (True, 'cpu:0')
    """
    return {
        "eagerflow": {"version": ef.__version__, "folder": os.path.dirname(ef.__file__ or "")},
        "python": {
            "version": platform.python_version(),
            "implementation": platform.python_implementation(),
            "executable": sys.executable,
            "system": platform.system(),
            "machine": platform.machine(),
        },
        "numpy": {"version": np.__version__, "blas": _blas()},
        "llvmlite": _llvmlite(),
        "processor": {
            "name": processor_name(),
            "cores": os.cpu_count(),
            "threads": threads.thread_count(),
            "memory_bytes": memory_bytes(),
        },
        "cache": cache_facts(ObjectCache()),
        "devices": [_device(device) for device in ef.devices()],
        "no_gpu": None if ef.devices("gpu") else why_no_gpu(),
        "settings": {name: setting(name) or None for name in SETTINGS},
        "packages": packages_found(),
    }


def _blas() -> dict[str, Any]:
    """The BLAS library of NumPy, according to NumPy."""
    built = np.show_config(mode="dicts") or {}
    known = built.get("Build Dependencies", {}).get("blas", {})
    functions = blas.thread_functions()
    return {
        "name": known.get("name"),
        "version": known.get("version"),
        "kernels": blas.kernels() or None,
        "threads": functions and functions[1](),
    }


def _llvmlite() -> dict[str, Any]:
    """The compiler of machine code, and its target processor."""
    installed = version_of("llvmlite")
    if not machine_code.available():
        return {"version": installed, "used": False}
    host = machine_code.host()
    return {
        "version": installed,
        "used": True,
        "llvm": machine_code.version(),
        "target": host.cpu,
        "vector_bytes": host.vector_bytes,
    }


def _device(device: ef.Device) -> dict[str, Any]:
    return {
        "name": str(device),
        "about": device_text(device),
        "memory": {key: int(size) for key, size in ef.memory_stats(device).items()},
    }


def version_of(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def packages_found() -> dict[str, dict[str, Any]]:
    """For each extra, and ``CORE``, its packages: the required and the installed versions."""
    try:
        required = metadata.requires("eagerflow") or []
    except metadata.PackageNotFoundError:  # run from a source folder
        return {}
    found: dict[str, dict[str, Any]] = {}
    parts: dict[str, list[str]] = {}  # extras that are contained in others
    for match in filter(None, map(_REQUIREMENT.match, required)):
        extra = match["extra"] or CORE
        own = found.setdefault(extra, {})
        if match["name"] == "eagerflow":
            parts[extra] = re.findall(r"[\w-]+", match["of"] or "")
        else:
            versions = match["versions"].strip()
            own[match["name"]] = {"required": versions, "installed": version_of(match["name"])}
    for name, inner in parts.items():
        for part in inner:
            found[name] = found.get(part, {}) | found[name]
    return found


# Texts -------------------------------------------------------------------------------------------


def _text(found: dict[str, Any]) -> str:
    blocks = [
        aligned_columns(list(_versions(found)), "<<"),
        ["devices", *_indented(list(_devices(found)))],
        ["settings", *_indented([(n, v or "not set") for n, v in found["settings"].items()])],
        ["packages", *_indented(list(package_texts(found["packages"])))],
    ]
    return "\n\n".join("\n".join(block) for block in blocks)


def _indented(rows: list[tuple[str, str]]) -> list[str]:
    return [f"  {line}" for line in aligned_columns(rows, "<<")] if rows else ["  none known"]


def _versions(found: dict[str, Any]) -> Iterator[tuple[str, str]]:
    python, numpy, llvm = found["python"], found["numpy"], found["llvmlite"]
    processor, cache = found["processor"], found["cache"]
    own = found["eagerflow"]
    yield "eagerflow", f"{own['version']} in {own['folder']}"
    words = f"{python['version']} ({python['implementation']}), {python['system']}"
    yield "Python", f"{words} {python['machine']}: {python['executable']}"
    library = numpy["blas"]
    words = f"{library['name'] or 'a BLAS of no name'} {library['version'] or ''}".strip()
    if library["kernels"]:
        words += f" with kernels for {library['kernels']}, {library['threads']} threads"
    yield "NumPy", f"{numpy['version']}, {words}"
    if llvm["used"]:
        words = f"{llvm['version']}, LLVM {llvm['llvm']}: machine code for {llvm['target']}"
        words += f", vectors of {8 * llvm['vector_bytes']} bits"
    elif llvm["version"]:
        words = f"{llvm['version']}, switched off (EAGERFLOW_LLVM)"
    else:
        words = "missing: pip install llvmlite; NumPy computes without machine code of ours"
    yield "llvmlite", words
    memory = processor["memory_bytes"]
    words = f"{processor['name']}, {processor['cores']} cores, {processor['threads']} threads used"
    yield "processor", words + (f", {bytes_text(memory)} of memory" if memory else "")
    if cache["folder"] is None:
        words = "switched off (EAGERFLOW_CACHE), or no home folder"
    else:
        words = f"{size_text(cache)} in {cache['folder']}"
        words = f"not used: {cache['problem']}" if cache["problem"] else words
    yield "kernels", words


def _devices(found: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for device in found["devices"]:
        memory = device["memory"]
        words = f"{device['about']}; {bytes_text(memory.get('bytes_in_use', 0))} in use"
        limit = memory.get("bytes_limit", 0)
        yield device["name"], f"{words}, {f'at most {bytes_text(limit)}' if limit else 'no limit'}"
    if found["no_gpu"]:
        yield "no GPU", found["no_gpu"]


def package_texts(found: dict[str, dict[str, Any]]) -> Iterator[tuple[str, str]]:
    for extra, packages in found.items():
        versions = {name: facts["installed"] for name, facts in packages.items()}
        there = ", ".join(f"{name} {version}" for name, version in versions.items() if version)
        missing = ", ".join(name for name, version in versions.items() if not version)
        wanted = "eagerflow" if extra == CORE else f"'eagerflow[{extra}]'"
        line = f"{missing} missing: pip install {wanted}" if missing else ""
        yield extra, "; ".join(filter(None, [there, line]))
