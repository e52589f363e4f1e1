"""``eagerflow bench-serve``: the request rate and the latencies of a running server."""

from __future__ import annotations

import argparse
import asyncio
import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from eagerflow.errors import ArgumentError, EagerflowError, printable
from eagerflow.graph.text import aligned_columns
from eagerflow.serving.access import tokens_of
from eagerflow.serving.load import Load, LoadResult, Question, apply_load, rows_of

__all__ = ["add_bench_serve"]

FIRST_RATE, ENOUGH = 100.0, 0.95
"""Without given rates, they double from here until a smaller share than this is answered."""


def add_bench_serve(commands: Any) -> None:
    """Add the command to the parser's commands."""
    bench = commands.add_parser(
        "bench-serve", help="measure a server that runs, by requests at rates of their own"
    )
    bench.add_argument(
        "url",
        nargs="?",
        default="http://127.0.0.1:8501",
        metavar="URL",
        help="of the server (default: %(default)s)",
    )
    bench.add_argument("--model", metavar="NAME", help="default: the only one, or the first")
    bench.add_argument(
        "--rate",
        type=float,
        nargs="+",
        metavar="R",
        help="requests a second; several are tried in turn "
        f"(default: doubled from {FIRST_RATE:.0f} on until the server does not keep up)",
    )
    bench.add_argument(
        "--seconds", type=float, default=5.0, help="for each rate (default: %(default)s)"
    )
    bench.add_argument("--connections", type=int, default=64, help="default: %(default)s")
    bench.add_argument("--rows", type=int, default=1, help="in each request (default: %(default)s)")
    bench.add_argument("--data", type=Path, metavar="FILE", help="a body to send, instead of zeros")
    bench.add_argument(
        "--path", metavar="PATH", help="where it is sent (default: /v2/models/NAME/infer)"
    )
    bench.add_argument("--tokens", type=Path, metavar="FILE", help="whose first line is the secret")
    bench.add_argument("--authority", type=Path, metavar="FILE", help="PEM, to trust over https")
    bench.add_argument("--seed", type=int, default=0, help="of the times (default: %(default)s)")
    bench.add_argument("--json", action="store_true", help="as JSON")
    bench.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    question = _question(options)
    found = []
    for load in _loads(options):
        try:
            result = asyncio.run(apply_load(question, load))
        except OSError as error:
            raise _no_server(options.url, error) from None
        found.append(result)
        if not options.json:
            lines = aligned_columns(rows_of(found), ">>>>>>><")
            for line in lines if len(found) == 1 else lines[-1:]:
                print(printable(line), flush=True)
        if not options.rate and result.goodput < ENOUGH * load.rate:
            break
    if options.json:
        print(json.dumps([_facts(result) for result in found], indent=2))
    return 0


def _loads(options: argparse.Namespace) -> Iterator[Load]:
    rate = FIRST_RATE
    for given in options.rate or iter(int, 1):
        yield Load(given or rate, options.seconds, options.connections, seed=options.seed).checked()
        rate *= 2


def _facts(result: LoadResult) -> dict[str, Any]:
    return {
        **result.load._asdict(),
        "good_per_second": result.goodput,
        "latency_seconds": {str(q): result.quantile(q) for q in (0.5, 0.9, 0.99, 0.999, 1.0)},
        "statuses": dict(result.statuses),
        "sent_late": result.late,
    }


# The request -------------------------------------------------------------------------------------


def _question(options: argparse.Namespace) -> Question:
    """The request: zeros for the model's inputs, or the given file."""
    url = options.url.rstrip("/")
    context = ssl.create_default_context(cafile=options.authority) if options.authority else None
    headers = {}
    if options.tokens is not None:
        headers["authorization"] = f"Bearer {tokens_of(options.tokens)[0]}"
    server = _Asked(url, headers, context)
    if options.path is not None and not options.path.startswith("/"):
        raise ArgumentError(
            f"{options.path[:100]!r} is not a path", argument="--path", expected="/..."
        )
    body = None if options.data is None else options.data.read_bytes()
    if body is None or options.path is None:
        name = options.model or server.first_model()
        told = server.json(f"/v2/models/{name}")
    path = options.path or f"/v2/models/{name}/infer"
    if body is None:
        body = _zeros(told["inputs"], options.rows)
    return Question(url + path, body, headers, context)


def _zeros(inputs: list[dict[str, Any]], rows: int) -> bytes:
    """An Open Inference Protocol request; the first free size is the number of rows, others 1."""
    tensors = []
    for told in inputs:
        shape = [rows if i == 0 and n < 0 else max(n, 1) for i, n in enumerate(told["shape"])]
        count = 1
        for size in shape:
            count *= size
        zero: Any = False if told["datatype"] == "BOOL" else 0
        tensors.append({**told, "shape": shape, "data": [zero] * count})
    return json.dumps({"inputs": tensors}).encode()


class _Asked:
    """Queries a server's metadata."""

    def __init__(self, url: str, headers: dict[str, str], context: Any) -> None:
        if not url.startswith(("http://", "https://")):
            raise ArgumentError(
                f"{url[:100]!r} is not an address", argument="URL", expected="http://HOST:PORT"
            )
        self.url, self.headers, self.context = url, headers, context

    def json(self, path: str, body: bytes | None = None) -> Any:
        """The response to a GET, or to a POST of a body."""
        request = urllib.request.Request(self.url + path, body, self.headers)
        try:
            with urllib.request.urlopen(request, timeout=10, context=self.context) as answer:
                found = json.loads(answer.read())
        except urllib.error.HTTPError as error:
            raise EagerflowError(
                f"{self.url}{path} answered {error.code}",
                received=error.read(300).decode("utf-8", "replace"),
            ) from None
        except (OSError, ValueError) as error:  # URLError is an OSError, with the reason in it
            raise _no_server(self.url, getattr(error, "reason", error)) from None
        return found

    def first_model(self) -> str:
        """The name of the first ready model."""
        for told in self.json("/v2/repository/index", b'{"ready": true}'):
            return str(told["name"])
        raise EagerflowError("no model is ready", received=self.url)


def _no_server(url: str, error: object) -> EagerflowError:
    return EagerflowError(
        f"no server of models answers on {url}: {error}",
        hint="eagerflow serve MODELS starts one",
    )
