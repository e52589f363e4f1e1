"""Serving on several machines: a deployment on Ray Serve.

Ray Serve starts and stops replicas, balances requests, scales with load, rolls out changes, and
replaces dead replicas. This module only configures it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from eagerflow import extras
from eagerflow.errors import ArgumentError, EagerflowError
from eagerflow.runtime.ray_library import (
    address_of,
    begin_ray,
    is_loopback,
    keep_to_this_machine,
    load_ray,
    told_by_environment,
)
from eagerflow.serving.access import Access
from eagerflow.serving.batching import Batching
from eagerflow.serving.errors import UnavailableError
from eagerflow.serving.limits import Limits
from eagerflow.serving.options import checked
from eagerflow.serving.replica import Replica, Settings, trial
from eagerflow.serving.repository import Folder, ModelOptions, Models, Policy
from eagerflow.serving.sequences import SequenceLimits
from eagerflow.settings import changed, setting

__all__ = ["Deployment", "Scaling", "deploy"]

_NEEDS = "ray-serve", "ef.serving.deploy"  # the extra, and the feature that needs it
_LOOKS = 0.1  # seconds between two polls of Ray Serve's state
_ATTEMPTS = 3  # to start a replica, before a deployment has failed
_SURGE = 25  # percent of additional replicas during a roll-out


class Scaling(NamedTuple):
    """Autoscaling: the number of replicas follows the number of requests in flight.

    Ray Serve aims at ``ongoing`` requests in flight for each, adds replicas when there are more for
    ``up_seconds``, and takes them away when there are fewer for ``down_seconds``.

    >>> ef.serving.Scaling(max_replicas=8).min_replicas
    1
    """

    min_replicas: int = 1
    max_replicas: int = 4
    ongoing: float = 16.0
    up_seconds: float = 10.0
    down_seconds: float = 120.0

    def checked(self) -> Scaling:
        """These settings, validated; ArgumentError for numbers out of range."""
        counts = self.min_replicas, self.max_replicas
        if not (all(type(n) is int for n in counts) and 1 <= counts[0] <= counts[1]):
            raise ArgumentError(
                f"{counts[0]!r} to {counts[1]!r} are not numbers of replicas",
                op="deploy",
                argument="replicas",
                expected="1 <= min_replicas <= max_replicas",
            )
        times = self.up_seconds, self.down_seconds
        if not (_is_number(self.ongoing) and self.ongoing > 0 and all(map(_is_number, times))):
            raise ArgumentError(
                "the numbers of scaling are positive",
                op="deploy",
                argument="replicas",
                received=repr(self),
            )
        return self

    def told(self) -> dict[str, Any]:
        """The options of Ray Serve's autoscaling."""
        return {
            "min_replicas": self.min_replicas,
            "max_replicas": self.max_replicas,
            "target_ongoing_requests": self.ongoing,
            "upscale_delay_s": self.up_seconds,
            "downscale_delay_s": self.down_seconds,
        }


class Deployment:
    """A deployment by its name, on the Ray cluster at ``address``; a context manager.

    ``address`` is as for ``deploy``, which makes one. ``close`` deletes the deployment; without it,
    a deployment on an existing cluster outlives this program. Raises UnavailableError where no
    deployment of the name runs.

    >>> deployed = ef.serving.Deployment("eagerflow", address="auto")  # doctest: +SKIP
    >>> deployed.status()["replicas"]  # doctest: +SKIP
    {'RUNNING': 2}
    """

    def __init__(self, name: str, *, address: str | None = None) -> None:
        self.name = name
        self._owns_ray = connect(address)
        self._serve = _serve()
        try:
            self._application()
            found = _listened_on()
            assert found is not None  # an application runs there
            self.host, self.port, kind = found
        except BaseException:
            self._leave()
            raise
        self.url = f"{kind}://{self.host}:{self.port}"
        """The address of the deployment, such as ``http://127.0.0.1:8501``."""

    def status(self) -> dict[str, Any]:
        """The status from Ray Serve: the state, a message, and the number of replicas by state.

        Raises UnavailableError where the deployment is gone.
        """
        told = self._application()
        states: dict[str, int] = {}
        messages = [told.message]
        for part in told.deployments.values():
            states |= part.replica_states
            messages.append(part.message)
        return {
            "state": str(told.status.value),
            "message": "\n".join(filter(None, messages)),
            "replicas": states,
        }

    def close(self) -> None:
        """Finish pending requests, delete the deployment, and stop Ray if it was started here."""
        if _ray().is_initialized() and self.name in self._serve.status().applications:
            self._serve.delete(self.name)
        self._leave()

    def __enter__(self) -> Deployment:
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()

    def _application(self) -> Any:
        there = self._serve.status().applications if _ray().is_initialized() else {}
        found = there.get(self.name)
        if found is None:
            raise UnavailableError(f"there is no deployment {self.name!r}", op="deploy")
        return found

    def _leave(self) -> None:
        if self._owns_ray:
            self._serve.shutdown()
            _ray().shutdown()
            self._owns_ray = False


def deploy(
    models: Models,
    *,
    name: str = "eagerflow",
    address: str | None = None,
    host: str = "127.0.0.1",
    port: int = 8501,
    prefix: str = "/",
    replicas: int | Scaling = 1,
    cpus: float = 1.0,
    policy: Policy | None = None,
    batching: Batching | None = None,
    limits: Limits | None = None,
    access: Access | None = None,
    sequences: SequenceLimits | None = None,
    numerics: str = "fast",
    cache: int | None = None,
    poll: float = 1.0,
    grace: float = 30.0,
    wait: float = 120.0,
) -> Deployment:
    """Serve models by replicas on a Ray cluster, or roll out a change of a deployment.

    ``models``, ``policy``, ``batching``, ``limits``, ``access``, ``sequences``, ``numerics``,
    ``cache`` and ``poll`` are as for ``Server``; the paths are read where the replicas run.
    ``address`` is a cluster's (``"auto"``, ``"host:6379"``); None is the one that this process is
    connected to, that of ``RAY_ADDRESS``, or a new one on this machine. ``host``, ``port`` and the
    access's certificate are those of Ray Serve, which has one of each; ``prefix`` distinguishes
    deployments that share them. ``replicas`` is a number, or a Scaling with load; each reserves
    ``cpus``. A stopping replica has ``grace`` seconds for its pending requests.

    A deployment of the same ``name`` is changed without losing requests: the models are tried
    first, then new replicas are started beside the old ones, and replace them when they are ready.
    Returns when they are, and raises UnavailableError after ``wait`` seconds, ArgumentError for
    missing paths and invalid settings, FileFormatError for a missing certificate, MissingExtraError
    without the extra ``ray-serve``.

    Source: Ray Serve.

    >>> deployed = ef.serving.deploy("models/digits.ef", replicas=2)  # doctest: +SKIP
    >>> deployed.url  # doctest: +SKIP
    'http://127.0.0.1:8501'
    """
    _check_numbers(port, cpus=cpus, wait=wait)
    batching, access = (batching or Batching()).checked(), (access or Access()).checked()
    options = _options(replicas, cpus, batching, checked("grace", grace))
    settings = Settings(
        _absolute(models),
        policy,
        batching,
        limits or Limits(),
        Access(access.tokens),  # the certificate is shown by Ray Serve
        (sequences or SequenceLimits())._replace(between_requests=False).checked(),
        checked("numerics", numerics),
        cache,
        checked("poll", poll),
        max(1, int(cpus)),
    )
    owns_ray = connect(address)
    try:
        _try(settings)
        _listen(host, port, access)
        _run(name, prefix, settings, options)
        _until_running(name, wait)
        made = Deployment(name)
    except BaseException:
        if owns_ray:
            _serve().shutdown()
            _ray().shutdown()
        raise
    made._owns_ray = owns_ray
    return made


def _options(
    replicas: int | Scaling, cpus: float, batching: Batching, grace: float
) -> dict[str, Any]:
    """The options of the replicas for Ray Serve; ArgumentError for numbers out of range."""
    scaling = replicas if isinstance(replicas, Scaling) else Scaling(replicas, replicas)
    return {
        "autoscaling_config": scaling.checked().told(),
        "ray_actor_options": {"num_cpus": cpus},
        "max_ongoing_requests": batching.max_queue,
        "max_queued_requests": batching.max_queue,
        "max_surge_percent": _SURGE,
        "max_constructor_retry_count": _ATTEMPTS,
        "graceful_shutdown_timeout_s": grace,
    }


def _check_numbers(port: int, **positive: float) -> None:
    for argument, value in positive.items():
        if not (_is_number(value) and value > 0):
            raise ArgumentError(f"{value!r} is not positive", op="deploy", argument=argument)
    if type(port) is not int or not 0 < port < 1 << 16:
        raise ArgumentError(f"{port!r} is not a port", op="deploy", argument="port")


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and 0 <= value < float("inf")


def _absolute(models: Models) -> Models:
    """The models, with absolute paths."""
    if isinstance(models, Folder):
        return models._replace(path=Path(models.path).absolute())
    if not isinstance(models, Mapping):
        return Path(models).absolute()
    found: dict[str, ModelOptions] = {}
    for name, given in models.items():
        options = given if isinstance(given, ModelOptions) else ModelOptions(given)
        found[str(name)] = options._replace(path=Path(options.path).absolute())
    return found


# Ray ----------------------------------------------------------------------------------------------


def _ray() -> Any:
    return load_ray(*_NEEDS)


def _serve() -> Any:
    found = extras.load("ray.serve", *_NEEDS)
    logging.getLogger("ray.serve").setLevel(logging.WARNING)  # it logs each call at INFO
    return found


def connect(address: str | None) -> bool:
    """Connect to a cluster; True if it was started here, and ends with this program."""
    ray = _ray()
    given = address or setting("RAY_ADDRESS")
    wanted = None if ray.is_initialized() or not given else address_of(given, *_NEEDS)
    return begin_ray(partial(_begin, wanted), ray.shutdown) and not wanted


def _begin(wanted: str | None) -> bool:
    """Join the requested Ray cluster, or start one; False if already connected."""
    ray = _ray()
    if ray.is_initialized():
        return False
    options: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": False}
    near = not wanted or is_loopback(wanted)
    keep_to_this_machine(near, *_NEEDS)
    if not wanted:
        options |= {"include_dashboard": False, "_node_ip_address": "127.0.0.1"}
    try:
        with changed(told_by_environment(near)):
            ray.init(wanted or "local", **options)  # None would try an earlier cluster
    except (ConnectionError, ValueError) as error:
        raise EagerflowError(
            f"Ray cannot be reached: {error}", op="deploy", argument="address"
        ) from None
    return True


def _try(settings: Settings) -> None:
    """Load the models once where the replicas run, so that a broken one changes nothing."""
    ray = _ray()
    error = ray.get(ray.remote(num_cpus=0, max_retries=0)(trial).remote(settings))
    if error is not None:
        raise error


def _listened_on() -> tuple[str, int, str] | None:
    """Host, port and scheme of Ray Serve's address; None if it does not run."""
    # No public function returns them; Serve's own command uses the same client.
    context = extras.load("ray.serve.context", *_NEEDS)
    client = context._get_global_client(raise_if_no_controller_running=False)
    if client is None:
        return None
    found = client.http_config
    return found.host, found.port, "https" if found.ssl_certfile else "http"


def _listen(host: str, port: int, access: Access) -> None:
    """Start Ray Serve; ArgumentError if it listens elsewhere already."""
    found = _listened_on()
    kind = "http" if access.certificate is None else "https"
    if found is None:
        files = {"ssl_certfile": access.certificate, "ssl_keyfile": access.key}
        try:
            _serve().start(
                http_options={"host": host, "port": port}
                | {key: str(file) for key, file in files.items() if file is not None},
                logging_config={"log_level": "WARNING", "enable_access_log": False},
            )
        except (_ray().exceptions.RayError, TimeoutError) as error:
            _serve().shutdown()
            raise EagerflowError(
                f"{host}:{port} cannot be listened on",
                op="deploy",
                argument="port",
                received=str(getattr(error, "cause", error)).strip().splitlines()[-1],
            ) from None
    elif found != (host, port, kind):
        raise ArgumentError(
            "Ray Serve listens already, and has one address for all deployments",
            op="deploy",
            argument="port",
            received=f"{kind}://{host}:{port}",
            expected=f"{found[2]}://{found[0]}:{found[1]}",
        )


def _run(name: str, prefix: str, settings: Settings, options: Mapping[str, Any]) -> None:
    """Submit the application to Ray Serve."""
    serve = _serve()
    made = serve.deployment(serve.ingress()(Replica), name="models", **options)
    target = serve.RunTarget(made.bind(settings), name, prefix)
    try:
        serve.run_many(
            [target],
            wait_for_ingress_deployment_creation=False,
            wait_for_applications_running=False,
        )
    except serve.exceptions.RayServeException as error:  # as for a prefix that is taken
        told = str(getattr(error, "cause", error))
        raise ArgumentError(told, op="deploy", argument=name) from None


def _until_running(name: str, seconds: float) -> None:
    """Wait until the new replicas answer; UnavailableError if they do not."""
    serve = _serve()
    last = time.monotonic() + seconds
    while True:
        found = serve.status().applications[name]
        state = str(found.status.value)
        if state == "RUNNING":
            return
        if state in ("DEPLOY_FAILED", "UNHEALTHY") or time.monotonic() > last:
            told = [found.message, *(part.message for part in found.deployments.values())]
            raise UnavailableError(
                f"{name!r} is {state} after {seconds:g} s at most",
                op="deploy",
                received="\n".join(filter(None, told)) or None,
                hint="a roll-out needs room for one more replica, "
                "and a running deployment answers as before",
            )
        time.sleep(_LOOKS)
