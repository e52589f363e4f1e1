"""``eagerflow serve``: models behind a port."""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from eagerflow import serving
from eagerflow.errors import printable
from eagerflow.serving.access import tokens_of
from eagerflow.serving.protocols.first_request import first_request

__all__ = ["add_serve"]

MAX_SHOWN_BODY = 400  # letters of a request that is told as an example


def add_serve(commands: Any) -> None:
    """Add the command to the parser's commands."""
    serve = commands.add_parser("serve", help="answer requests for the predictions of models")
    serve.add_argument(
        "models",
        type=Path,
        metavar="MODELS",
        help="a file of graph.save, model.export or ONNX, or a folder of models: "
        "NAME/VERSION/model.ef",
    )
    serve.add_argument("--host", default="127.0.0.1", help="default: %(default)s, this machine")
    serve.add_argument("--port", type=int, default=8501, help="REST; default: %(default)s")
    serve.add_argument("--grpc-port", type=int, default=8500, help="gRPC; default: %(default)s")
    serve.add_argument("--no-grpc", action="store_true", help="REST alone")
    serve.add_argument(
        "--versions",
        type=int,
        default=1,
        metavar="N",
        help="how many versions of each model answer, the latest; 0 for all (default: %(default)s)",
    )
    serve.add_argument(
        "--max-batch", type=int, default=32, metavar="ROWS", help="default: %(default)s"
    )
    serve.add_argument(
        "--max-wait",
        type=float,
        default=0.0,
        metavar="MS",
        help="how long a request may wait for others to join (default: %(default)s)",
    )
    serve.add_argument(
        "--tokens",
        type=Path,
        metavar="FILE",
        help="a file of secrets, one a line; requests carry one: Authorization: Bearer SECRET",
    )
    serve.add_argument("--certificate", type=Path, metavar="FILE", help="PEM, for TLS")
    serve.add_argument("--key", type=Path, metavar="FILE", help="PEM, for TLS")
    serve.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    server = serving.Server(
        options.models,
        host=options.host,
        port=options.port,
        grpc_port=None if options.no_grpc else options.grpc_port,
        policy=serving.Policy(latest=options.versions),
        batching=serving.Batching(options.max_batch, options.max_wait / 1e3),
        access=serving.Access(
            tokens_of(options.tokens) if options.tokens else (), options.certificate, options.key
        ),
        told=lambda line: print(printable(line, "\n"), flush=True),
    )
    asyncio.run(_serve(server))
    return 0


async def _serve(server: serving.Server) -> None:
    """Serve until the process is told to end; then answer what has come."""
    loop = asyncio.get_running_loop()
    serving_task = asyncio.create_task(server.serve())
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, server.ask_to_stop)
    while not server.is_started and not serving_task.done():
        await asyncio.sleep(0.002)
    if server.is_started:
        for line in _greeting(server):
            print(printable(line), flush=True)
    await serving_task


def _greeting(server: serving.Server) -> Iterable[str]:
    """Where the server is, what each model expects, and a request to try."""
    yield f"REST, and a page for browsers, on {server.url}"
    if server.grpc_port is not None:
        yield f"gRPC on {server.host}:{server.grpc_port}"
    assert server.repository is not None
    for model in server.repository.models.values():
        if model.current is None:
            yield f"{model.name}: no version is ready"
            continue
        version = model.batcher().version
        signature = version.signature
        inputs = ", ".join(f"{name}: {spec}" for name, spec in signature.inputs.items())
        outputs = ", ".join(f"{name}: {spec}" for name, spec in signature.outputs.items())
        yield f"{model.name} (version {version.number}): {inputs} -> {outputs}"
        if signature.batch is None:
            yield f"  requests run one by one: {signature.alone}"
        path, first = first_request(model.name, signature)
        body = json.dumps(first)
        if len(body) < MAX_SHOWN_BODY:
            yield f"  curl -d '{body}' {server.url}/{path}"
