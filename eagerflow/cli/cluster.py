"""``eagerflow cluster``: a Ray cluster of several machines, started and stopped on each of them.

It runs ``ray start`` with restricted access, and records the process that it has started, so that
it stops no other.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from eagerflow.errors import SessionError
from eagerflow.runtime.ray_library import is_loopback, load_ray, told_by_environment
from eagerflow.settings import for_child

__all__ = ["add_cluster"]

PORT = 6379
START_SECONDS = 120.0
STOP_SECONDS = 30.0
_STATE = Path("~/.ray/eagerflow.json")  # beside Ray's token
_LOG = Path("~/.ray/eagerflow.log")
_RAY = [sys.executable, "-m", "ray.scripts.scripts"]


def add_cluster(commands: Any) -> None:
    """Add the command to the parser's commands."""
    cluster = commands.add_parser(
        "cluster", help="a cluster of several machines: start it, look at it, stop it"
    )
    cluster.add_argument(
        "action",
        choices=[*_ACTIONS],
        metavar="ACTION",
        help=f"one of {', '.join(_ACTIONS)}",
    )
    cluster.add_argument(
        "--host",
        default="127.0.0.1",
        metavar="ADDRESS",
        help="with start: this machine's address, for the others (default: %(default)s)",
    )
    cluster.add_argument(
        "--port", type=int, default=PORT, help="with start: its port (default: %(default)s)"
    )
    cluster.add_argument(
        "--join", metavar="ADDRESS", help="with start: the address of the first machine's cluster"
    )
    cluster.set_defaults(run=lambda options: _ACTIONS[options.action](options))


def _environment(near: bool = True) -> dict[str, str]:
    return for_child({**told_by_environment(near), "RAY_AUTH_MODE": "token"})


def _state() -> dict[str, Any] | None:
    """The cluster that ``start`` has started here, if it is still running."""
    try:
        found: dict[str, Any] = json.loads(_STATE.expanduser().read_text(encoding="utf-8"))
        if began_at(int(found["pid"])) == found["began"]:
            return found
    except (OSError, ValueError, KeyError, TypeError):
        pass
    return None


def began_at(pid: int) -> str | None:
    """The start time of a process, which distinguishes it from a later one with its number."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return file.read().rpartition(")")[2].split()[19]
    except FileNotFoundError:
        if os.path.isdir("/proc/self"):
            return None
    try:
        os.kill(pid, 0)
    except OSError:
        return None
    return "?"


def _start(options: argparse.Namespace) -> int:
    running = _state()
    if running is not None:
        raise SessionError(
            f"a cluster runs here already, at {running['address']}", hint="eagerflow cluster stop"
        )
    load_ray("cluster", "eagerflow cluster")
    if not options.join:
        subprocess.run(
            [*_RAY, "get-auth-token", "--generate"],
            env=_environment(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=True,
        )
    address = options.join or f"{options.host}:{options.port}"
    where = [f"--address={address}"] if options.join else ["--head", f"--port={options.port}"]
    words = ["start", *where, f"--node-ip-address={options.host}", "--disable-usage-stats"]
    if not options.join:
        words.append("--include-dashboard=false")
    log = _LOG.expanduser()
    with open(log, "wb") as output:
        process = subprocess.Popen(
            [*_RAY, *words, "--block"],
            env=_environment(not options.join and is_loopback(options.host)),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    told = {"pid": process.pid, "began": began_at(process.pid), "address": address}
    state = _STATE.expanduser()
    state.write_text(json.dumps(told), encoding="utf-8")
    try:
        _wait(process, log)
    except BaseException:
        process.terminate()
        state.unlink(missing_ok=True)
        raise
    print(f"a Ray cluster runs at {address}")
    print(f'  in Python:          ef.cluster.Cluster({{"worker": 2}}, address="{address}")')
    if not is_loopback(options.host):
        print(f"  on other machines:  eagerflow cluster start --join {address} --host ADDRESS")
        print("  they need the same token: copy ~/.ray/auth_token there")
    return 0


def _wait(process: subprocess.Popen[bytes], log: Path) -> None:
    """Return when Ray has started."""
    end = time.monotonic() + START_SECONDS
    while "Ray runtime started" not in log.read_text(encoding="utf-8", errors="replace"):
        if process.poll() is not None or time.monotonic() > end:
            lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
            raise SessionError(
                "Ray has not started", received="\n    ".join(lines[-5:]) or None, hint=f"see {log}"
            )
        time.sleep(0.1)


def _status(options: argparse.Namespace) -> int:
    running = _state()
    if running is None:
        print("no cluster that eagerflow has started runs here")
        return 1
    print(f"a Ray cluster runs at {running['address']}, pid {running['pid']}", flush=True)
    words = [*_RAY, "status", f"--address={running['address']}"]
    return subprocess.run(words, env=_environment(), stderr=subprocess.DEVNULL).returncode


def _stop(options: argparse.Namespace) -> int:
    running = _state()
    if running is None:
        print("no cluster that eagerflow has started runs here")
        return 1
    pid = running["pid"]
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)  # it stops its child processes
    end = time.monotonic() + STOP_SECONDS
    while _state() is not None:
        if time.monotonic() > end:
            with suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
            break
        time.sleep(0.05)
    _STATE.expanduser().unlink(missing_ok=True)
    print(f"the Ray cluster at {running['address']} has ended on {socket.gethostname()}")
    return 0


_ACTIONS = {"start": _start, "status": _status, "stop": _stop}
