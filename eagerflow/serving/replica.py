"""One process of a deployment: a server's models behind a replica of Ray Serve.

Ray creates the class in its own processes, where eagerflow must be installed. Nothing here needs
Ray until it runs there.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from eagerflow import extras
from eagerflow.errors import EagerflowError
from eagerflow.runtime import threads
from eagerflow.serving.access import Access
from eagerflow.serving.application import application
from eagerflow.serving.batching import Batching
from eagerflow.serving.errors import UnavailableError
from eagerflow.serving.http import JSON, respond
from eagerflow.serving.json_bodies import dumps
from eagerflow.serving.limits import Limits
from eagerflow.serving.metrics import Metrics
from eagerflow.serving.repository import Folder, Models, Policy, Repository
from eagerflow.serving.sequences import SequenceLimits

__all__ = ["Replica", "Settings", "trial"]

# Requests that would change only the replica that receives them.
_ONE_ALONE = re.compile(r"/v2/repository/models/[^/]+/(load|unload|traffic)/*$")
_log = logging.getLogger("eagerflow.serving")


class Settings(NamedTuple):
    """The settings of all replicas of a deployment; ``threads`` is the limit for one operation."""

    models: Models
    policy: Policy | None
    batching: Batching
    limits: Limits
    access: Access
    sequences: SequenceLimits
    numerics: str
    cache: int | None
    poll: float
    threads: int

    def repository(self, metrics: Metrics | None = None) -> Repository:
        """The models, not loaded yet; ArgumentError for paths that do not exist."""
        return Repository(
            self.models,
            self.policy,
            self.batching,
            metrics,
            cache=self.cache,
            sequences=self.sequences,
            numerics=self.numerics,
        )

    @property
    def needs_all(self) -> bool:
        """Whether all models have to load; in a folder, a broken one does not stop the others."""
        models = self.models
        places = models.path if isinstance(models, Folder) else models
        return isinstance(places, Mapping) or not Path(places).is_dir()


class Replica:
    """The models and protocols of ``ef.serving.Server``, as a class for Ray Serve.

    Requests arrive over ASGI. It polls the files as a server does, and reports its metrics to Ray.
    """

    def __init__(self, settings: Settings) -> None:
        _keep_to_node()
        threads.set_thread_count(settings.threads)
        self.settings = settings
        self.metrics = Metrics()
        self.repository = settings.repository(self.metrics)
        self._told = _Mirror()
        self._watching: asyncio.Task[None] | None = None

    async def __serve_build_asgi_app__(self) -> Any:
        """Load the models, and return the ASGI application; called by Ray Serve at the start."""
        await _loaded(self.repository, self.settings.needs_all)
        self._watching = asyncio.create_task(self._watch())
        return _whole(application(self.repository, self.settings.limits, self.settings.access))

    def check_health(self) -> None:
        """Raise if the files are no longer polled; Ray then starts another replica.

        A broken model is no reason: another replica would load the same file.
        """
        if self._watching is not None and self._watching.done():
            raise UnavailableError("the files are no longer looked at")

    async def __del__(self) -> None:
        """Unload the models; Ray Serve calls it after the last request."""
        if self._watching is not None:
            self._watching.cancel()
        await self.repository.drain()

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(self.settings.poll)
            try:
                for line in await self.repository.refresh():
                    _log.warning("%s", line)
                self._told.publish(self.metrics)
            except Exception:  # the replica continues after any error
                _log.exception("the models could not be looked at")


async def _loaded(repository: Repository, needs_all: bool) -> None:
    """Load the models; UnavailableError where a required one is broken."""
    lines = await repository.refresh()
    ready = [bool(model.ready) for model in repository.models.values()]
    if not (all(ready) if needs_all else any(ready)):
        raise UnavailableError(
            "not all models can be served", op="deploy", received="; ".join(lines) or "no models"
        )


def _keep_to_node() -> None:
    """Bind the port of this replica to the node's address alone.

    Ray Serve opens a port for handles of other deployments on all addresses of the machine, and
    unpickles data from any sender. It has no setting for that.
    """
    inside = extras.load("ray.serve._private.replica", "ray-serve", "ef.serving.deploy")
    host = extras.load("ray.util", "ray-serve", "ef.serving.deploy").get_node_ip_address()
    listen = inside.add_port_to_grpc_server
    inside.add_port_to_grpc_server = lambda server, address: listen(
        server, address.replace("[::]", f"[{host}]" if ":" in host else host)
    )


def trial(settings: Settings) -> EagerflowError | None:
    """Try to load the models here: the error, or None."""

    async def tried() -> None:
        repository = settings.repository()
        try:
            await _loaded(repository, settings.needs_all)
        finally:
            await repository.drain()

    try:
        asyncio.run(tried())
    except EagerflowError as error:
        return error
    return None


def _whole(answers: Any) -> Any:
    """The application without the requests that a deployment handles as a whole."""

    async def answer(scope: Any, receive: Any, send: Any) -> None:
        is_one = scope["type"] == "http" and scope["method"] == "POST"
        if not is_one or not _ONE_ALONE.search(scope["path"]):
            await answers(scope, receive, send)
            return
        told = {
            "error": "the deployment has several replicas, and a request would change one of them\n"
            "  try: deploy again, with other models, labels or versions"
        }
        await respond(send, dumps(told), JSON, 501)

    return answer


class _Mirror:
    """Exports the metrics of a replica through Ray, labelled with the replica."""

    def __init__(self) -> None:
        self._ray = extras.load("ray.serve.metrics", "ray-serve", "ef.serving.deploy")
        self._gauges: dict[str, Any] = {}

    def publish(self, metrics: Metrics) -> None:
        """Publish the current numbers; all are gauges, including counters."""
        for family in metrics.registry.collect():
            for sample in family.samples:
                if sample.name.endswith("_created"):
                    continue
                if sample.name not in self._gauges:
                    self._gauges[sample.name] = self._ray.Gauge(
                        sample.name, family.documentation, tuple(sample.labels)
                    )
                self._gauges[sample.name].set(sample.value, sample.labels)
