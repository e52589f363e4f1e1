"""The HTTP application: routes of the protocols to the models of a repository."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from eagerflow import extras
from eagerflow.serving import openapi, page
from eagerflow.serving.access import Access
from eagerflow.serving.batching import Batcher
from eagerflow.serving.generation import Generation
from eagerflow.serving.protocols import arrays, events, generate, inference, tensorflow, triton
from eagerflow.serving.protocols.encodings import decoded
from eagerflow.serving.refusals import LateError, TooLargeError, UnavailableError, status_of
from eagerflow.serving.repository import Model, Repository
from eagerflow.serving.routes import Answering
from eagerflow.serving.texts import dumps, loads

__all__ = ["Limits", "application"]

_OPEN = ("/v2/health/live", "/v2/health/ready")  # to everybody: they tell nothing of models
_ASKS = {"www-authenticate": 'Basic realm="eagerflow", charset="UTF-8"'}  # a browser then asks
JSON = {"content-type": "application/json"}
_log = logging.getLogger("eagerflow.serving")


class Limits(NamedTuple):
    """What a request may cost: bytes of its body, and seconds to send it.

    ``heartbeat`` is how many seconds a stream of events is silent at most.

    >>> ef.serving.Limits(max_body=1 << 20).body_seconds
    30.0
    """

    max_body: int = 64 << 20
    body_seconds: float = 30.0
    heartbeat: float = 15.0


def application(
    repository: Repository, limits: Limits | None = None, access: Access | None = None
) -> Any:
    """The ASGI application (a Starlette) that answers for the models of a repository."""
    access = (access or Access()).checked()
    starlette = extras.load("starlette.applications", "serving", "ef.serving")
    routing = extras.load("starlette.routing", "serving", "ef.serving")
    endpoints = _Endpoints(repository, limits or Limits())
    routes = [
        routing.Route(
            path,
            _answering(endpoint, form, repository, Access() if path in _OPEN else access),
            methods=[method],
        )
        for method, path, endpoint, form in endpoints.table()
    ]
    responses = extras.load("starlette.responses", "serving", "ef.serving")

    async def refuse(request: Any, error: Any) -> Any:
        told = {"error": f"{request.method} {request.url.path[:200]}: {error.detail}"}
        return responses.Response(dumps(told), error.status_code, JSON)

    return starlette.Starlette(routes=routes, exception_handlers={404: refuse, 405: refuse})


def _answering(
    endpoint: Callable[[Any], Awaitable[Any]], form: Any, repository: Repository, access: Access
) -> Any:
    """A route's function: what the endpoint gives, or its error in the protocol's form."""
    responses = extras.load("starlette.responses", "serving", "ef.serving")
    response = responses.Response
    disconnected = extras.load("starlette.requests", "serving", "ef.serving").ClientDisconnect

    async def answer(request: Any) -> Any:
        try:
            access.check(request.headers.get("authorization"))
            body, headers = await endpoint(request)
            return response(body, headers=headers) if isinstance(body, bytes) else body
        except disconnected:
            return response(status_code=499)
        except Exception as error:
            status = status_of(error)
            if repository.metrics is not None:
                name = request.path_params.get("model", "")
                repository.metrics.refuse(name if name in repository.models else "", error)
            if status == 500:
                _log.exception("%s %s failed", request.method, request.url.path)
            headers = JSON | _ASKS if status == 401 else JSON
            return response(dumps(form(error)), status, headers)

    return answer


class _Endpoints:
    """The functions behind the routes, each of which gives a body and its headers."""

    def __init__(self, repository: Repository, limits: Limits) -> None:
        self.repository = repository
        self.limits = limits

    def table(self) -> list[tuple[str, str, Any, Any]]:
        """Method, path, function and form of errors of each route."""
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

    # What all of them do -------------------------------------------------------------------------

    def named(self, request: Any) -> tuple[Model, int | None, str | None]:
        """The model, version and label that a request's path names."""
        given = request.path_params
        version = given.get("version")
        number = None if version is None else inference.number(version)
        return self.repository.model(given["model"]), number, given.get("label")

    def batcher(self, request: Any) -> Batcher:
        """The version that a request's path names."""
        model, version, label = self.named(request)
        return model.batcher(version, label)

    async def asked(self, request: Any) -> tuple[Answering, bytes]:
        """What is to answer, and the whole body of the request.

        It is found when the body is there: versions may leave meanwhile, but not before what they
        were given at once is answered. BusyError where its queue is full.
        """
        self.batcher(request)
        body = await self.body(request)
        model, version, label = self.named(request)
        found = model.next(version, label, request.headers.get)
        found.check_room()
        return found, body

    async def body(self, request: Any) -> bytes:
        """The whole body; TooLargeError or LateError for one beyond the limits."""
        most = self.limits.max_body
        told = request.headers.get("content-length", "0")
        if told.isdecimal() and int(told) > most:
            _refuse_size(most)
        parts, size = [], 0
        try:
            async with asyncio.timeout(self.limits.body_seconds):
                async for part in request.stream():
                    parts.append(part)
                    size += len(part)
                    if size > most:
                        _refuse_size(most)
        except TimeoutError:
            raise LateError(
                "the body took too long to arrive",
                received=f"{size} bytes in {self.limits.body_seconds:g} s",
            ) from None
        return decoded(b"".join(parts), request.headers.get("content-encoding"), most)

    # TensorFlow Serving --------------------------------------------------------------------------

    async def predict(self, request: Any) -> Any:
        batcher, body = await self.asked(request)
        told = loads(body)
        batcher = tensorflow.asked_for(told, batcher)
        asked = tensorflow.predict(told, batcher.version.signature)
        found = await batcher.run(asked.inputs)
        return dumps(tensorflow.prediction(found, asked.by_row), found.values()), JSON

    async def _examples(self, request: Any, kind: str) -> Any:
        batcher, body = await self.asked(request)
        told = loads(body)
        batcher = tensorflow.asked_for(told, batcher)
        asked = tensorflow.examples(told, batcher.version.signature)
        found = await batcher.run(asked.inputs)
        return dumps(tensorflow.example_answer(found, kind), found.values()), JSON

    async def classify(self, request: Any) -> Any:
        return await self._examples(request, "classify")

    async def regress(self, request: Any) -> Any:
        return await self._examples(request, "regress")

    async def status(self, request: Any) -> Any:
        given = request.path_params
        model = self.repository.model(given["model"])
        version = None if "version" not in given else inference.number(given["version"])
        if "label" in given:
            version = model.batcher(label=given["label"]).version.number
        return dumps(tensorflow.status(model, version)), JSON

    async def metadata(self, request: Any) -> Any:
        return dumps(tensorflow.metadata(self.batcher(request))), JSON

    # The Open Inference Protocol -----------------------------------------------------------------

    async def infer(self, request: Any) -> Any:
        batcher, body = await self.asked(request)
        form = arrays.form_of(request.headers.get("content-type"))
        if form is None:
            asked = inference.request(body, request.headers.get(inference.HEADER))
        else:
            named = batcher.by_signature(request.query_params.get("signature_name"))
            asked = arrays.request(
                body, form, named.version.signature, request.query_params, self.limits.max_body
            )
        is_named = "version" in request.path_params
        version, found = await inference.infer(asked, batcher, is_named)
        form = arrays.wanted_form(request.headers.get("accept"), form, len(found))
        if form is not None:
            return arrays.write(found, form), {"content-type": form}
        body, length = inference.answer(asked, version.name, version.number, found)
        if length is None:
            return body, JSON
        return body, {
            "content-type": "application/octet-stream",
            inference.HEADER: str(length),
        }

    async def generation(self, request: Any) -> tuple[Generation, generate.Asked]:
        """What a request asks to be generated, once it has begun."""
        batcher, body = await self.asked(request)
        asked = generate.request(loads(body), batcher.version)
        assert isinstance(batcher, Batcher)  # neither a cache nor a shadow comes before state
        made = Generation(batcher, asked.generation)
        await events.unless_gone(request.receive, made.start())
        return made, asked

    async def generate(self, request: Any) -> Any:
        made, asked = await self.generation(request)
        try:
            tokens = await events.unless_gone(request.receive, made.all_tokens())
            return dumps(generate.answer(asked, made, tokens)), JSON
        finally:
            made.end()

    async def generate_stream(self, request: Any) -> Any:
        made, asked = await self.generation(request)
        told = generate.events(asked, made)
        return events.EventStream(told, made.end, self.limits.heartbeat), {}

    async def page(self, request: Any) -> Any:
        return page.page(self.repository)

    async def figures(self, request: Any) -> Any:
        return dumps(page.figures(self.repository)), JSON

    async def metrics(self, request: Any) -> Any:
        metrics = self.repository.metrics
        if metrics is None:
            raise UnavailableError("this server counts nothing")
        return metrics.text(), {"content-type": metrics.content_type}

    async def openapi(self, request: Any) -> Any:
        routes = [(method, path, made.__name__) for method, path, made, _ in self.table()]
        return dumps(openapi.description(routes)), JSON

    async def server(self, request: Any) -> Any:
        return dumps(inference.server()), JSON

    async def live(self, request: Any) -> Any:
        return b'{"live":true}', JSON

    async def ready(self, request: Any) -> Any:
        if not self.repository.is_ready:
            raise UnavailableError("models are loading")
        return b'{"ready":true}', JSON

    async def index(self, request: Any) -> Any:
        asked = await self.body(request)
        told = loads(asked) if asked else {}
        ready = isinstance(told, dict) and told.get("ready") is True
        return dumps(inference.index(self.repository, ready)), JSON

    async def load(self, request: Any) -> Any:
        await self.repository.load(request.path_params["model"])
        return b"{}", JSON

    async def unload(self, request: Any) -> Any:
        await self.repository.unload(request.path_params["model"])
        return b"{}", JSON

    async def traffic(self, request: Any) -> Any:
        return dumps(self.repository.model(request.path_params["model"]).told()), JSON

    async def direct(self, request: Any) -> Any:
        told = loads(await self.body(request))
        name = request.path_params["model"]
        model = await self.repository.direct(name, lambda model: model.changed(told))
        return dumps(model.told()), JSON

    async def config(self, request: Any) -> Any:
        return dumps(triton.config(self.batcher(request))), JSON

    async def statistics(self, request: Any) -> Any:
        model, version, _ = self.named(request)
        return dumps(triton.statistics([model], version)), JSON

    async def all_statistics(self, request: Any) -> Any:
        return dumps(triton.statistics(list(self.repository.models.values()))), JSON

    async def model_ready(self, request: Any) -> Any:
        version = self.batcher(request).version
        return dumps({"name": version.name, "ready": True}), JSON

    async def model_metadata(self, request: Any) -> Any:
        version = self.batcher(request).version
        numbers = list(self.repository.model(version.name).ready)
        return dumps(inference.metadata(version.name, numbers, version.signature)), JSON


def _refuse_size(most: int) -> None:
    raise TooLargeError("the body is too large", expected=f"{most:,} bytes at most")
