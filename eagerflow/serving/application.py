"""The HTTP application: routes from the protocols to the models of a repository."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from eagerflow.errors import EagerflowError
from eagerflow.serving import openapi, page
from eagerflow.serving.access import Access
from eagerflow.serving.batching import Batcher
from eagerflow.serving.errors import BusyError, UnavailableError, status_of
from eagerflow.serving.generation import Generation
from eagerflow.serving.http import (
    JSON,
    MAX_KEPT_PATH,
    MAX_KEPT_PATHS,
    ClientGoneError,
    Deadline,
    HttpRequest,
    Router,
    lifespan,
    respond,
)
from eagerflow.serving.json_bodies import dumps, loads
from eagerflow.serving.limits import Limits
from eagerflow.serving.protocols import arrays, events, generate, inference, tensorflow, triton
from eagerflow.serving.protocols.encodings import decoded
from eagerflow.serving.repository import Model, Repository
from eagerflow.serving.routes import Answering

__all__ = ["application"]

_OPEN = ("/v2/health/live", "/v2/health/ready")  # open to all: they reveal nothing of models
_ASKS = {"www-authenticate": 'Basic realm="eagerflow", charset="UTF-8"'}  # a browser then asks
SMALL_BODY = 1 << 16  # smaller bodies are read before routing
CLIENT_GONE = 499  # the status that is logged for a client that disconnected before its response
_log = logging.getLogger("eagerflow.serving")


def application(
    repository: Repository, limits: Limits | None = None, access: Access | None = None
) -> Any:
    """The ASGI application that serves the models of a repository."""
    return _Application(repository, limits or Limits(), (access or Access()).checked())


class _Application:
    """An ASGI application that routes a path to its endpoint, and sends its response or its error.

    There is nothing between the server and the endpoints, since a small model takes a tenth of
    the time that a request does.
    """

    def __init__(self, repository: Repository, limits: Limits, access: Access) -> None:
        self.repository = repository
        self.access = access
        self._endpoints = Endpoints(repository, limits)
        self._router = Router(
            (method, path, (endpoint, form, path not in _OPEN))
            for method, path, endpoint, form in self._endpoints.table()
        )
        self._asked_for = lru_cache(MAX_KEPT_PATHS)(self._asks_for)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await lifespan(receive, send)
                return
            raise UnavailableError(f"{scope['type']} is not supported")
        target, named, allowed = self._router.find(scope["method"], scope["path"])
        request = HttpRequest(scope, receive, named)
        if target is None:
            await _refuse_path(request, allowed, send)
            return
        endpoint, form, is_guarded = target
        try:
            if is_guarded and self.access.tokens:
                self.access.check(request.header("authorization"))
            body, headers = await endpoint(request)
        except ClientGoneError:
            await respond(send, b"", {}, CLIENT_GONE)
        except Exception as error:
            await self._refuse(request, error, form, send)
        else:
            if isinstance(body, bytes):
                await respond(send, body, headers)
            else:
                await body(scope, receive, send)

    def refusal(self, path: bytes) -> bytes | None:
        """The body of the response to a POST that is refused only as the queue is full, or None.

        None wherever the request has to be read: an unusual path, a model with a cache or several
        serving versions, and a server that requires tokens.
        """
        asked = None if self.access.tokens or len(path) > MAX_KEPT_PATH else self._asked_for(path)
        if asked is None:
            return None
        named, form = asked
        model = self.repository.models.get(named["model"])
        if model is None or model.cache is not None or model.traffic.split:
            return None
        try:
            model.batcher(*_version_and_label(named)).check_room()
        except BusyError as error:
            if self.repository.metrics is not None:
                self.repository.metrics.refuse(model.name, error)
            return dumps(form(error))
        except EagerflowError:
            return None
        return None

    def _asks_for(self, path: bytes) -> tuple[Mapping[str, str], Any] | None:
        """The parameters in the path of a computing request, and its error format."""
        if not path.isascii() or b"%" in path:
            return None
        target, named, _ = self._router.find("POST", path.partition(b"?")[0].decode())
        if target is None or target[0] not in self._endpoints.computing():
            return None
        return named, target[1]

    async def _refuse(self, request: HttpRequest, error: Exception, form: Any, send: Any) -> None:
        """Send an error response in the protocol's format."""
        status = status_of(error)
        if self.repository.metrics is not None:
            name = request.named.get("model", "")
            self.repository.metrics.refuse(name if name in self.repository.models else "", error)
        if status == 500:
            _log.exception("%s %s failed", request.method, request.path)
        await respond(send, dumps(form(error)), JSON | _ASKS if status == 401 else JSON, status)


async def _refuse_path(request: HttpRequest, allowed: Sequence[str], send: Any) -> None:
    """Respond with 404, or with 405 where other methods are allowed."""
    why = "Method Not Allowed" if allowed else "Not Found"
    told = {"error": f"{request.method} {request.path[:200]}: {why}"}
    headers = JSON | {"allow": ", ".join(allowed)} if allowed else JSON
    await respond(send, dumps(told), headers, 405 if allowed else 404)


def _version_and_label(named: Mapping[str, str]) -> tuple[int | None, str | None]:
    """The version and the label that a path names."""
    version = named.get("version")
    return None if version is None else inference.number(version), named.get("label")


class Endpoints:
    """The handlers of the routes, each of which returns a body and its headers."""

    def __init__(self, repository: Repository, limits: Limits) -> None:
        self.repository = repository
        self.limits = limits
        self._deadline = Deadline(limits.body_seconds)

    def table(self) -> list[tuple[str, str, Any, Any]]:
        """Method, path, function and error format of each route."""
        own, other = tensorflow.error, inference.error
        rows = []
        for place in ("", "/versions/{version}", "/labels/{label}"):
            path = "/v1/models/{model}" + place
            rows += [
                ("POST", path + ":predict", self.predict, own),
                ("POST", path + ":classify", self.classify, own),
                ("POST", path + ":regress", self.regress, own),
                ("GET", path + "/metadata", self.metadata, own),
                ("GET", path, self.status, own),
            ]
        rows += [
            ("GET", "/", self.page, other),
            ("GET", "/figures", self.figures, other),
            ("GET", "/metrics", self.metrics, other),
            ("GET", "/openapi.json", self.openapi, other),
            ("GET", "/v2", self.server, other),
            ("GET", "/v2/models/stats", self.all_statistics, other),
            ("GET", "/v2/health/live", self.live, other),
            ("GET", "/v2/health/ready", self.ready, other),
            ("POST", "/v2/repository/index", self.index, other),
            ("POST", "/v2/repository/models/{model}/load", self.load, other),
            ("POST", "/v2/repository/models/{model}/unload", self.unload, other),
            ("GET", "/v2/repository/models/{model}/traffic", self.traffic, other),
            ("POST", "/v2/repository/models/{model}/traffic", self.direct, other),
        ]
        for place in ("", "/versions/{version}"):
            path = "/v2/models/{model}" + place
            rows += [
                ("POST", path + "/infer", self.infer, other),
                ("POST", path + "/generate", self.generate, other),
                ("POST", path + "/generate_stream", self.generate_stream, other),
                ("GET", path + "/ready", self.model_ready, other),
                ("GET", path + "/config", self.config, other),
                ("GET", path + "/stats", self.statistics, other),
                ("GET", path, self.model_metadata, other),
            ]
        return rows

    def computing(self) -> tuple[Any, ...]:
        """The handlers that run a model."""
        return (
            self.predict,
            self.classify,
            self.regress,
            self.infer,
            self.generate,
            self.generate_stream,
        )

    # Shared by all handlers ---------------------------------------------------------------------

    def named(self, request: HttpRequest) -> tuple[Model, int | None, str | None]:
        """The model, version and label that a request's path names."""
        model = self.repository.model(request.named["model"])
        return model, *_version_and_label(request.named)

    def batcher(self, request: HttpRequest) -> Batcher:
        """The version that a request's path names."""
        model, version, label = self.named(request)
        return model.batcher(version, label)

    async def asked(self, request: HttpRequest) -> tuple[Answering, bytes]:
        """The batcher for the request, and the whole body of the request.

        It is looked up once the body has arrived: a version may be unloaded meanwhile, but not
        while it has requests pending. BusyError where its queue is full.
        """
        model, version, label = self.named(request)
        if request.size is None or request.size > SMALL_BODY:
            model.batcher(version, label)  # refused before the body is read
        body = await self.body(request)
        found = model.next(version, label, request.header)
        found.check_room()
        return found, body

    async def body(self, request: HttpRequest) -> bytes:
        """The whole body; TooLargeError or LateError for one beyond the limits."""
        most = self.limits.max_body
        sent = await request.body(most, self._deadline)
        return decoded(sent, request.header("content-encoding"), most)

    # TensorFlow Serving --------------------------------------------------------------------------

    async def predict(self, request: HttpRequest) -> Any:
        batcher, body = await self.asked(request)
        told = loads(body)
        batcher = tensorflow.asked_for(told, batcher)
        asked = tensorflow.predict(told, batcher.version.signature)
        found = await batcher.run(asked.inputs)
        return dumps(tensorflow.prediction(found, asked.by_row), found.values()), JSON

    async def _examples(self, request: HttpRequest, kind: str) -> Any:
        batcher, body = await self.asked(request)
        told = loads(body)
        batcher = tensorflow.asked_for(told, batcher)
        asked = tensorflow.examples(told, batcher.version.signature)
        found = await batcher.run(asked.inputs)
        return dumps(tensorflow.example_answer(found, kind), found.values()), JSON

    async def classify(self, request: HttpRequest) -> Any:
        return await self._examples(request, "classify")

    async def regress(self, request: HttpRequest) -> Any:
        return await self._examples(request, "regress")

    async def status(self, request: HttpRequest) -> Any:
        given = request.named
        model = self.repository.model(given["model"])
        version = None if "version" not in given else inference.number(given["version"])
        if "label" in given:
            version = model.batcher(label=given["label"]).version.number
        return dumps(tensorflow.status(model, version)), JSON

    async def metadata(self, request: HttpRequest) -> Any:
        return dumps(tensorflow.metadata(self.batcher(request))), JSON

    # The Open Inference Protocol -----------------------------------------------------------------

    async def infer(self, request: HttpRequest) -> Any:
        batcher, body = await self.asked(request)
        form = arrays.form_of(request.header("content-type"))
        if form is None:
            asked = inference.request(body, request.header(inference.HEADER))
        else:
            named = batcher.by_signature(request.query.get("signature_name"))
            asked = arrays.request(
                body, form, named.version.signature, request.query, self.limits.max_body
            )
        is_named = "version" in request.named
        version, found = await inference.infer(asked, batcher, is_named)
        form = arrays.wanted_form(request.header("accept"), form, len(found))
        if form is not None:
            return arrays.write(found, form), {"content-type": form}
        body, length = inference.answer(asked, version.name, version.number, found)
        if length is None:
            return body, JSON
        return body, {
            "content-type": "application/octet-stream",
            inference.HEADER: str(length),
        }

    async def generation(self, request: HttpRequest) -> tuple[Generation, generate.Asked]:
        """The generation of a request, started."""
        batcher, body = await self.asked(request)
        asked = generate.request(loads(body), batcher.version)
        assert isinstance(batcher, Batcher)  # neither a cache nor a shadow comes before state
        made = Generation(batcher, asked.generation)
        await events.unless_gone(request.receive, made.start())
        return made, asked

    async def generate(self, request: HttpRequest) -> Any:
        made, asked = await self.generation(request)
        try:
            tokens = await events.unless_gone(request.receive, made.all_tokens())
            return dumps(generate.answer(asked, made, tokens)), JSON
        finally:
            made.end()

    async def generate_stream(self, request: HttpRequest) -> Any:
        made, asked = await self.generation(request)
        told = generate.events(asked, made)
        return events.EventStream(told, made.end, self.limits.heartbeat), {}

    async def page(self, request: HttpRequest) -> Any:
        return page.page(self.repository)

    async def figures(self, request: HttpRequest) -> Any:
        return dumps(page.figures(self.repository)), JSON

    async def metrics(self, request: HttpRequest) -> Any:
        metrics = self.repository.metrics
        if metrics is None:
            raise UnavailableError("this server has no metrics")
        return metrics.text(), {"content-type": metrics.content_type}

    async def openapi(self, request: HttpRequest) -> Any:
        routes = [(method, path, made.__name__) for method, path, made, _ in self.table()]
        return dumps(openapi.description(routes)), JSON

    async def server(self, request: HttpRequest) -> Any:
        return dumps(inference.server()), JSON

    async def live(self, request: HttpRequest) -> Any:
        return b'{"live":true}', JSON

    async def ready(self, request: HttpRequest) -> Any:
        if not self.repository.is_ready:
            raise UnavailableError("models are loading")
        return b'{"ready":true}', JSON

    async def index(self, request: HttpRequest) -> Any:
        asked = await self.body(request)
        told = loads(asked) if asked else {}
        ready = isinstance(told, dict) and told.get("ready") is True
        return dumps(inference.index(self.repository, ready)), JSON

    async def load(self, request: HttpRequest) -> Any:
        await self.repository.load(request.named["model"])
        return b"{}", JSON

    async def unload(self, request: HttpRequest) -> Any:
        await self.repository.unload(request.named["model"])
        return b"{}", JSON

    async def traffic(self, request: HttpRequest) -> Any:
        return dumps(self.repository.model(request.named["model"]).told()), JSON

    async def direct(self, request: HttpRequest) -> Any:
        told = loads(await self.body(request))
        name = request.named["model"]
        model = await self.repository.direct(name, lambda model: model.changed(told))
        return dumps(model.told()), JSON

    async def config(self, request: HttpRequest) -> Any:
        return dumps(triton.config(self.batcher(request))), JSON

    async def statistics(self, request: HttpRequest) -> Any:
        model, version, _ = self.named(request)
        return dumps(triton.statistics([model], version)), JSON

    async def all_statistics(self, request: HttpRequest) -> Any:
        return dumps(triton.statistics(list(self.repository.models.values()))), JSON

    async def model_ready(self, request: HttpRequest) -> Any:
        version = self.batcher(request).version
        return dumps({"name": version.name, "ready": True}), JSON

    async def model_metadata(self, request: HttpRequest) -> Any:
        version = self.batcher(request).version
        numbers = list(self.repository.model(version.name).ready)
        return dumps(inference.metadata(version.name, numbers, version.signature)), JSON
