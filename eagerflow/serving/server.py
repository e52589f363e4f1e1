"""The server: in a thread beside other code, or in the foreground for the command."""

from __future__ import annotations

import asyncio
import math
import os
import socket
import threading
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import Any

from eagerflow import extras
from eagerflow.errors import ArgumentError, EagerflowError
from eagerflow.serving.access import Access
from eagerflow.serving.access_log import Journal, written
from eagerflow.serving.application import application
from eagerflow.serving.batching import Batching
from eagerflow.serving.connections import connection_class, end_silent
from eagerflow.serving.errors import UnavailableError
from eagerflow.serving.executors import InProcess, Pool
from eagerflow.serving.limits import Limits
from eagerflow.serving.listening import Listener
from eagerflow.serving.metrics import Metrics
from eagerflow.serving.options import Configuration, checked
from eagerflow.serving.processes import WorkerSettings
from eagerflow.serving.protocols.rpc import RpcServer
from eagerflow.serving.repository import Models, Policy, Repository, mark_of
from eagerflow.serving.sequences import SequenceLimits

__all__ = ["Server"]

Told = Callable[[str], None]
_NOT_LOOKED_AT = "the models could not be looked at"


def run_in_loop(work: Coroutine[Any, Any, None]) -> None:
    """Run in a new event loop until done: uvloop's where that is installed."""
    uvloop = extras.load_if_there("uvloop")
    made = None if uvloop is None else uvloop.new_event_loop
    with asyncio.Runner(loop_factory=made) as runner:
        runner.run(work)


class Server:
    """A server of models over HTTP, in a thread of its own; a context manager.

    ``models`` is a file of a graph (``graph.save``, ``model.export``, ONNX), a folder of models
    with folders of versions, or a mapping of names to files, folders or ModelOptions. ``host`` is
    this machine alone by default; ``port=0`` takes a free port, and so does ``grpc_port=0`` for
    gRPC, which None turns off. ``policy`` selects the versions to serve, ``batching`` sets how
    requests are joined, ``limits`` bounds requests and connections, ``access`` sets tokens and TLS,
    ``sequences`` bounds the state between requests, for models with state; files are polled every
    ``poll`` seconds. With ``numerics="exact"`` answers have the bits of eager calls, as those of
    ``ef.function``. ``cache`` is how many bytes of answers each model keeps for equal requests
    (default: none). ``workers`` is the number of computing processes (0: the server itself), or a
    WorkerSettings; models with state are computed by the server. At shutdown it first reports for
    ``leave`` seconds that it is not ready, and still serves; then it refuses connections, and
    pending requests have ``grace`` seconds. ``log`` writes a line for each request, on the standard
    error (``"text"``, ``"json"``) or for handlers of ``logging`` (``"logging"``), and ``trace``
    spans for OpenTelemetry. ``told`` is called with a line for each change. Raises
    MissingExtraError without the extra ``serving``, ArgumentError for paths that do not exist, and
    EagerflowError for a port that is taken.

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
        models: Models,
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
        numerics: str = "fast",
        cache: int | None = None,
        workers: int | WorkerSettings = 0,
        grace: float = 30.0,
        leave: float = 0.0,
        log: str = "off",
        trace: bool = False,
        told: Told | None = None,
    ) -> None:
        self._uvicorn = extras.load("uvicorn", "serving", "ef.serving")
        self.host = host
        self.port = port
        self.grpc_port = grpc_port
        self._options = models, policy, batching
        self._sequences = (sequences or SequenceLimits()).checked()
        self._limits = limits or Limits()
        self._access = (access or Access()).checked()
        self._numerics = checked("numerics", numerics)
        self._cache = cache
        self._poll = checked("poll", poll)
        self._grace = checked("grace", grace)
        self._leave = checked("leave", leave)
        self._log = checked("log", log)
        self._trace = trace
        self._journal = _journal(log, trace)
        self._workers = (
            workers if isinstance(workers, WorkerSettings) else WorkerSettings(workers)
        ).checked()
        self._told = told or (lambda line: None)
        self._started = threading.Event()
        self._stopping: asyncio.Event | None = None
        self._reload_asked = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._failed: BaseException | None = None
        self._file: tuple[Path, Mapping[str, Any]] | None = None
        self._running: Configuration | None = None
        self._answers: Any = None
        self._refusal: Callable[[bytes], bytes | None] = lambda path: None
        self._over_grpc: RpcServer | None = None
        self._written = ExitStack()
        self.repository: Repository | None = None
        self.pool: Pool | None = None

    @classmethod
    def of_file(
        cls, path: str | os.PathLike[str], told: Told | None = None, **options: Any
    ) -> Server:
        """The server of a configuration file; ``options`` override its values.

        They are named as in the file. When the file changes, the server applies the changes; see
        ``reload``. Raises FileFormatError for an invalid file.
        """
        found = Configuration.read(path, options)
        made = cls(**found.arguments(), told=told)
        made._file, made._running = (Path(path), options), found
        return made

    def reload(self) -> list[str]:
        """Read the configuration file again and apply it; returns a line for each change.

        All or nothing: FileFormatError or ArgumentError for an invalid file, and the server
        continues unchanged. Connections stay. Options that cannot change while it runs, such as
        ports and workers, stay as they are, and a line names them.
        """
        if self._loop is None or not self._loop.is_running():
            raise UnavailableError("the server does not run", op="reload")
        return asyncio.run_coroutine_threadsafe(self._reload(), self._loop).result()

    async def _reload(self) -> list[str]:
        if self._file is None or self._running is None:
            raise ArgumentError(
                "the server was not made of a configuration file",
                op="reload",
                hint="ef.serving.Server.of_file(path)",
            )
        assert self.repository is not None
        found, refused = Configuration.read(*self._file).going_on(self._running)
        of = found.arguments()
        journal = _journal(of["log"], of["trace"])
        plan = self.repository.plan(of["models"], of["policy"], of["batching"])
        changed = found.changes(self._running)
        if of["access"] != self._access:
            changed.add("tokens")
        self._running = found
        self._take(of, journal)  # at once: loading a model can take long
        lines = [f"changed: {', '.join(sorted(changed))}"] if changed else []
        if self._over_grpc is not None:
            fixed = ("max_body", "max_connections", "idle_seconds")
            refused += [f"{name} over gRPC" for name in fixed if name in changed]
        if refused:
            lines.append(f"{', '.join(refused)} cannot change while it runs: restart the server")
        lines += await self.repository.configure(plan)
        lines += map(_absent, self.repository.absent())
        try:
            return lines + await self.repository.refresh()
        except OSError as error:  # the other changes have been made
            return [*lines, f"{_NOT_LOOKED_AT}: {error}"]

    def _take(self, of: Mapping[str, Any], journal: Journal | None) -> None:
        """Adopt these arguments, except those of models."""
        assert self.repository is not None
        log = self._log, self._trace
        for name in ("access", "cache", "grace", "leave", "limits", "log", "poll", "trace"):
            setattr(self, f"_{name}", of[name])
        if log != (self._log, self._trace):
            self._journal = journal
            self._written.close()
            self._written.enter_context(written(self._log))
        self.repository.keep_answers(self._cache)
        self._answer_anew()

    def ask_to_reload(self) -> None:
        """Reload the configuration file soon, and report the changes; from any thread."""
        self._reload_asked.set()

    @property
    def url(self) -> str:
        """The address, such as ``http://127.0.0.1:8501``."""
        kind = "http" if self._access.certificate is None else "https"
        return f"{kind}://{self.host}:{self.port}"

    @property
    def asks_for_tokens(self) -> bool:
        """Whether requests have to carry a token."""
        return bool(self._access.tokens)

    def start(self) -> Server:
        """Start, and return when all models are loaded or found broken."""
        self._thread = threading.Thread(target=self._run, name="eagerflow-server", daemon=True)
        self._thread.start()
        self._started.wait()
        if self._failed is not None:
            self._thread.join()
            raise self._failed
        return self

    @property
    def is_started(self) -> bool:
        """Whether it is listening."""
        return self._started.is_set()

    def ask_to_stop(self) -> None:
        """Shut down after pending requests, without waiting; from any thread or signal handler."""
        if self._loop is not None and self._stopping is not None:
            try:
                self._loop.call_soon_threadsafe(self._stopping.set)
            except RuntimeError:  # it has already ended
                pass

    def stop(self) -> None:
        """Finish pending requests, then end."""
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
            run_in_loop(self.serve())
        except BaseException as error:
            self._failed = error
        finally:
            self._started.set()

    async def serve(self) -> None:
        """Serve in the running event loop, until ``stop`` or a cancellation."""
        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        with self._written, self._bound() as listening:
            self._written.enter_context(written(self._log))
            metrics = Metrics()
            pool = self.pool = Pool(self._workers) if self._workers.processes else None
            if pool is not None:
                metrics.watch(pool.workers)
            repository = self.repository = Repository(
                *self._options,
                metrics,
                pool or InProcess,
                self._cache,
                self._sequences,
                self._numerics,
            )
            try:
                await self._serve(listening, repository)
            finally:
                if pool is not None:
                    await pool.close()

    async def _serve(self, listening: socket.socket, repository: Repository) -> None:
        """Load the models, serve requests, and return after the last pending request."""
        for line in [*await repository.refresh(), *map(_absent, repository.absent())]:
            self._told(line)
        try:
            await self._answer(repository, listening)
        finally:
            if self.pool is not None:
                self.pool.is_ending = True
            await repository.drain()

    async def _answer(self, repository: Repository, listening: socket.socket) -> None:
        """Serve requests until the server is asked to stop."""
        assert self._stopping is not None
        self._answer_anew()
        server, listener = self._web_server(repository, listening)
        await self._start_rpc(repository)
        watching = asyncio.create_task(self._watch_models(repository))
        reading = asyncio.create_task(self._watch_configuration())
        serving = asyncio.create_task(server.serve(sockets=[]))  # our Listener accepts connections
        ending = asyncio.create_task(
            end_silent(server.server_state.connections, lambda: self._limits.body_seconds)
        )
        stopping = asyncio.create_task(self._stopping.wait())
        try:
            while not server.started and not serving.done():
                await asyncio.sleep(0.001)
            listener.start()
            self._started.set()
            await asyncio.wait([serving, stopping], return_when=asyncio.FIRST_COMPLETED)
            repository.is_leaving = True
            await asyncio.sleep(self._leave)
        finally:
            for task in (watching, reading, ending, stopping):
                task.cancel()
            await listener.close()
            server.config.timeout_graceful_shutdown = math.ceil(self._grace)
            server.should_exit = True
            if self._over_grpc is not None:
                await self._over_grpc.stop(self._grace)
            await serving

    def _web_server(self, repository: Repository, listening: socket.socket) -> tuple[Any, Listener]:
        """The server of uvicorn, and the Listener that feeds it connections."""
        metrics = repository.metrics
        assert metrics is not None
        config = self._uvicorn.Config(
            # The application is looked up for each request: a reload replaces it.
            lambda scope, receive, send: self._answers(scope, receive, send),
            interface="asgi3",
            log_config=None,  # uvicorn's own would close all handlers of the program
            log_level="warning",
            access_log=False,
            proxy_headers=False,  # the addresses of clients are not used
            server_header=False,
            lifespan="off",
            ws="none",
            **self._access.transport(),
        )
        config.load()
        server = self._uvicorn.Server(config)
        server.capture_signals = nullcontext  # signals belong to the program that starts us
        protocol = connection_class(config.http_protocol_class, lambda path: self._refusal(path))
        state = server.server_state
        listener = Listener(
            listening,
            lambda: protocol(config=config, server_state=state, app_state={}),
            lambda: self._limits,
            config.ssl,
            refused=metrics.refuse_connection,
        )
        metrics.count_places("connections", "Connections over HTTP", listener.places)
        most = listener.places.most
        if most < self._limits.max_connections:
            self._told(f"{most:.0f} connections at most: the process may not open more files")
        return server, listener

    def _answer_anew(self) -> None:
        """Apply the current settings to requests from now on."""
        assert self.repository is not None
        answers = application(self.repository, self._limits, self._access)
        if self._journal is None:
            self._answers, self._refusal = answers, answers.refusal
        else:  # it logs all
            self._answers, self._refusal = self._journal.around(answers), lambda path: None
        if self._over_grpc is not None:
            self._over_grpc.change(self._access, self._journal)

    async def _start_rpc(self, repository: Repository) -> None:
        """Start the gRPC server, if it has a port."""
        if self.grpc_port is None:
            return
        address = f"[{self.host}]" if ":" in self.host else self.host
        made = RpcServer(repository, lambda: self._limits, self._access, self._journal)
        self.grpc_port = await made.start(f"{address}:{self.grpc_port}")
        self._over_grpc = made

    def _bound(self) -> socket.socket:
        """The listening socket; ``port`` is set to its port."""
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        made = socket.socket(
            family, socket.SOCK_STREAM, socket.IPPROTO_TCP
        )  # so that asyncio sets TCP_NODELAY
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

    async def _watch_models(self, repository: Repository) -> None:
        while True:
            await asyncio.sleep(self._poll)
            await self._tell(repository.refresh(), _NOT_LOOKED_AT)

    async def _watch_configuration(self) -> None:
        marks = self._marks()
        while True:
            await asyncio.sleep(self._poll)
            new = self._marks()
            if self._reload_asked.is_set() or (new != marks and new[0] is not None):
                self._reload_asked.clear()
                marks = new
                await self._tell(self._reload(), "the configuration is as it was")

    def _marks(self) -> list[Any]:
        """Identify the contents of the configuration file and of its token sources."""
        if self._file is None or self._running is None:
            return []
        tokens = self._running.values.get("tokens")
        return [mark_of(path) for path in (self._file[0], tokens) if path is not None]

    async def _tell(self, changes: Awaitable[list[str]], failed: str) -> None:
        """Report a line for each change, or the reason of a failure."""
        try:
            for line in await changes:
                self._told(line)
        except Exception as error:  # the server continues after any error
            self._told(f"{failed}: {error}")


def _journal(log: str, trace: bool) -> Journal | None:
    """The journal of requests; None if logging is off."""
    return Journal(trace) if trace or log != "off" else None


def _absent(name: str) -> str:
    return f"{name}: it has options, but the folder has no model of this name yet"
