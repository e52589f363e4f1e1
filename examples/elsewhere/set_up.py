"""Fetches what the programs here need, into a folder outside of the repository.

``python set_up.py [FOLDER]`` installs ONNX Runtime for Node and for browsers with npm, and puts
its C++ headers and its library beside them. Nothing that comes with a package is run.
"""

import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
WORK = Path(os.environ.get("EAGERFLOW_ELSEWHERE") or CACHE / "eagerflow" / "elsewhere")
# ONNX Runtime's own archives have the headers too, but are in no registry; this package of the
# npm registry, which is for Unity, brings the same files for phones.
HEADERS = "com.github.asus4.onnxruntime@0.4.9"


def npm(*arguments: str, folder: Path) -> str:
    """What npm prints. Scripts of packages are not run: they would fetch more from elsewhere."""
    command = [shutil.which("npm") or "npm", *arguments, "--ignore-scripts", "--silent"]
    done = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def fetch_packages(work: Path) -> None:
    """Install what package.json names into ``node_modules``."""
    shutil.copy(HERE / "package.json", work)
    npm("install", "--no-audit", "--no-fund", folder=work)


def fetch_headers(work: Path) -> None:
    """Put the C and C++ headers into ``include``."""
    include = work / "include"
    include.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        name = npm("pack", HEADERS, folder=Path(folder)).splitlines()[-1]
        with tarfile.open(Path(folder) / name) as archive:
            for member in archive:
                if member.isfile() and "/Headers/" in member.name and member.name.endswith(".h"):
                    content = archive.extractfile(member)
                    (include / Path(member.name).name).write_bytes(content.read())


def copy_library(work: Path) -> None:
    """Put the library that a program is linked with into ``lib``: Python's, or else Node's."""
    spec = importlib.util.find_spec("onnxruntime")
    folders = [Path(spec.origin).parent / "capi"] if spec else []
    system = {"linux": "linux", "darwin": "darwin"}.get(sys.platform, "win32")
    machine = "arm64" if platform.machine().lower() in ("arm64", "aarch64") else "x64"
    folders.append(work / "node_modules/onnxruntime-node/bin/napi-v6" / system / machine)
    found = [file for folder in folders for file in sorted(folder.glob("libonnxruntime.*"))]
    if not found:
        raise SystemExit("neither Python's package nor Node's has a library for this system")
    shutil.rmtree(work / "lib", ignore_errors=True)
    (work / "lib").mkdir()
    # Programs look for the name that the library was built with, which wheels lengthen.
    name = "libonnxruntime.so.1" if system == "linux" else found[0].name
    shutil.copy(found[0], work / "lib" / name)


def main(work: Path = WORK) -> None:
    """Fetch all of it, and say where it is."""
    if work.is_relative_to(HERE.parents[1]):
        raise SystemExit(f"{work} is in the repository; name a folder elsewhere")
    work.mkdir(parents=True, exist_ok=True)
    fetch_packages(work)
    fetch_headers(work)
    copy_library(work)
    print(f"ready: {work}")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
