"""Ray, loaded on demand, and the environment of its processes.

It sends no usage reports, keeps Python's own print, and stays on this machine if possible.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from queue import SimpleQueue
from typing import Any

from eagerflow import extras
from eagerflow.errors import SessionError
from eagerflow.handlers import raised_here, suppress
from eagerflow.runtime import blas
from eagerflow.settings import set_unless_said, setting

__all__ = [
    "address_of",
    "begin_ray",
    "end_ray",
    "is_loopback",
    "keep_to_this_machine",
    "load_ray",
    "told_by_environment",
]

_QUIET = {"RAY_USAGE_STATS_ENABLED": "0"}
_NEAR = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}  # for Ray's processes; see keep_to_this_machine
BEGIN_SECONDS = 120.0


def load_ray(extra: str, feature: str) -> Any:
    """The module ``ray``; MissingExtraError, with the pip line of the extra, without it.

    An import interrupted by Ctrl-C cannot be repeated: Python keeps some of the modules.
    """
    set_unless_said("RAY_USAGE_STATS_ENABLED", "0")
    set_unless_said("RAY_TQDM_PATCH_PRINT", "0")  # captured code may call print
    call = partial(extras.load, "ray", extra, feature)
    return call() if "ray" in sys.modules else _thread.result(call)


def begin_ray(begin: Callable[[], bool], end: Callable[[], None]) -> bool:
    """The result of ``begin``: whether it has started or joined Ray, which ``end`` undoes.

    Ray takes seconds to start, and leaves processes behind if it is interrupted. So its start
    is completed, and undone if no caller waits for it any more. SessionError if Ray hangs.
    """

    def undo(begun: bool) -> None:
        if begun:
            end()

    try:
        return bool(_thread.result(begin, undo, BEGIN_SECONDS))
    except raised_here(TimeoutError):
        raise SessionError(
            f"Ray has not started within {BEGIN_SECONDS:g} s", hint="start the program again"
        ) from None


def end_ray(end: Callable[[], None], seconds: float) -> None:
    """Call ``end`` to end Ray, before it is started again; gives up on a Ray that hangs."""
    with suppress(TimeoutError):
        _thread.result(end, seconds=seconds)


class _Thread:
    """A thread that makes calls one after the other, without interruption.

    Exceptions in a waiting thread, such as Ctrl-C, do not reach it. It is never replaced, as
    processes started by Ray end with the thread that started them.
    """

    def __init__(self) -> None:
        self.begin_anew()

    def begin_anew(self) -> None:
        """Reset the state to no thread, as in a forked child."""
        self._calls: SimpleQueue[Callable[[], object]] = SimpleQueue()
        self._lock = threading.Lock()
        self._runs = False

    def result(
        self,
        call: Callable[[], Any],
        undo: Callable[[Any], object] = lambda _: None,
        seconds: float | None = None,
    ) -> Any:
        """The result of a call; TimeoutError if it takes more than ``seconds``.

        ``undo`` is called with a result if no caller waits for it any more.
        """
        with self._lock:
            if not self._runs:
                threading.Thread(target=self._serve, name="Ray of eagerflow", daemon=True).start()
                self._runs = True
        done: Future[Any] = Future()
        self._calls.put(partial(_make, call, done, undo))
        try:
            return done.result(seconds)
        except BaseException:
            if not done.cancel() and done.exception() is None:
                self._calls.put(partial(undo, done.result()))
            raise

    def _serve(self) -> None:
        while True:
            self._calls.get()()


def _make(call: Callable[[], Any], done: Future[Any], undo: Callable[[Any], object]) -> None:
    """Make a call, and pass on its result or its error."""
    try:
        result = call()
    except BaseException as error:
        if done.set_running_or_notify_cancel():
            done.set_exception(error)
        return
    if done.set_running_or_notify_cancel():
        done.set_result(result)
    else:
        undo(result)


_thread = _Thread()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_thread.begin_anew)


def told_by_environment(near: bool) -> dict[str, str]:
    """The environment variables for Ray's processes on this machine.

    ``near`` says whether all of them are on this machine.

    The bits of products depend on OpenBLAS's kernels, and a process of Ray cannot choose
    them: Ray starts threads in each before anything is imported. So all use this process's.
    By default, Ray runs its processes at a lower priority than all others.
    """
    kernels = setting(blas.CORE_TYPE) or blas.kernels()
    own = _QUIET | _NEAR if near else _QUIET
    return own | {"RAY_worker_niceness": "0"} | ({blas.CORE_TYPE: kernels} if kernels else {})


def is_loopback(host: str) -> bool:
    """Whether a host, or an address with a port, is only reachable from this machine."""
    return host.startswith("127.") or host.partition(":")[0] == "localhost"


def address_of(address: str, extra: str, feature: str) -> str:
    """The address of a Ray cluster; ``"auto"`` is replaced by the one Ray finds here, if any."""
    if address != "auto":
        return address
    services = extras.load("ray._private.services", extra, feature)
    try:
        return str(services.get_ray_address_from_environment(address, None))
    except raised_here(ConnectionError):  # no Ray cluster runs at the address
        return address


def keep_to_this_machine(near: bool, extra: str, feature: str) -> None:
    """Make Ray use the loopback address, if all of it is ``near``.

    Otherwise it uses the machine's own address instead, and a Ray started here listens on all.
    Ray reads RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER when it is imported, which may be long ago.
    """
    constants = extras.load("ray._private.ray_constants", extra, feature)
    name = constants.ENABLE_RAY_CLUSTERS_ENV_VAR
    far = constants.env_bool(name, sys.platform not in ("win32", "darwin"))
    constants.ENABLE_RAY_CLUSTER = far and not near
