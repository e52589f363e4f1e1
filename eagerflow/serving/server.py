"""A server that runs beside other code, and the one that the command starts."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Any

from eagerflow import extras
from eagerflow.errors import EagerflowError
from eagerflow.serving.access import Access
from eagerflow.serving.application import Limits, application
from eagerflow.serving.batching import Batching
from eagerflow.serving.metrics import Metrics
from eagerflow.serving.protocols import rpc
from eagerflow.serving.repository import Policy, Repository
from eagerflow.serving.sequences import SequenceLimits

__all__ = ["Server"]

_GRACE = 30.0  # seconds for calls of gRPC that are under way when the server stops
Told = Callable[[str], None]


class Server:
    """A server of models over HTTP, in a thread of its own; a context manager.

    ``models`` is a file of a graph (``graph.save``, ``model.export``, ONNX), a folder of models
    with folders of versions, or a mapping of names to files or folders. ``host`` is this machine
    alone, unless told otherwise; ``port=0`` takes a free one, and so does ``grpc_port=0`` for
    gRPC, which None leaves out. ``policy`` says which versions are served, ``batching`` how
    requests are joined, ``limits`` what a request may cost, ``access`` who may ask, ``sequences``
    how much state is kept between requests, for models that have some; files are looked at every
    ``poll`` seconds. ``told`` is called with a line for each change. Raises MissingExtraError
    without the extra ``serving``, ArgumentError for paths that do not exist, and EagerflowError
    for a port that is taken.

    It speaks TensorFlow Serving's REST API (``/v1/models/NAME:predict``) and the Open Inference
    Protocol (``/v2/models/NAME/infer``), over gRPC too.

    >>> from tempfile import TemporaryDirectory
    >>> from urllib.request import urlopen
    >>> graph = ef.capture.trace(lambda x: x * 2.0, ef.TensorSpec(("batch", 2), "float32"))
    >>> with TemporaryDirectory() as folder:
    ...     graph.save(f"{folder}/double.ef")
    ...     with ef.serving.Server(f"{folder}/double.ef", port=0) as server:
    ...         asked = b'{"instances": [[1.0, 3.0]]}'
    ...         urlopen(f"{server.url}/v1/models/double:predict", asked).read()
    b'{"predictions":[[2.0,6.0]]}'
    """

    def __init__(
        self,
        models: str | os.PathLike[str] | Mapping[str, str | os.PathLike[str]],
        *,
        host: str = "127.0.0.1",
        port: int = 8501,
        grpc_port: int | None = None,
        policy: Policy | None = None,
        batching: Batching | None = None,
        limits: Limits | None = None,
        access: Access | None = None,
        sequences: SequenceLimits | None = None,
        poll: float = 1.0,
        told: Told | None = None,
    ) -> None:
        self._uvicorn = extras.load("uvicorn", "serving", "ef.serving")
        self.host = host
        self.port = port
        self.grpc_port = grpc_port
        self._options = models, policy, batching
        self._sequences = (sequences or SequenceLimits()).checked()
        self._limits = limits
        self._access = (access or Access()).checked()
        self._poll = poll
        self._told = told or (lambda line: None)
        self._started = threading.Event()
        self._stopping: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._failed: BaseException | None = None
        self.repository: Repository | None = None

    @property
    def url(self) -> str:
        """The address, such as ``http://127.0.0.1:8501``."""
        kind = "http" if self._access.certificate is None else "https"
        return f"{kind}://{self.host}:{self.port}"

    def start(self) -> Server:
        """Start, and return when all models were loaded or found broken."""
        self._thread = threading.Thread(target=self._run, name="eagerflow-server", daemon=True)
        self._thread.start()
        self._started.wait()
        if self._failed is not None:
            self._thread.join()
            raise self._failed
        return self

    @property
    def is_started(self) -> bool:
        """Whether it listens."""
        return self._started.is_set()

    def ask_to_stop(self) -> None:
        """Let it answer what has come, and end; from any thread or signal handler."""
        if self._loop is not None and self._stopping is not None:
            try:
                self._loop.call_soon_threadsafe(self._stopping.set)
            except RuntimeError:  # it has ended already
                pass

    def stop(self) -> None:
        """Answer what has come, then end."""
        self.ask_to_stop()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def __enter__(self) -> Server:
        return self.start()

    def __exit__(self, *error: Any) -> None:
        self.stop()

    def _run(self) -> None:
        try:
            asyncio.run(self.serve())
        except BaseException as error:
            self._failed = error
        finally:
            self._started.set()

    async def serve(self) -> None:
        """Serve in the running event loop, until ``stop`` or a cancellation."""
        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        repository = self.repository = Repository(*self._options, Metrics(), self._sequences)
        with self._bound() as listening:
            for line in await repository.refresh():
                self._told(line)
            try:
                await self._answer(repository, listening)
            finally:
                await repository.drain()

    async def _answer(self, repository: Repository, listening: socket.socket) -> None:
        """Answer requests until the server is asked to stop."""
        assert self._stopping is not None
        config = self._uvicorn.Config(
            application(repository, self._limits, self._access),
            log_level="warning",
            access_log=False,
            lifespan="off",
            **self._access.transport(),
        )
        server = self._uvicorn.Server(config)
        server.capture_signals = nullcontext  # they are whoever's who starts us
        over_grpc = await self._start_rpc(repository)
        watching = asyncio.create_task(self._watch(repository))
        serving = asyncio.create_task(server.serve(sockets=[listening]))
        stopping = asyncio.create_task(self._stopping.wait())
        try:
            while not server.started and not serving.done():
                await asyncio.sleep(0.001)
            self._started.set()
            await asyncio.wait([serving, stopping], return_when=asyncio.FIRST_COMPLETED)
        finally:
            watching.cancel()
            stopping.cancel()
            server.should_exit = True
            if over_grpc is not None:
                await over_grpc.stop(_GRACE)
            await serving

    async def _start_rpc(self, repository: Repository) -> Any:
        """The server of gRPC; None where no port was given for it."""
        if self.grpc_port is None:
            return None
        address = f"[{self.host}]" if ":" in self.host else self.host
        most = (self._limits or Limits()).max_body
        made, self.grpc_port = await rpc.start(
            repository, f"{address}:{self.grpc_port}", most, self._access
        )
        return made

    def _bound(self) -> socket.socket:
        """The socket that is listened on; ``port`` is the one that it has."""
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        made = socket.socket(
            family, socket.SOCK_STREAM, socket.IPPROTO_TCP
        )  # then nothing is held back
        try:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            made.bind((self.host, self.port))
        except OSError as error:
            made.close()
            raise EagerflowError(
                f"{self.host}:{self.port} cannot be listened on: {error.strerror or error}",
                op="serve",
                hint="another port, or port=0 for a free one",
            ) from None
        self.port = made.getsockname()[1]
        return made

    async def _watch(self, repository: Repository) -> None:
        while True:
            await asyncio.sleep(self._poll)
            try:
                for line in await repository.refresh():
                    self._told(line)
            except (EagerflowError, OSError) as error:
                self._told(f"the models could not be looked at: {error}")
