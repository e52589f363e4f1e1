"""A server under load, while versions come, break and go, and workers are killed.

``python -m tests.serving.soak --requests 1000000`` runs it at full size. Every request has an id in
its own input, and the answer identifies the version: answers that are lost, doubled, mixed or
wrong are found.
"""

import argparse
import asyncio
import contextlib
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter, deque
from pathlib import Path

import grpc
import numpy as np

import eagerflow as ef
from eagerflow.serving.protocols.inference import HEADER
from eagerflow.serving.protocols.messages import messages
from eagerflow.serving.protocols.rpc import SERVICE
from tests.serving.models import put_version, remove_version
from tests.serving.served import Connection, ServerProcess, kill

EDITIONS = 4  # a version's file can be replaced: another edition of the same number
BASE = 1000.0
RADIX = 4096  # ids are two numbers, so that all is exact in float32
EFFECT_SECONDS = 120.0
SIDE = (1, 2, 3)  # the versions of a model whose answering version is configured
KINDS = ("row", "rows", "columns", "many", "json", "binary", "grpc", "named", "late", "side")
WEIGHTS = (20, 15, 10, 1, 15, 15, 15, 4, 1, 4)


def coded(code):
    """The graph of ``x * code + 1000 * code``, whose code is in its weights."""
    w = ef.Variable(np.full((3,), code, "float32"), name="w")
    spec = ef.TensorSpec(("batch", 3), "float32")
    return ef.capture.trace(lambda x: {"y": x * w + w * BASE}, spec)


def file_of(code):
    """The bytes of a version's file, with a test and a signature."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.ef"
        examples, signatures = [{"x": [[1.0, 2.0, 3.0]]}], {"own": ["y"]}
        coded(code).save(path, examples=examples, signatures=signatures)
        return path.read_bytes()


def broken(kind, data):
    """The bytes of a file that must not answer."""
    if kind == "garbage":
        return os.urandom(400)
    if kind == "cut":
        return data[: len(data) * 2 // 3]
    if kind == "test":  # the last number that its example expects
        return data[:-4] + b"\0\0\0\0"
    assert kind == "signature" and data.count(b'[\\"y\\",\\"y\\"]') == 1
    return data.replace(b'[\\"y\\",\\"y\\"]', b'[\\"y\\",\\"z\\"]')


class Load:
    """Requests by id, and the errors found in their answers.

    ``good`` are the codes that may answer, ``floor`` the version that answers at least, ``side``
    the versions that may answer for the model of this name.
    """

    def __init__(self, server, seed):
        self.server = server
        self.chance = random.Random(seed)
        self.token = ""
        self.good = {EDITIONS}
        self.floor = 1
        self.side = {max(SIDE)}
        self.seen = set()
        self.answers = bytearray()  # how many each id has had
        self.counts = Counter()
        self.faults = []
        self.longest = 0.0
        self.stopping = False
        self._channel = None

    @property
    def answered(self):
        return len(self.answers) - self.answers.count(0)

    def fault(self, *told):
        self.faults.append(told)
        if len(self.faults) <= 20:
            print("FAULT", *told, file=sys.stderr, flush=True)

    def _inputs(self, id, rows):
        first = np.arange(rows) * 17 + id % 911
        return np.stack([first % 1000, np.full(rows, id // RADIX), np.full(rows, id % RADIX)], 1)

    def check(self, id, kind, told, inputs, version=None):
        """Which version a right answer is of; a fault for one that is none."""
        y = np.asarray(told, "float64")
        if y.shape != inputs.shape:
            return self.fault(id, kind, "shape", y.shape, inputs.shape)
        codes = y / (inputs + BASE)
        code = codes[0, 0]
        if not (codes == code).all():
            return self.fault(id, kind, "mixed or wrong", y.tolist()[:4], inputs.tolist()[:4])
        if version is not None and version != code // EDITIONS:
            return self.fault(id, kind, "version", version, code)
        if kind != "side":
            if code not in self.good:
                return self.fault(id, kind, "a version that must not answer", code)
            self.seen.add(int(code))
        return int(code // EDITIONS)

    # Asking --------------------------------------------------------------------------------------

    async def ask(self, connection):
        """One request, of a kind by chance."""
        (kind,) = self.chance.choices(KINDS, WEIGHTS)
        id = len(self.answers)
        self.answers.append(0)
        rows = {"row": 1, "many": 80, "named": 1, "late": 1}.get(kind) or self.chance.randint(1, 6)
        inputs = self._inputs(id, rows)
        floor, side = self.floor, set(self.side)
        begin = time.monotonic()
        try:
            if kind == "grpc":
                status, found, version = await self._call(id, inputs)
            elif kind in ("json", "binary", "late", "side"):
                status, found, version = await self._infer(connection, kind, id, inputs)
            else:
                status, found, version = await self._predict(connection, kind, inputs, floor)
        except Exception as error:
            self.counts[kind, "lost"] += 1
            self.fault(id, kind, "lost", repr(error))
            return
        self.longest = max(self.longest, time.monotonic() - begin)
        self.answers[id] += 1
        self.counts[kind, status] += 1
        if status != 200:
            # A version that is named can leave, and a deadline can pass. All else has an answer.
            allowed = {"named": (404, 503), "late": (504,)}.get(kind, ())
            if status not in allowed or not found.get("error"):
                self.fault(id, kind, status, found)
            return
        answered = self.check(id, kind, found, inputs, version)
        if answered is not None:
            self.check_version(id, kind, answered, floor, side)

    def check_version(self, id, kind, answered, floor, side):
        """A fault where another version answered than those that might."""
        if kind == "side":
            fits = answered in side | self.side
        else:
            fits = answered == floor if kind == "named" else answered >= floor
        if not fits:
            self.fault(id, kind, "answered by", answered, "not", side if kind == "side" else floor)

    def _headers(self):
        return [("authorization", f"Bearer {self.token}")]

    async def _predict(self, connection, kind, inputs, floor):
        """Status, and numbers or an error, by TensorFlow Serving's API, which has no version."""
        key, found = ("inputs", "outputs") if kind == "columns" else ("instances", "predictions")
        place = f"/versions/{floor}" if kind == "named" else ""
        body = json.dumps({key: inputs.tolist()}).encode()
        path = f"/v1/models/chain{place}:predict"
        status, _, data = await connection.call("POST", path, body, self._headers())
        told = json.loads(data)
        return status, told[found] if status == 200 else told, None

    async def _infer(self, connection, kind, id, inputs):
        """Status, numbers or an error, and the version, by the Open Inference Protocol."""
        row = {"name": "x", "datatype": "FP32", "shape": inputs.shape}
        told = {"id": str(id), "inputs": [row]}
        array, parts, headers = inputs.astype("<f4"), b"", self._headers()
        if kind == "binary":
            parts = array.tobytes()
            row["parameters"] = {"binary_data_size": len(parts)}
            told["parameters"] = {"binary_data_output": True}
        else:
            row["data"] = array.reshape(-1).tolist()
        if kind == "late":
            told["parameters"] = {"timeout": 1}
        text = json.dumps(told).encode()
        if kind == "binary":
            headers.append((HEADER, str(len(text))))
        path = f"/v2/models/{'side' if kind == 'side' else 'chain'}/infer"
        status, sent, data = await connection.call("POST", path, text + parts, headers)
        size = int(sent.get(HEADER, len(data)))
        told = json.loads(data[:size])
        if status != 200:
            return status, told, None
        if told["id"] != str(id):
            self.fault(id, kind, "the answer of", told["id"])
        (output,) = told["outputs"]
        found = np.frombuffer(data[size:], "<f4") if kind == "binary" else output["data"]
        return status, np.reshape(found, output["shape"]), int(told["model_version"])

    async def _call(self, id, inputs):
        """The same over gRPC."""
        asked = messages()["ModelInferRequest"](model_name="chain", id=str(id))
        asked.inputs.add(name="x", datatype="FP32", shape=inputs.shape)
        asked.raw_input_contents.append(inputs.astype("<f4").tobytes())
        try:
            told = await self._channel(asked, metadata=self._headers(), timeout=EFFECT_SECONDS)
        except grpc.aio.AioRpcError as error:
            return error.code().name, {"error": error.details()}, None
        if told.id != str(id):
            self.fault(id, "grpc", "the answer of", told.id)
        found = np.frombuffer(told.raw_output_contents[0], "<f4")
        return 200, found.reshape(inputs.shape), int(told.model_version)

    async def _user(self):
        connection = Connection(self.server.host, self.server.port)
        while not self.stopping:
            await self.ask(connection)
        await connection.end()

    @contextlib.asynccontextmanager
    async def users(self, count):
        """A block in which so many users ask, each again when it has its answer."""
        address = f"{self.server.host}:{self.server.grpc_port}"
        async with grpc.aio.insecure_channel(address) as channel:
            self._channel = channel.unary_unary(
                f"/{SERVICE}/ModelInfer",
                lambda message: message.SerializeToString(),
                messages()["ModelInferResponse"].FromString,
            )
            users = [asyncio.create_task(self._user()) for _ in range(count)]
            try:
                yield
            finally:
                self.stopping = True
                await asyncio.gather(*users)


class Disturber:
    """Changes of a server under load; each one waits for its effect."""

    def __init__(self, server, folder, load, chance):
        self.server, self.load, self.chance = server, load, chance
        self.models = folder / "models"
        self.chain = self.models / "chain"
        self.config = folder / "serve.toml"
        self.tokens = folder / "tokens"
        self.number, self.edition = 1, 0
        self.kept = deque([1], 3)
        self.secrets = []
        self.reloads = 0
        self.kills = 0

    async def until(self, true, told):
        end = time.monotonic() + EFFECT_SECONDS
        while not true():
            if time.monotonic() > end:
                log = self.server.log()[-2000:]
                raise AssertionError(f"{told} had no effect; the server's log ends:\n{log}")
            await asyncio.sleep(0.01)

    # Versions ------------------------------------------------------------------------------------

    async def swap(self):
        """A new version, or a new edition of the last one, by one of the ways that people take."""
        way = self.chance.choice(("moved", "moved", "copied", "replaced"))
        is_there = (self.chain / str(self.number)).is_dir()  # perhaps a broken one
        if way == "replaced" and is_there and self.edition < EDITIONS - 1:
            self.edition += 1
        else:
            self.number, self.edition = self.number + 1, 0
        code = self.number * EDITIONS + self.edition
        self.load.good.add(code)
        place = self.chain / str(self.number) / "model.ef"
        if self.edition:
            made = place.with_suffix(".new")
            made.write_bytes(file_of(code))
            os.replace(made, place)
        elif way == "copied":
            place.parent.mkdir()
            await self._copy(file_of(code), place)
        else:
            made = self.models.parent / "making"
            made.mkdir()
            (made / "model.ef").write_bytes(file_of(code))
            os.rename(made, place.parent)
        await self.until(lambda: code in self.load.seen, f"version {self.number} ({way})")
        self.load.floor = self.number
        if self.number not in self.kept:
            self.kept.append(self.number)
        for path in self.chain.iterdir():
            if int(path.name) not in self.kept:
                remove_version(self.chain, path.name)

    async def _copy(self, data, place):
        """Write a file as a slow copy does, so that its beginning is seen."""
        with open(place, "wb", buffering=0) as file:
            cuts = sorted(self.chance.sample(range(len(data)), 3))
            for begin, end in zip([0, *cuts], [*cuts, len(data)], strict=True):
                file.write(data[begin:end])
                await asyncio.sleep(self.chance.uniform(0.0, 0.2))

    async def breaks(self):
        """Add a broken version, which is reported and never answers."""
        kind = self.chance.choice(("garbage", "cut", "test", "signature", "gone"))
        self.number, self.edition = self.number + 1, 0
        code = self.number * EDITIONS
        place = self.chain / str(self.number)
        place.mkdir()
        if kind == "gone":
            self.load.good.add(code)  # where it is looked at while it is there, it may answer
            (place / "model.ef").write_bytes(file_of(code))
            await asyncio.sleep(self.chance.uniform(0.0, 0.05))
            shutil.rmtree(place)
            await asyncio.sleep(0.3)
            return
        (place / "model.ef").write_bytes(broken(kind, file_of(code)))
        told = f"chain {self.number} is broken"
        await self.until(lambda: told in self.server.log(), f"{kind} as version {self.number}")
        if self.chance.random() < 0.5:
            remove_version(self.chain, self.number)

    # Processes -----------------------------------------------------------------------------------

    async def kills_worker(self):
        workers = []

        def some():
            workers[:] = self.server.workers()
            return workers

        await self.until(some, "a worker that was killed")
        kill(self.chance.choice(workers))
        self.kills += 1
        await asyncio.sleep(self.chance.uniform(0.0, 0.5))

    # The configuration ---------------------------------------------------------------------------

    def write(self, pinned, **options):
        """Write a configuration and its tokens, the last two of which are good."""
        self.secrets.append(f"secret number {len(self.secrets):05d}")
        self.tokens.write_text("\n".join(self.secrets[-2:]))
        lines = [f"{name} = {value}" for name, value in options.items()]
        lines += ['tokens = "tokens"', "poll = 0.05", "[models.chain]", "versions = 2"]
        lines += ["[models.side]", "versions = 0", f"pinned = {pinned}", ""]
        made = self.config.with_suffix(".new")
        made.write_text("\n".join(lines))
        os.replace(made, self.config)

    async def reload(self):
        """Another configuration, or a wrong one, which changes nothing."""
        self.reloads += 1
        if self.reloads % 3 == 0:
            before, kept = self.server.log().count("as it was"), self.config.read_text()
            self.config.write_text(kept + "max_bach = 3\n")
            self.server.ask_to_reload()
            await self.until(
                lambda: self.server.log().count("as it was") > before, "a wrong configuration"
            )
            self.config.write_text(kept)
            return
        pinned = self.chance.choice(SIDE)
        self.load.side.add(pinned)
        self.write(
            pinned,
            max_batch=self.chance.choice((8, 32)),
            max_wait=self.chance.choice((0, 2)),
            max_body=self.chance.choice((1, 64)),
        )
        if self.reloads % 2:
            self.server.ask_to_reload()
        end = time.monotonic() + EFFECT_SECONDS
        while await self._pinned(self.secrets[-1]) != pinned:
            assert time.monotonic() < end, "a configuration had no effect"
            await asyncio.sleep(0.02)
        self.load.token = self.secrets[-1]
        self.load.side = {pinned}

    async def _pinned(self, token):
        """The pinned version of the side model; None if the token is not valid yet."""
        path, headers = "/v2/repository/models/side/traffic", [("authorization", f"Bearer {token}")]
        connection = Connection(self.server.host, self.server.port)  # idle ones would be ended
        status, told = await connection.json("GET", path, headers=headers)
        await connection.end()
        return told["pinned"] if status == 200 else None


def plan(chance, swaps, breaks, kills, reloads):
    """The changes in random order."""
    names = ["swap"] * swaps + ["breaks"] * breaks + ["kills_worker"] * kills + ["reload"] * reloads
    chance.shuffle(names)
    return names


async def disturbed(server, folder, requests, disturber, names, users):
    """So many requests at least, and these changes at even distances."""
    load = disturber.load
    begin = said = time.monotonic()
    async with load.users(users):
        for position, name in enumerate(names):
            while load.answered < requests * position // len(names) and not load.faults:
                await asyncio.sleep(0.01)
            await getattr(disturber, name)()
            now = time.monotonic()
            if now > said + 10 or position == len(names) - 1:
                said, rate = now, load.answered / (now - begin)
                print(f"{load.answered:,} answers, {rate:,.0f} a second, {name}", flush=True)
        while load.answered < requests and not load.faults:
            await asyncio.sleep(0.01)


def soak(folder, requests, *, swaps, breaks, kills, reloads, workers=2, users=32, seed=0):
    """Run it all in a folder; gives counts by kind and status. AssertionError for any fault."""
    chance = random.Random(seed)
    load = Load(None, seed)
    disturber = Disturber(None, folder, load, chance)
    put_version(disturber.chain, 1, coded(EDITIONS))
    for number in SIDE:
        put_version(disturber.models / "side", number, coded(number * EDITIONS))
    disturber.write(max(SIDE))
    load.token = disturber.secrets[-1]
    words = disturber.models, "--workers", workers, "--config", disturber.config
    with ServerProcess(folder / "log", *words) as server:
        load.server = disturber.server = server
        before = server.memory()
        names = plan(chance, swaps, breaks, kills, reloads)
        asyncio.run(disturbed(server, folder, requests, disturber, names, users))
        print(f"memory: {before >> 20} MiB, then {server.memory() >> 20} MiB; the slowest answer")
        print(f"took {load.longest:.2f} s", flush=True)
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(60) == 0
    log = server.log()
    assert not load.faults, (len(load.faults), load.faults[:5])
    assert load.answers.count(1) == len(load.answers) >= requests
    assert "Traceback" not in log, log[-3000:]
    assert disturber.kills == kills and disturber.reloads == reloads
    return load.counts


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=1_000_000)
    parser.add_argument("--users", type=int, default=32)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        counts = soak(
            Path(folder),
            options.requests,
            swaps=100,
            breaks=20,
            kills=50,
            reloads=10,
            users=options.users,
            seed=options.seed,
        )
    for key, count in sorted(counts.items(), key=str):
        print(*key, count)
    print(f"{sum(counts.values()):,} requests, each answered once")


if __name__ == "__main__":
    main()
