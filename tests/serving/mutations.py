"""Requests that are wrong in a way that chance picks: equal seeds make equal requests.

They are made of valid ones, by changes of their JSON, their binary data, their headers, their
paths, their bytes, and of the messages of gRPC.
"""

import base64
import copy
import io
import json
from typing import NamedTuple

import numpy as np

from eagerflow.serving.protocols.inference import HEADER
from eagerflow.serving.protocols.messages import FIELDS, messages

DEEP = "DEEP"  # stands for lists within lists, which json.dumps could not write
DIGITS = "DIGITS"  # stands for a number of many digits
X = np.float32([[1.0, 2.0, 3.0]])
TENSOR = {"name": "x", "shape": [1, 3], "datatype": "FP32", "data": X.reshape(-1).tolist()}
JUNK = (
    *(None, True, False, 0, 1, -1, 2, 0.5, -0.0, 1e308, 1 << 31, 1 << 63, -(1 << 63), 10**40),
    *(float("nan"), float("inf"), "", "x", "é\ud800", "\0", "0" * 400, "../../etc/passwd", "FP32"),
    *(
        [],
        {},
        [[]],
        [None],
        [1, [2]],
        [[1.0, 2.0, 3.0]] * 3,
        {"b64": "AAAA"},
        {"b64": "?"},
        {"": 0},
    ),
    *(["x"] * 100, [1] * 3000, {str(i): i for i in range(200)}, DEEP, DIGITS),
)


class Asked(NamedTuple):
    """A request over HTTP: of whole frames if it is ``whole``, so that it has to be answered."""

    kind: str
    data: bytes
    whole: bool = True


class Called(NamedTuple):
    """A call over gRPC, of bytes that may be no message."""

    method: str
    data: bytes


class Streamed(NamedTuple):
    """Such bytes one behind the other in a stream of inference."""

    parts: list[bytes]


def framed(method, path, body=b"", headers=()):
    """The bytes of a request."""
    lines = [f"{method} {path} HTTP/1.1", "host: test", f"content-length: {len(body)}"]
    lines += [f"{name}: {value}" for name, value in headers]
    return "\r\n".join([*lines, "", ""]).encode("utf-8", "surrogatepass") + body


def written(told):
    """JSON, with values that Python's own writer refuses."""
    text = json.dumps(told).replace(f'"{DEEP}"', "[" * 5000 + "]" * 5000)
    return text.replace(f'"{DIGITS}"', "9" * 5000).encode()


def _npy(array):
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def _npz(**arrays):
    file = io.BytesIO()
    np.savez_compressed(file, **arrays)
    return file.getvalue()


JSON_REQUESTS = (
    ("/v1/models/scale:predict", {"instances": X.tolist()}),
    ("/v1/models/scale:predict", {"instances": [{"x": X[0].tolist()}] * 2}),
    (
        "/v1/models/scale:predict",
        {"inputs": {"x": X.tolist()}, "signature_name": "serving_default"},
    ),
    ("/v1/models/scale/versions/1:predict", {"inputs": X.tolist()}),
    ("/v1/models/scale:regress", {"examples": [{"x": X[0].tolist()}], "context": {}}),
    ("/v1/models/scale:classify", {"examples": [{"x": X[0].tolist()}]}),
    ("/v1/models/table:predict", {"instances": [0, 3]}),
    ("/v1/models/bytes:predict", {"instances": [{"b64": base64.b64encode(b"abc").decode()}]}),
    (
        "/v2/models/scale/infer",
        {
            "id": "1",
            "inputs": [TENSOR],
            "outputs": [{"name": "y", "parameters": {"binary_data": False}}],
            "parameters": {"timeout": 1_000_000, "priority": 1},
        },
    ),
    (
        "/v2/models/gru/infer",
        {
            "inputs": [TENSOR],
            "parameters": {"sequence_id": 1, "sequence_start": True, "sequence_end": True},
        },
    ),
    (
        "/v2/models/gpt/generate",
        {"tokens": [1, 2], "max_tokens": 2, "temperature": 1.0, "top_k": 3, "top_p": 0.9, "seed": 1}
        | {"stop": [[4, 5]], "parameters": {"timeout": 1_000_000, "priority": 0}},
    ),
    ("/v2/repository/index", {"ready": True}),
    (
        "/v2/repository/models/scale/traffic",
        {"pinned": 1, "labels": {"stable": 1}, "split": {"1": 1.0}, "key": "x-user"}
        | {"shadow": {"version": 1, "share": 1.0, "units": 4, "tolerance": 0.0}},
    ),
)
FILES = (("application/x-npy", _npy(X)), ("application/x-npz", _npz(x=X)))
PATHS = (
    *("/", "/v1", "/v2", "/v1/models/scale", "/v1/models/scale/metadata", "/v2/models/scale"),
    *("/v2/models/scale/ready", "/v2/models/scale/config", "/v2/models/scale/stats"),
    "/openapi.json",
    *("/v1/models/scale/versions/1", "/v1/models/scale/labels/stable", "/v2/health/ready"),
    *("/v2/repository/models/scale/traffic", "/figures", "/v2/models/stats", "/metrics"),
)
TRICKS = (
    *("..", "../../../../etc/passwd", "%2e%2e%2f%2e%2e%2fetc%2fpasswd", "..%5c..", "%00"),
    *("%", "%zz"),
    *("%c0%ae", "%ff%fe", "scale%2F1", "1" * 19, "-1", "1.0", "0x1", "%D9%A1", "1e3", "~root", "."),
    *("a" * 5000, "scale;x=1", "scale?x=1&x=2", "scale#y", "*", "@", "$(id)", "'--", "<b>", "con"),
)
HEADERS = (
    *(("content-length", v) for v in ("-1", "1e3", "9" * 20, "0x10", "", "3, 3", "+5")),
    *((HEADER, v) for v in ("-1", "0", "1", "99999999", "x", "1.5", "9" * 400, "", "٣")),
    *(
        ("content-type", v)
        for v in ("application/x-npy", "application/x-npz", "a" * 3000, ";;", "é")
    ),
    *(("accept", v) for v in ("application/x-npz", "application/x-npy", "*/*;q=é", ",,,,")),
    *(("authorization", v) for v in ("Basic ?", "Bearer", "é", "Basic " + "A" * 3000)),
    *(("transfer-encoding", v) for v in ("chunked", "gzip", "chunked, chunked", "identity")),
    *(("expect", "100-continue"), ("connection", "upgrade"), ("upgrade", "websocket")),
    *(("upgrade", "h2c"), ("host", ""), ("x-request-id", "a\tb"), ("x-" + "a" * 9000, "b")),
    *(("x-a", "b" * 60_000), ("", "x"), ("a b", "c"), ("traceparent", "00-é")),
)
METHODS = ("GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH", "TRACE", "CONNECT", "BREW")


# Structures ---------------------------------------------------------------------------------------


def places_of(told, found=()):
    """The ways to all values within a nest."""
    items = told.items() if isinstance(told, dict) else enumerate(told)
    for key, value in items:
        yield (*found, key)
        if isinstance(value, dict | list):
            yield from places_of(value, (*found, key))


def junk(chance):
    return copy.deepcopy(chance.choice(JUNK))


def mutated(chance, told):
    """JSON with some other values, or some less, or more."""
    told = copy.deepcopy(told)
    for _ in range(chance.choice((1, 1, 1, 2, 4))):
        places = list(places_of(told))
        if not places:
            break
        *way, last = chance.choice(places)
        holder = told
        for key in way:
            holder = holder[key]
        change = chance.random()
        if change < 0.7:
            holder[last] = junk(chance)
        elif change < 0.85:
            del holder[last]
        elif isinstance(holder, dict):
            holder[chance.choice(("inputs", "instances", "name", "x", "\0"))] = junk(chance)
        else:
            holder.append(junk(chance))
    return junk(chance) if chance.random() < 0.02 else told


def changed(chance, data):
    """Bytes with some flipped, put in, taken out, doubled or cut off."""
    made = bytearray(data)
    for _ in range(chance.choice((1, 1, 2, 5, 20))):
        begin = chance.randrange(len(made) + 1)
        end = min(len(made), begin + chance.choice((1, 1, 2, 8, 64)))
        change = chance.randrange(5)
        if change == 0 and made:
            made[min(begin, len(made) - 1)] ^= 1 << chance.randrange(8)
        elif change == 1:
            made[begin:begin] = chance.randbytes(chance.choice((1, 2, 8)))
        elif change == 2:
            del made[begin:end]
        elif change == 3:
            made[begin:begin] = made[begin:end]
        else:
            made[begin:end] = bytes([chance.choice(b'\0\xff\r\n :/,{}[]"0-')]) * (end - begin)
    return bytes(made[: chance.randrange(len(made) + 1)] if chance.random() < 0.1 else made)


# HTTP ---------------------------------------------------------------------------------------------


def of_json(chance):
    path, told = chance.choice(JSON_REQUESTS)
    return Asked("json", framed("POST", path, written(mutated(chance, told))))


def of_stream(chance):
    """A generation that is streamed as events; at its start, its length is not known."""
    _, told = next(row for row in JSON_REQUESTS if row[0].endswith("/generate"))
    data = framed("POST", "/v2/models/gpt/generate_stream", written(mutated(chance, told)))
    return Asked("stream", data, whole=False)


def of_text(chance):
    """The bytes of JSON, in a frame that is right."""
    path, told = chance.choice(JSON_REQUESTS)
    return Asked("text", framed("POST", path, changed(chance, written(told))))


def of_binary(chance):
    """Lengths and shapes that bytes behind the JSON do not have."""
    data = X.tobytes() * chance.choice((1, 1, 1, 2)) + b"\0" * chance.choice((0, 0, 1, 3))
    size = len(X.tobytes())
    lengths = (size, size, size - 1, size + 1, 0, -1, 1 << 40, True, 12.0, "12", None, [12])
    shapes = ([1, 3], [1, 3], [3], [3, 1], [2, 3], [-1, 3], [0, 3], [1 << 40] * 2, [], [1] * 70)
    types = ("FP32", "FP32", "FP64", "INT8", "BYTES", "BF16", "BOOL", "fp32", "")
    tensor = {
        "name": "x",
        "shape": chance.choice(shapes),
        "datatype": chance.choice(types),
        "parameters": {"binary_data_size": chance.choice(lengths)},
    }
    told = {"inputs": [tensor] * chance.choice((1, 1, 1, 2))}
    told["parameters"] = {"binary_data_output": chance.choice((True, False, 1, "yes"))}
    text = written(told)
    length = len(text) + chance.choice((0, 0, 0, 1, -1, 100, -len(text), 1 << 60))
    headers = [(HEADER, str(length))]
    return Asked("binary", framed("POST", "/v2/models/scale/infer", text + data, headers))


def of_file(chance):
    form, data = chance.choice(FILES)
    queries = ("", "", "?outputs=y", "?outputs=none", "?signature_name=%00", "?outputs=")
    path = f"/v2/models/scale/infer{chance.choice(queries)}"
    return Asked("file", framed("POST", path, changed(chance, data), [("content-type", form)]))


def of_path(chance):
    path = chance.choice((*PATHS, *(path for path, _ in JSON_REQUESTS)))
    parts = path.split("/")
    place = chance.randrange(1, len(parts))
    trick = chance.choice(TRICKS)
    parts[place] = chance.choice((trick, parts[place] + trick, f"{trick}:predict", ""))
    method = chance.choice(METHODS[:4])
    return Asked("path", framed(method, "/".join(parts).replace(" ", "%20")))


def of_headers(chance):
    path, told = chance.choice(JSON_REQUESTS)
    body = written(told)
    headers = chance.sample(HEADERS, chance.choice((1, 1, 2, 3)))
    headers += [("x-many", "1")] * chance.choice((0, 0, 0, 500))
    return Asked("headers", framed(chance.choice(METHODS), path, body, headers), whole=False)


def of_chunks(chance):
    """Bodies in chunks, whose lengths are wrong."""
    path, told = chance.choice(JSON_REQUESTS)
    body = written(told)
    sizes = (b"%x" % len(body), b"%X;a=b" % len(body), b"-1", b"zz", b"f" * 17, b"", b"1")
    size = chance.choice(sizes)
    head = f"POST {path} HTTP/1.1\r\nhost: test\r\ntransfer-encoding: chunked\r\n\r\n".encode()
    ending = chance.choice((b"\r\n0\r\n\r\n", b"\r\n0\r\n", b"0\r\n\r\n", b"\r\n0\r\na: b\r\n\r\n"))
    return Asked("chunks", head + size + b"\r\n" + body + ending, whole=False)


def of_bytes(chance):
    path, told = chance.choice(JSON_REQUESTS)
    data = framed("POST", path, written(told), [("content-type", "application/json")])
    return Asked("bytes", changed(chance, data), whole=False)


def of_size(chance):
    """Bodies that are said to be, or are, larger than the limit of 1 MiB."""
    path, _ = chance.choice(JSON_REQUESTS)
    data = framed("POST", path, b" " * chance.choice((1 << 20, (1 << 20) + 1, 3 << 20)))
    return Asked("size", data)


# gRPC ---------------------------------------------------------------------------------------------

METHODS_OF_GRPC = (
    *("ServerLive", "ServerReady", "ModelReady", "ServerMetadata", "ModelMetadata", "ModelInfer"),
    *("RepositoryIndex", "RepositoryModelLoad", "ModelConfig", "ModelStatistics"),
    *("ModelInfer", "ModelInfer", "ModelInfer", "ModelInfer"),
)
TEXTS = ("", "x", "scale", "none", "1", "-1", "9" * 30, "../..", "\0", "FP32", "BYTES", "é" * 2000)
WHOLES = (0, 1, -1, 3, 1 << 31, -(1 << 63), (1 << 63) - 1)


def inference_message():
    """A valid message."""
    made = messages()["ModelInferRequest"](model_name="scale", model_version="1", id="7")
    made.inputs.add(name="x", datatype="FP32", shape=[1, 3])
    made.raw_input_contents.append(X.tobytes())
    made.outputs.add(name="y")
    made.parameters["priority"].int64_param = 1
    return made


def _infer(chance):
    """A message of inference whose fields say something else."""
    made = inference_message()
    for _ in range(chance.choice((1, 1, 2, 3))):
        (given,) = made.inputs[:1] or (made.inputs.add(),)
        change = chance.randrange(10)
        if change == 0:
            name = chance.choice(("model_name", "model_version", "id"))
            setattr(made, name, chance.choice(TEXTS))
        elif change == 1:
            setattr(given, chance.choice(("name", "datatype")), chance.choice(TEXTS))
        elif change == 2:
            given.shape[:] = chance.choices(WHOLES, k=chance.choice((0, 1, 2, 3, 100)))
        elif change == 3:
            made.raw_input_contents[:] = [b"\0" * chance.choice((0, 1, 11, 13, 24, 5000))]
        elif change == 4:
            del made.raw_input_contents[:]
            given.contents.fp32_contents[:] = [1.0] * chance.choice((0, 1, 3, 4, 900))
        elif change == 5:
            given.contents.bytes_contents.append(b"\xff" * 10)
        elif change == 6:
            made.inputs.add(name=chance.choice(TEXTS), datatype="FP32", shape=[1, 3])
        elif change == 7:
            made.outputs.add(name=chance.choice(TEXTS))
        elif change == 8:
            name = chance.choice(("timeout", "priority", "sequence_id", "signature_name", "\0"))
            made.parameters[name].string_param = chance.choice(TEXTS)
        else:
            name = chance.choice(("timeout", "priority", "sequence_id", "sequence_start"))
            made.parameters[name].int64_param = chance.choice(WHOLES)
    return made.SerializeToString()


def of_call(chance):
    method = chance.choice(METHODS_OF_GRPC)
    if method == "ModelInfer":
        data = _infer(chance)
    else:
        field = "model_name" if method == "RepositoryModelLoad" else "name"
        made = messages()[f"{method}Request"]
        takes = f"string {field}" in FIELDS[f"{method}Request"]
        data = (made(**{field: chance.choice(TEXTS)}) if takes else made()).SerializeToString()
    if chance.random() < 0.5:
        data = changed(chance, data)
    return Called(method if chance.random() < 0.98 else chance.choice(TRICKS[:5]), data)


def of_calls(chance):
    parts = [_infer(chance) for _ in range(chance.choice((1, 2, 4)))]
    return Streamed([changed(chance, x) if chance.random() < 0.3 else x for x in parts])


KINDS = {of_json: 30, of_stream: 2, of_text: 10, of_binary: 15, of_file: 8, of_path: 8}
KINDS |= {of_headers: 6, of_chunks: 4, of_bytes: 8, of_size: 0.2, of_call: 15, of_calls: 3}


def malformed(chance):
    """The next request that chance makes."""
    (made,) = chance.choices(list(KINDS), list(KINDS.values()))
    return made(chance)
