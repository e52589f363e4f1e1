"""The Open Inference Protocol over gRPC: health, metadata, inference, streams, the repository.

Source: the protocol's gRPC service ``inference.GRPCInferenceService``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import numpy as np

from eagerflow import extras
from eagerflow.errors import ArgumentError, EagerflowError
from eagerflow.serving.access import Access
from eagerflow.serving.access_log import HEADER, Journal, current
from eagerflow.serving.batching import Batcher
from eagerflow.serving.errors import UnavailableError, UnknownModelError, status_of
from eagerflow.serving.limits import Limits
from eagerflow.serving.model import ModelVersion
from eagerflow.serving.protocols import inference, triton
from eagerflow.serving.protocols.calls import Calls, connection_options
from eagerflow.serving.protocols.messages import PACKAGE, messages
from eagerflow.serving.repository import Repository

__all__ = ["RpcServer"]

SERVICE = f"{PACKAGE}.GRPCInferenceService"
_CODES = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    404: "NOT_FOUND",
    413: "INVALID_ARGUMENT",
    429: "RESOURCE_EXHAUSTED",
    501: "UNIMPLEMENTED",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
    507: "RESOURCE_EXHAUSTED",
}
_CONTENTS = {
    "BOOL": "bool_contents",
    **dict.fromkeys(("INT8", "INT16", "INT32"), "int_contents"),
    "INT64": "int64_contents",
    **dict.fromkeys(("UINT8", "UINT16", "UINT32"), "uint_contents"),
    "UINT64": "uint64_contents",
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
}
"""The field for numbers of a datatype, where they are not sent as raw bytes."""
_log = logging.getLogger("eagerflow.serving")


class RpcServer:
    """A server of gRPC for the models of a repository, in one event loop.

    ``limits`` gives the current limits. ``change`` replaces the access settings and the journal.
    """

    def __init__(
        self,
        repository: Repository,
        limits: Callable[[], Limits],
        access: Access,
        journal: Journal | None = None,
    ) -> None:
        self._grpc = extras.load("grpc", "serving", "gRPC in ef.serving")
        self._aio = extras.load("grpc.aio", "serving", "gRPC in ef.serving")
        metrics = repository.metrics
        self._methods = _Service(repository)
        self._limits = limits
        self._calls = Calls(limits, *([] if metrics is None else [metrics.refuse_connection]))
        if metrics is not None:
            metrics.count_places("grpc_calls", "Calls over gRPC under way", self._calls.places)
        self._made: Any = None
        self.change(access, journal)

    def change(self, access: Access, journal: Journal | None) -> None:
        """Replace the access settings and the journal, for calls from now on."""
        self._access = access
        self._handlers = _handlers(self._grpc, self._methods, self._calls, access, journal)

    def service(self, details: Any) -> Any:
        """The handler of a call; gRPC requests it for each call."""
        return self._handlers.service(details)

    async def start(self, address: str) -> int:
        """Listen at an address; returns the port."""
        options = connection_options(self._limits())
        options += [("grpc.max_send_message_length", -1), ("grpc.so_reuseport", 0)]
        made = self._made = self._aio.server(options=options)
        made.add_generic_rpc_handlers((self,))
        access = self._access
        try:
            if access.certificate is None or access.key is None:
                port: int = made.add_insecure_port(address)
            else:
                pair = access.key.read_bytes(), access.certificate.read_bytes()
                port = made.add_secure_port(address, self._grpc.ssl_server_credentials([pair]))
        except RuntimeError as error:
            raise EagerflowError(
                f"{address} cannot be listened on: {error}",
                op="serve",
                hint="another port, or grpc_port=0 for a free one",
            ) from None
        await made.start()
        return port

    async def stop(self, grace: float) -> None:
        """Take no more calls; pending ones have so many seconds."""
        await self._made.stop(grace)


def _handlers(
    grpc: Any, service: _Service, calls: Calls, access: Access, journal: Journal | None
) -> Any:
    """The handlers of all methods for gRPC.

    Unary calls are registered as streams, which look the same on the wire: so a call is known
    before its message has arrived, which may take long.
    """
    known = messages()
    found = {}
    for name, method in service.table().items():
        stream = name == "ModelStreamInfer"
        asked = known["ModelInferRequest" if stream else f"{name}Request"]
        make = (
            grpc.stream_stream_rpc_method_handler
            if stream
            else grpc.stream_unary_rpc_method_handler
        )
        if stream:
            answer = _streaming(grpc, method, calls, access)
        else:
            answer = _answering(grpc, method, calls, access)
            if journal is not None:
                answer = _noted(journal, f"/{SERVICE}/{name}", answer)
        found[name] = make(
            answer,
            request_deserializer=_reader(asked),
            response_serializer=lambda message: message.SerializeToString(),
        )
    return grpc.method_handlers_generic_handler(SERVICE, found)


def _reader(message: Any) -> Callable[[bytes], Any]:
    """The deserializer of a message; invalid bytes become an error that ``_read`` raises.

    gRPC would report an exception in it as an unknown error of the server.
    """
    decode = extras.load("google.protobuf.message", "serving", "gRPC in ef.serving").DecodeError

    def read(data: bytes) -> Any:
        try:
            return message.FromString(data)
        except decode as error:
            return ArgumentError("the bytes are not a message of this method", received=str(error))

    return read


def _read(request: Any) -> Any:
    """A message, or the error in its place, which is raised."""
    if isinstance(request, ArgumentError):
        raise request
    return request


def _check(access: Access, context: Any) -> None:
    """Raise ForbiddenError unless a call carries one of the tokens."""
    if access.tokens:
        access.check(dict(context.invocation_metadata() or ()).get("authorization"))


def _streaming(
    grpc: Any, method: Callable[[Any, Any], AsyncIterator[Any]], calls: Calls, access: Access
) -> Any:
    """A streaming method behind the checks of access, places and deadlines."""

    async def answers(requests: Any, context: Any) -> AsyncIterator[Any]:
        try:
            with calls.place(context):
                _check(access, context)
                async for answer in method(calls.messages(context), context):
                    yield answer
        except EagerflowError as error:
            await context.abort(_code(grpc, status_of(error)), _told(error))

    return answers


def _noted(journal: Journal, path: str, answer: Callable[[Any, Any], Awaitable[Any]]) -> Any:
    """A method with its calls logged and request ids in the responses."""

    async def noted(requests: Any, context: Any) -> Any:
        headers = {key: value for key, value in context.invocation_metadata() or () if value}
        with journal.noting("gRPC", path, headers) as record:
            context.set_trailing_metadata(((HEADER, record.id),))
            found = await answer(requests, context)
            record.status, record.bytes = 200, found.ByteSize()
            return found

    return noted


def _answering(
    grpc: Any, method: Callable[[Any, Any], Awaitable[Any]], calls: Calls, access: Access
) -> Any:
    """A method of one message, with errors mapped to gRPC's codes."""

    async def answer(requests: Any, context: Any) -> Any:
        try:
            with calls.place(context):
                _check(access, context)
                return await method(_read(await calls.message(context)), context)
        except asyncio.CancelledError:
            raise
        except Exception as error:
            status = status_of(error)
            if (record := current.get()) is not None:
                record.status = status
            await context.abort(_code(grpc, status), _told(error))

    return answer


def _code(grpc: Any, status: int) -> Any:
    """The gRPC code for an HTTP status."""
    return getattr(grpc.StatusCode, _CODES.get(status, "INTERNAL"))


def _told(error: BaseException) -> str:
    found: str = inference.error(error)["error"]
    return found


class _Service:
    """The methods of the service, each from message to message."""

    def __init__(self, repository: Repository) -> None:
        self.repository = repository
        self.known = messages()

    def table(self) -> dict[str, Any]:
        """The methods by their names in the protocol."""
        return {
            "ServerLive": self.live,
            "ServerReady": self.ready,
            "ModelReady": self.model_ready,
            "ServerMetadata": self.server,
            "ModelMetadata": self.metadata,
            "ModelInfer": self.infer,
            "ModelStreamInfer": self.stream,
            "RepositoryIndex": self.index,
            "RepositoryModelLoad": self.load,
            "RepositoryModelUnload": self.unload,
            "ModelConfig": self.config,
            "ModelStatistics": self.statistics,
        }

    def batcher(self, name: str, version: str) -> Batcher:
        return self.repository.model(name).batcher(inference.number(version) if version else None)

    async def live(self, request: Any, context: Any) -> Any:
        return self.known["ServerLiveResponse"](live=True)

    async def ready(self, request: Any, context: Any) -> Any:
        return self.known["ServerReadyResponse"](ready=self.repository.is_ready)

    async def model_ready(self, request: Any, context: Any) -> Any:
        try:
            self.batcher(request.name, request.version)
        except (UnavailableError, UnknownModelError):  # as Triton has it
            return self.known["ModelReadyResponse"](ready=False)
        return self.known["ModelReadyResponse"](ready=True)

    async def server(self, request: Any, context: Any) -> Any:
        return self.known["ServerMetadataResponse"](**inference.server())

    async def metadata(self, request: Any, context: Any) -> Any:
        version = self.batcher(request.name, request.version).version
        numbers = list(self.repository.model(version.name).ready)
        told = inference.metadata(version.name, numbers, version.signature)
        return self.known["ModelMetadataResponse"](**told)

    async def config(self, request: Any, context: Any) -> Any:
        told = triton.config(self.batcher(request.name, request.version))
        for part in told["input"] + told["output"]:
            part["data_type"] = triton.DATA_TYPES[part["data_type"]]
        return self.known["ModelConfigResponse"](config=told)

    async def statistics(self, request: Any, context: Any) -> Any:
        models = self.repository.models
        asked = [self.repository.model(request.name)] if request.name else list(models.values())
        number = inference.number(request.version) if request.version else None
        return self.known["ModelStatisticsResponse"](**triton.statistics(list(asked), number))

    async def infer(self, request: Any, context: Any) -> Any:
        model, version = self.repository.model(request.model_name), request.model_version
        sent = dict(context.invocation_metadata() or ()) if model.traffic.key else {}
        batcher = model.next(
            inference.number(version) if version else None,
            header=lambda name: sent.get(name.lower()),
        )
        asked = self._asked(request)
        left = context.time_remaining()
        if left is not None and "timeout" not in asked.parameters:
            asked.parameters["timeout"] = max(1, int(left * 1e6))
        is_named = bool(request.model_version)
        return self._answer(asked, *await inference.infer(asked, batcher, is_named))

    async def stream(self, requests: AsyncIterator[Any], context: Any) -> AsyncIterator[Any]:
        """A response for each request of a stream, in order; errors do not end the stream."""
        made = self.known["ModelStreamInferResponse"]
        async for request in requests:
            try:
                yield made(infer_response=await self.infer(_read(request), context))
            except asyncio.CancelledError:
                raise
            except Exception as error:
                if status_of(error) == 500:
                    _log.exception("a request of a stream failed")
                found = self.known["ModelInferResponse"](id=getattr(request, "id", ""))
                yield made(error_message=inference.error(error)["error"], infer_response=found)

    async def index(self, request: Any, context: Any) -> Any:
        rows = inference.index(self.repository, request.ready)
        return self.known["RepositoryIndexResponse"](models=rows)

    async def load(self, request: Any, context: Any) -> Any:
        await self.repository.load(request.model_name)
        return self.known["RepositoryModelLoadResponse"]()

    async def unload(self, request: Any, context: Any) -> Any:
        await self.repository.unload(request.model_name)
        return self.known["RepositoryModelUnloadResponse"]()

    # Messages and arrays -------------------------------------------------------------------------

    def _asked(self, request: Any) -> inference.Request:
        raw = request.raw_input_contents
        if raw and len(raw) != len(request.inputs):
            raise ArgumentError(
                "raw_input_contents has another length than inputs",
                received=f"{len(raw)} and {len(request.inputs)}",
            )
        inputs = {}
        for position, given in enumerate(request.inputs):
            name = given.name
            if name in inputs:
                raise ArgumentError("the input was given twice", argument=name[:80])
            dtype = inference.dtype_of(given.datatype, name)
            shape = inference.shape_of(list(given.shape), name)
            if raw:
                inputs[name] = inference.array_of_bytes(raw[position], dtype, shape, name)
            else:
                numbers = self._numbers(given, name)
                inputs[name] = inference.array_of_numbers(numbers, dtype, shape, name)
        wanted = [output.name for output in request.outputs] or None
        parameters = {
            key: getattr(value, value.WhichOneof("parameter_choice") or "bool_param")
            for key, value in request.parameters.items()
        }
        return inference.Request(inputs, wanted, frozenset(), request.id, parameters)

    def _numbers(self, given: Any, name: str) -> Any:
        field = _CONTENTS.get(given.datatype)
        if field is None:
            raise ArgumentError(
                f"{given.datatype} comes as bytes only",
                argument=name[:80],
                expected="raw_input_contents",
            )
        return np.asarray(getattr(given.contents, field))

    def _answer(self, asked: inference.Request, version: ModelVersion, outputs: Any) -> Any:
        made = self.known["ModelInferResponse"](
            model_name=version.name, model_version=str(version.number), id=asked.id or ""
        )
        for name, array in outputs.items():
            datatype = inference.datatype(array.dtype)
            made.outputs.add(name=name, datatype=datatype, shape=array.shape)
            made.raw_output_contents.append(inference.bytes_of(array))
        return made
