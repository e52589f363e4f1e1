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
from eagerflow.errors import ArgumentError, printable
from eagerflow.runtime import collector
from eagerflow.serving.limits import allow_more_files
from eagerflow.serving.options import OPTIONS, Configuration
from eagerflow.serving.protocols.first_request import first_request
from eagerflow.serving.server import run_in_loop

__all__ = ["add_serve"]

SETTLED_SECONDS = 1.0  # after the start: a collection takes 0.1 s, which would delay requests
MAX_SHOWN_BODY = 400  # characters of the example request that is printed


def add_serve(commands: Any) -> None:
    """Add the command to the parser's commands."""
    serve = commands.add_parser("serve", help="answer requests for the predictions of models")
    serve.add_argument(
        "models",
        type=Path,
        nargs="?",
        metavar="MODELS",
        help="a file of graph.save, model.export or ONNX, or a folder of models: "
        "NAME/VERSION/model.ef",
    )
    serve.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help="a file in TOML with these options and models; flags override its values",
    )
    for option in OPTIONS:
        default = "" if option.default is None else f" (default: {option.default})"
        if option.kind is bool:
            serve.add_argument(
                option.flag,
                dest=option.name,
                action=f"store_{not option.default}".lower(),
                default=argparse.SUPPRESS,
                help=option.told,
            )
        else:
            serve.add_argument(
                option.flag,
                type=option.kind,
                default=argparse.SUPPRESS,
                metavar=option.metavar,
                choices=option.choices or None,
                help=option.told + default,
            )
    serve.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    given = vars(options)
    values = {option.name: given[option.name] for option in OPTIONS if option.name in given}
    if options.models is not None:
        values["models"] = options.models

    def told(line: str) -> None:
        print(printable(line, "\n"), flush=True)

    if options.config is not None:
        server = serving.Server.of_file(options.config, told, **values)
    else:
        models = values.pop("models", None)
        if models is None:
            raise ArgumentError("there are no models", op="serve", expected="MODELS or --config")
        server = serving.Server(**Configuration(models, values).arguments(), told=told)
    allow_more_files()
    run_in_loop(_serve(server))
    return 0


async def _serve(server: serving.Server) -> None:
    """Serve until a signal arrives; then finish pending requests."""
    loop = asyncio.get_running_loop()
    serving_task = asyncio.create_task(server.serve())
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, server.ask_to_stop)
    if hasattr(signal, "SIGHUP"):
        loop.add_signal_handler(signal.SIGHUP, server.ask_to_reload)
    while not server.is_started and not serving_task.done():
        await asyncio.sleep(0.002)
    if server.is_started:
        for line in _greeting(server):
            print(printable(line), flush=True)
        loop.call_later(SETTLED_SECONDS, collector.set_apart)
    await serving_task


def _greeting(server: serving.Server) -> Iterable[str]:
    """The server's address, each model's inputs, and an example request."""
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
            token = "-H 'Authorization: Bearer TOKEN' " if server.asks_for_tokens else ""
            yield f"  curl {token}-d '{body}' {server.url}/{path}"
