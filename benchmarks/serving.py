"""A server under load: speed against a bare echo, overload, idle connections, time to start.

    python benchmarks/serving.py [speed overload idle start] [--rounds 5] [--json]

Needs the extra ``serving``, and Starlette and ``wrk`` for the first part. The server has the first
processor for itself, the client the second.

- speed: requests a second of a perceptron (64, 32, 10) by TensorFlow Serving's REST API, against a
  bare Starlette application that sends the same bodies back, under the same uvicorn; and the
  slowest hundredth against the median.
- overload: five times the requests that a slower model can answer, at times of their own. What is
  answered, how fast the others are refused, memory, and the times right afterwards.
- idle: memory of 1,000 connections that are open and send nothing.
- start: from the start of the process to the first answer.
"""

import asyncio
import contextlib
import json
import os
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

import harness
import numpy as np

import eagerflow as ef
from eagerflow.serving.load import Load, Question, apply_load, rows_of

PARTS = ("speed", "overload", "idle", "start")
SPEED, TAIL = 0.7, 3.0  # of the echo's requests a second; the slowest hundredth to the median
GOODPUT, REFUSAL_SECONDS, OVER = 0.9, 0.01, 5.0
IDLE_CONNECTIONS, IDLE_MEGABYTES = 1000, 50.0
START_SECONDS = 1.0
ECHO = """
import sys, uvicorn
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route

async def echo(request):
    return Response(await request.body(), headers={"content-type": "application/json"})

async def ready(request):
    return Response(b"{}")

routes = [Route("/x", echo, methods=["POST"]), Route("/v2/health/ready", ready)]
uvicorn.run(Starlette(routes=routes), port=int(sys.argv[1]), log_level="warning", access_log=False)
"""
SHORT_QUEUE = """
import sys, time
from eagerflow.serving import Batching, Server

with Server(sys.argv[1], port=int(sys.argv[2]), batching=Batching(1, max_queue=16)):
    time.sleep(1e6)
"""


# Servers -----------------------------------------------------------------------------------------


def free_port():
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        return made.getsockname()[1]


@contextlib.contextmanager
def running(command, port):
    """A server in a process of its own on the first processor, when it is ready."""
    # As for users, modules that were compiled once are not compiled for each start.
    kept = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    process = subprocess.Popen([sys.executable, *command], stdout=subprocess.DEVNULL, env=kept)
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(process.pid, {0})
    try:
        url = f"http://127.0.0.1:{port}"
        until(lambda: urllib.request.urlopen(f"{url}/v2/health/ready", timeout=5).read(), process)
        yield url, process
    finally:
        process.terminate()
        process.wait(30)


def until(ask, process):
    """Ask until there is an answer."""
    while process.poll() is None:
        with contextlib.suppress(OSError):
            return ask()
        time.sleep(0.002)
    raise SystemExit(f"the server ended with {process.returncode}")


def serve(path, port):
    return "-m", "eagerflow.cli", "serve", path, "--port", str(port), "--no-grpc"


def perceptron(folder):
    """The path of a small model, and a request for it."""
    rng = np.random.default_rng(0)
    a, b = (ef.tensor(rng.standard_normal(s).astype("f4")) for s in ((64, 32), (32, 10)))
    graph = ef.capture.trace(
        lambda x: ef.softmax(ef.relu(x @ a) @ b), ef.TensorSpec(("batch", 64), "float32")
    )
    graph.save(f"{folder}/digits.ef")
    row = [round(x, 2) for x in rng.random(64).tolist()]
    return f"{folder}/digits.ef", json.dumps({"instances": [row]}).encode()


def slow_model(folder):
    """The path of a model that takes some milliseconds a row, and a request for it."""
    w = ef.tensor(np.eye(1024, dtype="f4") * 0.99)

    def f(x):
        rows = x[:, None, :] * ef.ones((1, 64, 1))
        for _ in range(4):
            rows = ef.tanh(rows @ w)
        return rows.sum(axis=1)

    ef.capture.trace(f, ef.TensorSpec(("batch", 1024), "float32")).save(f"{folder}/slow.ef")
    return f"{folder}/slow.ef", json.dumps({"inputs": [[0.5] * 1024]}).encode()


def resident(process):
    """Megabytes of memory of a process."""
    with open(f"/proc/{process.pid}/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE") / 2**20


# Parts -------------------------------------------------------------------------------------------


def wrk(url, body, folder, seconds=3):
    """Requests a second, and the seconds of the median and of the slowest hundredth."""
    with open(f"{folder}/post.lua", "w") as file:
        file.write('wrk.method = "POST"\n')
        file.write(f"wrk.body = [==[{body.decode()}]==]\n")
        file.write('wrk.headers["Content-Type"] = "application/json"\n')
    words = ["wrk", "-t1", "-c16", f"-d{seconds}s", "--latency", "-s", f"{folder}/post.lua", url]
    if shutil.which("taskset"):
        words = ["taskset", "-c", "1", *words]
    told = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    if "Non-2xx" in told:
        raise SystemExit(told)
    scale = {"us": 1e-6, "ms": 1e-3, "s": 1.0}
    shares = {
        share: float(number) * scale[unit]
        for share, number, unit in re.findall(r"(50|99)%\s+([\d.]+)(us|ms|s)\b", told)
    }
    return float(re.search(r"Requests/sec:\s+([\d.]+)", told)[1]), shares["50"], shares["99"]


def speed(folder, rounds):
    if shutil.which("wrk") is None:
        raise SystemExit("speed needs wrk, which is not installed")
    path, body = perceptron(folder)
    ports = free_port(), free_port()
    with (
        running(("-c", ECHO, str(ports[0])), ports[0]) as (echo, _),
        running(serve(path, ports[1]), ports[1]) as (ours, _),
    ):
        url = f"{ours}/v1/models/digits:predict"
        answer = json.loads(urllib.request.urlopen(url, body).read())
        assert abs(sum(answer["predictions"][0]) - 1) < 1e-5
        found = {"echo": [], "ours": []}
        for _ in range(rounds):
            found["echo"].append(wrk(f"{echo}/x", body, folder))
            found["ours"].append(wrk(url, body, folder))
    rates = {who: [rate for rate, _, _ in rows] for who, rows in found.items()}
    middle, spread = harness.ratio(rates["ours"], rates["echo"])
    tail = statistics.median(p99 / p50 for _, p50, p99 in found["ours"])
    for who, rows in found.items():
        rate, p50, p99 = (statistics.median(column) for column in zip(*rows, strict=True))
        print(f"{who}: {rate:,.0f} requests/s, median {p50 * 1e3:.2f} ms, 99 % {p99 * 1e3:.2f} ms")
    print(f"ratio {middle} ({spread[0]} to {spread[1]}), target {SPEED} at least")
    print(f"99 % / median {tail:.2f}, target {TAIL} at most")
    return {
        "requests_per_second": {who: statistics.median(x) for who, x in rates.items()},
        "ratio": middle,
        "spread": spread,
        "tail": tail,
    }


def overload(folder, rounds):
    path, body = slow_model(folder)
    port = free_port()
    with running(("-c", SHORT_QUEUE, path, str(port)), port) as (url, process):
        question = Question(f"{url}/v1/models/slow:predict", body)

        def apply(rate, seconds=5.0, connections=256):
            return asyncio.run(apply_load(question, Load(rate, seconds, connections)))

        apply(50.0, 1.0)
        one = apply(1000.0, 5.0, 8)  # eight at a time: as many as it can
        capacity = one.goodput
        before, memory = apply(capacity / 2), resident(process)
        during, most = apply(capacity * OVER, 10.0), resident(process)
        after = apply(capacity / 2, 2.0)
    for line in rows_of([before, during, after]):
        print("  ".join(f"{cell:>9}" for cell in line))
    share = during.goodput / capacity
    refused = float(np.quantile(during.refusals, 0.99)) if len(during.refusals) else 0.0
    print(f"goodput {share:.2f} of {capacity:.0f} requests/s, target {GOODPUT} at least")
    print(f"99 % of refusals within {refused * 1e3:.2f} ms, target {REFUSAL_SECONDS * 1e3:.0f} ms")
    print(f"memory {memory:.0f} MB before, {most:.0f} MB afterwards")
    print(
        f"median before {before.quantile(0.5) * 1e3:.1f} ms, "
        f"right afterwards {after.quantile(0.5) * 1e3:.1f} ms"
    )
    return {
        "capacity": capacity,
        "goodput": share,
        "refusal_seconds": refused,
        "megabytes": {"before": memory, "afterwards": most},
        "seconds": {"before": before.quantile(0.5), "afterwards": after.quantile(0.5)},
    }


def idle(folder, rounds):
    path, body = perceptron(folder)
    port = free_port()
    with running(serve(path, port), port) as (url, process), contextlib.ExitStack() as stack:
        urllib.request.urlopen(f"{url}/v1/models/digits:predict", body).read()
        before = resident(process)
        for _ in range(IDLE_CONNECTIONS):
            stack.enter_context(socket.create_connection(("127.0.0.1", port)))
        urllib.request.urlopen(f"{url}/v1/models/digits:predict", body).read()
        grown = resident(process) - before
    print(f"{IDLE_CONNECTIONS} connections: {grown:.1f} MB, target {IDLE_MEGABYTES:.0f} at most")
    return {"megabytes": grown}


def start(folder, rounds):
    path, body = perceptron(folder)
    found = []
    for _ in range(max(rounds, 3)):
        port = free_port()
        begin = time.perf_counter()
        with running(serve(path, port), port) as (url, _):
            urllib.request.urlopen(f"{url}/v1/models/digits:predict", body).read()
            found.append(time.perf_counter() - begin)
    print(
        f"from start to the first answer: median {statistics.median(found):.2f} s, "
        f"least {min(found):.2f} s, target {START_SECONDS} s"
    )
    return {"seconds": statistics.median(found)}


def main():
    options = harness.parser(__doc__.splitlines()[0])
    options.add_argument("parts", nargs="*", default=PARTS, metavar="PART", help=", ".join(PARTS))
    options.set_defaults(rounds=5)
    given = options.parse_args()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {1})
    rows = []
    for name in given.parts:
        if name not in PARTS:
            options.error(f"{name!r} is none of {', '.join(PARTS)}")
        print(f"\n{name}")
        with tempfile.TemporaryDirectory() as folder:
            rows.append({"name": name, **globals()[name](folder, given.rounds)})
    if given.json:
        harness.save("serving", rows, {"eagerflow": ef.__version__, "numpy": np.__version__})


if __name__ == "__main__":
    main()
