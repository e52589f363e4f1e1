"""Runs the programs here, as ``python run.py [python] [cpp] [node] [browser]``; all by default.

The network is made first if it is not there. What a program needs is fetched by set_up.py;
where it, or a compiler, Node or a browser is not there, the reason is told.
"""

import functools
import http.server
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from set_up import WORK  # noqa: E402

NOT_SET_UP = "what it needs is not fetched: python examples/elsewhere/set_up.py"
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
QUIET = """--headless --disable-gpu --disable-quic --no-first-run --disable-background-networking
    --disable-component-update --disable-sync --enable-logging=stderr""".split()
SECONDS = 120  # in which a program has to end


def missing(kind: str, work: Path) -> str | None:
    """Why programs of a kind cannot run here, or None."""
    packages = work / "node_modules"
    if kind == "python":
        return None if importlib.util.find_spec("onnxruntime") else "onnxruntime is not installed"
    if kind == "cpp":
        if not (shutil.which("c++") and sys.platform in ("linux", "darwin")):
            return "there is no C++ compiler"
        return None if (work / "lib").exists() else NOT_SET_UP
    if kind == "node":
        if not shutil.which("node"):
            return "Node is not installed"
        return None if (packages / "onnxruntime-node").exists() else NOT_SET_UP
    if not browser_path():
        return "there is no Chromium or Chrome"
    return None if (packages / "onnxruntime-web").exists() else NOT_SET_UP


def browser_path() -> str | None:
    """The browser that is used."""
    return next(filter(None, map(shutil.which, BROWSERS)), None)


def run_python(work: Path, digits: Path) -> str:
    """What the two Python programs print."""
    programs = [HERE / "python" / name for name in ("classify.py", "train.py")]
    return "".join(printed([sys.executable, "-P", p, digits], digits) for p in programs)


def run_cpp(work: Path, digits: Path) -> str:
    """Build the two C++ programs, and give what they print."""
    found = ""
    for name in ("classify", "train"):
        library = next((work / "lib").iterdir())
        build = ["c++", "-std=c++17", "-O2", "-isystem", work / "include", "-o", work / name]
        build += [HERE / f"cpp/{name}.cpp", library, f"-Wl,-rpath,{library.parent}"]
        printed(build, work)
        found += printed([work / name, digits], work)
    return found


def run_node(work: Path, digits: Path) -> str:
    """What the two programs for Node print; they look for packages in the folders above them."""
    shutil.copytree(HERE / "node", work / "node", dirs_exist_ok=True)
    names = ("classify.mjs", "train.mjs")
    return "".join(printed(["node", work / "node" / name, digits], work) for name in names)


def printed(command: list, folder: Path) -> str:
    """What a command prints, which has to succeed."""
    command = [str(part) for part in command]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=SECONDS)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
    return done.stdout


# The browser -------------------------------------------------------------------------------------


class Files(http.server.SimpleHTTPRequestHandler):
    """Serves files without a word."""

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def run_browser(work: Path, digits: Path) -> str:
    """What the page prints in a browser without a window."""
    with tempfile.TemporaryDirectory() as site:
        parts = {"index.html": HERE / "browser/index.html", "digits": digits}
        for name, place in (parts | {"node_modules": work / "node_modules"}).items():
            Path(site, name).symlink_to(place)
        serve = functools.partial(Files, directory=site)
        with http.server.ThreadingHTTPServer(("127.0.0.1", 0), serve) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            try:
                return console(f"http://127.0.0.1:{server.server_port}/")
            finally:
                server.shutdown()


def console(address: str) -> str:
    """What a page writes to the console, up to the line "done"."""
    root = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    lines: list[str] = []
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        command = [browser_path(), *QUIET, *root, f"--user-data-dir={profile}"]
        command += ["--remote-debugging-port=0", address]  # else it ends when the page is there
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as browser:
            timer = threading.Timer(SECONDS, browser.kill)
            timer.start()
            for line in browser.stderr:
                if found := re.search(r'CONSOLE[^"]*"(.*)", source: ', line):
                    lines.append(found[1])
                    if found[1] == "done":
                        break
            timer.cancel()
            browser.terminate()
    if lines[-1:] != ["done"]:
        raise RuntimeError("the page did not end:\n" + "\n".join(lines))
    return "\n".join(lines[:-1]) + "\n"


RUN = {"python": run_python, "cpp": run_cpp, "node": run_node, "browser": run_browser}


def main(*kinds: str) -> None:
    """Run programs of these kinds, and print what they do."""
    digits = WORK / "digits"
    if not (digits / "expected.json").exists():
        print(printed([sys.executable, HERE / "digits.py", digits], HERE))
    for kind in kinds or RUN:
        print(f"== {kind}")
        reason = missing(kind, WORK)
        print(RUN[kind](WORK, digits) if reason is None else f"not run: {reason}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
