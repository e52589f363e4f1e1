"""Ray, loaded for what needs it, and what its processes are told.

It tells nobody of its use, leaves Python's own print, and keeps to this machine where it can.
"""

from __future__ import annotations

import sys
from typing import Any

from eagerflow import extras
from eagerflow.runtime import blas
from eagerflow.settings import set_unless_said, setting

__all__ = ["address_of", "is_loopback", "keep_to_this_machine", "load_ray", "told_by_environment"]

_QUIET = {"RAY_USAGE_STATS_ENABLED": "0"}
_NEAR = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}  # for Ray's processes; see keep_to_this_machine


def load_ray(extra: str, feature: str) -> Any:
    """The module ``ray``; MissingExtraError, with the pip line of the extra, without it."""
    set_unless_said("RAY_USAGE_STATS_ENABLED", "0")
    set_unless_said("RAY_TQDM_PATCH_PRINT", "0")  # captured code may call print
    return extras.load("ray", extra, feature)


def told_by_environment(near: bool) -> dict[str, str]:
    """What Ray's processes on this machine are told by their environment.

    ``near`` says whether all of them are on this one.

    Products have other bits with other kernels of OpenBLAS, and a process of Ray's cannot choose
    them: Ray has threads of its own in each before anything is imported. So all take this one's.
    Unless told otherwise, Ray lets whatever else there is run before its processes.
    """
    kernels = setting(blas.CORE_TYPE) or blas.kernels()
    own = _QUIET | _NEAR if near else _QUIET
    return own | {"RAY_worker_niceness": "0"} | ({blas.CORE_TYPE: kernels} if kernels else {})


def is_loopback(host: str) -> bool:
    """Whether a host, or an address with a port, can be reached from this machine alone."""
    return host.startswith("127.") or host.partition(":")[0] == "localhost"


def address_of(address: str, extra: str, feature: str) -> str:
    """The address of a Ray cluster, where ``"auto"`` is the one that Ray finds here, if any."""
    if address != "auto":
        return address
    services = extras.load("ray._private.services", extra, feature)
    try:
        return str(services.get_ray_address_from_environment(address, None))
    except ConnectionError:  # which says to who wants to join what is not there
        return address


def keep_to_this_machine(near: bool, extra: str, feature: str) -> None:
    """Let Ray take the loopback address for what it is, where all of it is ``near``.

    Else it takes the machine's own in place of it, and a Ray that is started here listens on all.
    What RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER says is read when Ray is imported, which may be long ago.
    """
    constants = extras.load("ray._private.ray_constants", extra, feature)
    name = constants.ENABLE_RAY_CLUSTERS_ENV_VAR
    far = constants.env_bool(name, sys.platform not in ("win32", "darwin"))
    constants.ENABLE_RAY_CLUSTER = far and not near
