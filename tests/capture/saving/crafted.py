"""Files that an attacker could write, each by its name."""

import io
import json
import pickle
import zipfile

import numpy as np

from eagerflow.capture.saving import file
from tests.capture.saving.saved_programs import (
    branch,
    changed,
    dense,
    flags,
    joined,
    pieces,
    sections,
    text_of,
    training_step,
    with_text,
)
from tests.plan.programs import ODD

LENGTHS = (0, 1, 8, 2**31, 2**32, 2**62, 2**63, 2**64 - 1, 100_000_001)
DTYPES = ("U128", "", "f32", "F4", "object", "F32 ", None, 5, ["F32"], {"F32": 1})
SHAPES = (
    *([-1], [-1, -2], [2**63], [2**64], [10**3000], [4194305, 4194305, 211106198978564], [2.0]),
    *([True], ["2"], None, 2, [[2]], {"0": 2}, [1] * 65 + [2], [0, 2**62, 2**62], [], [1]),
)
OFFSETS = (
    *([8, 0], [-8, 0], [0, 800], [2**63, 2**63 + 8], [0], [0, 8, 16], ["0", "8"], [0.0, 8.0]),
    *(None, [False, True], [1, 9], [8, 16], [float("nan"), 8]),
)
NOT_UTF8 = {
    "continuation": b"\x80",
    "overlong": b"\xc0\xaf",
    "cut": b"\xe2\x82",
    "surrogate": b"\xed\xa0\x80",
    "too high": b"\xf5\x80\x80\x80",
    "latin": b"\xe9",
}
HEADERS = (
    *("", "{}", "[]", '"x"', "1", "null", "{", "}", '{"a"', '{"a":{},}', "{'a':1}", "{}//"),
    *("\ufeff{}", "{}{}", "{1:2}", "   ", '{"a":{1:2}}', '{"a":{"dtype":1,"dtype":2}}'),
    *('{"a" {}}', "{a:1}", '{"a\nb":{}}', '{"a":NaN}', '{"\\x41":{}}', '{"\\ud800":{}}'),
    *('{"\x00":{}}', '{"__metadata__":[]}', '{"__metadata__":null}'),
    *('{"__metadata__":{"format":1}}', '{"__metadata__":{"format":{"a":"b"}}}'),
    *('{"__metadata__":{},"__metadata__":{}}', '{"__metadata__":{"a":"b","a":"b"}}'),
    '{"__metadata__":{' + ",".join(f'"{i}":""' for i in range(65)) + "}}",
)


def containers():
    """Files that are invalid for any graph."""
    base = file.encode(dense())
    header, arrays = pieces(base)
    for count in range(8):
        yield f"{count} bytes", base[:count]
    for length in (*LENGTHS, len(base), len(base) - 7):
        yield f"header length {length}", length.to_bytes(8, "little") + base[8:]
    for name, words in NOT_UTF8.items():
        yield f"UTF-8 {name}", joined(b'{"' + words + b'":{}}')
    for words in HEADERS:
        yield f"header {words!r:.60}", joined(words)
    for i in range(8, len(base), len(base) // 12):
        yield f"cut at {i}", base[:i]
    for count in (1, 8, 1000):
        yield f"{count} trailing bytes", base + b"\0" * count

    def entry(**more):
        new = json.loads(json.dumps(header))
        for key, value in more.items():
            new["constant"][key] = value
        return joined(new, arrays)

    for dtype in DTYPES:
        yield f"dtype {dtype!r}", entry(dtype=dtype)
    for shape in SHAPES:
        yield f"shape {shape!s:.60}", entry(shape=shape)
    for ends in OFFSETS:
        yield f"offsets {ends}", entry(data_offsets=ends)
    yield "entry with more", entry(more=1)
    words = json.dumps(header)
    yield "entry's key twice", joined(words.replace('"shape"', '"dtype": "F32", "shape"'), arrays)
    moved = header | {"dense/kernel": header["dense/kernel"] | {"data_offsets": [16, 40]}}
    yield "bytes between tensors", joined(moved, arrays[:8] + bytes(8) + arrays[8:])
    yield "entry twice", joined(json.dumps(header)[:-1] + ',"constant":{}}', arrays)
    yield (
        "all tensors in one place",
        joined(
            {k: v if k == "__metadata__" else header["constant"] for k, v in header.items()}, arrays
        ),
    )
    for key, value in {"format": "pt", "version": "2", "graph": ""}.items():
        new = json.loads(json.dumps(header))
        new["__metadata__"][key] = value
        yield f"metadata {key}", joined(new, arrays)
        del new["__metadata__"][key]
        yield f"metadata without {key}", joined(new, arrays)
    yield from large_headers()
    yield from strangers()


def large_headers():
    """Files whose headers are deep or long."""
    yield "deep entry", joined('{"a":' + "[" * 10_000 + "]" * 10_000 + "}")
    yield "deep objects", joined('{"a":' * 10_000 + "1" + "}" * 10_000)
    yield "deep metadata", joined('{"__metadata__":' * 10_000 + "{}" + "}" * 10_000)
    row = '{"dtype":"U8","shape":[0],"data_offsets":[0,0]}'
    yield (
        "a million tensors",
        joined("{" + ",".join(f'"{i}":{row}' for i in range(1_000_000)) + "}"),
    )
    yield (
        "a million texts",
        joined('{"__metadata__":{' + ",".join(f'"{i}":""' for i in range(1_000_000)) + "}}"),
    )
    yield "an emoji before 20 MB", joined('{"\U0001f600":"' + "x" * 20_000_000 + '"}')
    yield "20 MB of quotes", joined('{"' + '\\"' * 10_000_000)
    yield "20 MB of blanks", joined(" " * 20_000_000 + "{}")
    yield "20 MB of brackets", joined("[" * 20_000_000)


def strangers():
    """Files of other formats under our extension."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("model.json", "{}")
    yield "zip", stream.getvalue()
    for protocol in (0, 2, 3, 4, 5):
        yield f"pickle {protocol}", pickle.dumps({"weights": [1.0] * 100}, protocol)
    stream = io.BytesIO()
    np.save(stream, np.arange(3))
    yield "npy", stream.getvalue()
    yield "HDF5", b"\x89HDF\r\n\x1a\n" + b"\0" * 100
    yield "gzip", b"\x1f\x8b\x08\0" + b"\0" * 100
    yield "script", b"#!/usr/bin/env python\nimport os\nos.system('true')\n"
    yield "JSON", b'{"layers": []}'
    yield "zeros", bytes(1000)
    yield "ones", b"\xff" * 1000


def put(part, index, *path):
    """A change of one place in a row: the end of ``path`` is put there; ``...`` removes it."""
    *keys, value = path

    def change(tables):
        place, last = tables[part], index
        for key in keys:
            place, last = place[last], key
        if value is ...:
            del place[last]
        else:
            place[last] = value

    return change


def rows(part, value):
    """A change of a whole table."""

    def change(tables):
        tables[part] = value(tables[part])

    return change


# Node rows of ``dense``: matmul tanh add multiply getitem sum; values: x kernel constant, then 3...
CHANGES = {
    "missing value": put("nodes", 1, 2, [99]),
    "later value": put("nodes", 1, 2, [5]),
    "own value": put("nodes", 1, 2, [4]),
    "negative value": put("nodes", 1, 2, [-1]),
    "value as a text": put("nodes", 1, 2, ["3"]),
    "value as a float": put("nodes", 1, 2, [3.0]),
    "value as a flag": put("nodes", 1, 2, [True]),
    "no inputs": put("nodes", 1, 2, []),
    "too many inputs": put("nodes", 1, 2, [3, 3]),
    "null input": put("nodes", 1, 2, [None]),
    "number input of one": put("nodes", 1, 2, [[1.0]]),
    "number input of a product": put("nodes", 0, 2, [0, [1.0]]),
    "text input": put("nodes", 3, 2, [1, ["a"]]),
    "tuple input": put("nodes", 3, 2, [1, [[1, 2]]]),
    "graph input": put("nodes", 3, 2, [1, [{"graph": 0}]]),
    "empty number": put("nodes", 3, 2, [1, []]),
    "name of another": put("nodes", 1, 1, "dense/matmul"),
    "name of an input": put("nodes", 1, 1, "x"),
    "empty name": put("nodes", 1, 1, ""),
    "name as a number": put("nodes", 1, 1, 1),
    "unknown op": put("nodes", 1, 0, "os.system"),
    "op not listed": put("nodes", 1, 0, "sin"),
    "op as a number": put("nodes", 1, 0, 0),
    "other op": put("nodes", 1, 0, "matmul"),
    "op with a dot": put("ops", 0, 0, "eagerflow.ops.add"),
    "op version 2": put("ops", 0, 1, 2),
    "op version 0": put("ops", 0, 1, 0),
    "op version huge": put("ops", 0, 1, 10**30),
    "op version text": put("ops", 0, 1, "1"),
    "op row short": put("ops", 0, ["add"]),
    "ops of a dict": put("ops", 0, {"add": 1}),
    "attributes missing": put("nodes", 5, 3, None),
    "attributes of another": put("nodes", 5, 3, 0),
    "attributes 99": put("nodes", 5, 3, 99),
    "attributes -1": put("nodes", 5, 3, -1),
    "attributes of none": put("nodes", 1, 3, 1),
    "attribute unknown": put("attributes", 1, "more", 1),
    "attribute removed": put("attributes", 1, "axis", ...),
    "attribute list": put("attributes", 1, []),
    "axis out of range": put("attributes", 1, "axis", 5),
    "axis huge": put("attributes", 1, "axis", 2**70),
    "axis too large for any": put("attributes", 1, "axis", 2**2000),
    "axis as a text": put("attributes", 1, "axis", "0"),
    "axis as a float": put("attributes", 1, "axis", 0.5),
    "axis as a slice": put("attributes", 1, "axis", {"slice": [0, 1, 2]}),
    "axis as a graph": put("attributes", 1, "axis", {"graph": 0}),
    "axis as a dict": put("attributes", 1, "axis", {"a": 1, "b": 2}),
    "axis of nothing": put("attributes", 1, "axis", {}),
    "axis of an unknown kind": put("attributes", 1, "axis", {"eval": "1"}),
    "dtype unknown": put("attributes", 1, "dtype", {"dtype": "object"}),
    "dtype a list": put("attributes", 1, "dtype", {"dtype": ["float32"]}),
    "complex of texts": put("attributes", 1, "axis", {"complex": ["1", "2"]}),
    "float of a word": put("attributes", 1, "axis", {"float": "1e5"}),
    "slice of two": put("attributes", 0, "index", [{"slice": [1, 2]}]),
    "slice of slices": put("attributes", 0, "index", [{"slice": [{"slice": [1, 2, 3]}] * 3}]),
    "index out of range": put("attributes", 0, "index", [{"ellipsis": True}, 7]),
    "too many indices": put("attributes", 0, "index", [0] * 70),
    "two ellipses": put("attributes", 0, "index", [{"ellipsis": True}] * 2),
    "ellipsis of false": put("attributes", 0, "index", [{"ellipsis": False}]),
    "step 0": put("attributes", 0, "index", [{"slice": [None, None, 0]}]),
    "size of no terms": put("types", 0, 1, [{"dim": []}, 3]),
    "size of a text": put("types", 0, 1, [{"dim": "n"}, 3]),
    "size of an expression": put("types", 0, 1, [{"dim": [[1, "n+1"]]}, 3]),
    "size with a float": put("types", 0, 1, [{"dim": [[1.5, "n"]]}, 3]),
    "size divided by 0": put(
        "types", 0, 1, [{"dim": [[1, {"quotient": [{"dim": [[1, "n"]]}, 0]}]]}, 3]
    ),
    "size of numbers": put("types", 0, 1, [{"dim": [[1, {"quotient": [7, 2]}]]}, 3]),
    "size of a quotient that is none": put(
        "types", 0, 1, [{"dim": [[1, {"quotient": [{"dim": [[2, "n"], [2]]}, 2]}]]}, 3]
    ),
    "size of a power": put("types", 0, 1, [{"dim": [[1, {"power": ["n", 2]}]]}, 3]),
    "size of 300 names": put("types", 0, 1, [{"dim": [[1, f"n{i}"] for i in range(300)]}]),
    "sizes that explode": put("types", 0, 1, [{"dim": [[1, "a"], [1, "b"]]}] * 64),
    "size of 1000 factors": put("types", 0, 1, [{"dim": [[1, *["n"] * 1000]]}]),
    "type unknown": put("types", 0, 0, "float31"),
    "type null": put("types", 0, 0, None),
    "type of another": put("nodes", 1, 5, [3]),
    "type 99": put("nodes", 1, 5, [99]),
    "type -1": put("nodes", 1, 5, [-1]),
    "types none": put("nodes", 1, 5, []),
    "types two": put("nodes", 1, 5, [1, 1]),
    "result of strange parts": put("nodes", 1, 5, [[1, 5, None]]),
    "result with the name of another": put("nodes", 1, 5, [[1, "x", None]]),
    "shape negative": put("types", 2, 1, [-3, 2]),
    "shape 2^63": put("types", 2, 1, [2**63, 2]),
    "shape overflow": put("types", 2, 1, [4194305, 4194305, 211106198978564]),
    "shape other": put("types", 2, 1, [2, 3]),
    "shape of floats": put("types", 2, 1, [3.0, 2.0]),
    "shape of 65": put("types", 2, 1, [1] * 65),
    "source 99": put("nodes", 1, 4, 99),
    "source short": put("sources", 0, ["a.py"]),
    "source line text": put("sources", 0, 1, "1"),
    "device a number": put("nodes", 1, ["tanh", "dense/tanh", [3], None, 0, [1], 7]),
    "node of eight": put("nodes", 1, ["tanh", "dense/tanh", [3], None, 0, [1], "cpu:0", 1]),
    "node a number": put("nodes", 1, 5),
    "node a dict": put("nodes", 1, {"op": "tanh"}),
    "node null": put("nodes", 1, None),
    "node twice": rows("nodes", lambda r: [r[0], *r]),
    "nodes reversed": rows("nodes", lambda r: r[::-1]),
    "no nodes": rows("nodes", lambda r: []),
    "one node less": rows("nodes", lambda r: r[:-1]),
    "one node more": rows("nodes", lambda r: [*r, r[-1]]),
    "no graphs": rows("graphs", lambda r: []),
    "graph twice": rows("graphs", lambda r: [*r, *r]),
    "graph a list": put("graphs", 0, []),
    "graph of more": put("graphs", 0, "code", "import os"),
    "graph of less": put("graphs", 0, "name", ...),
    "graph of -1 nodes": put("graphs", 0, "nodes", -1),
    "graph of 10^9 nodes": put("graphs", 0, "nodes", 10**9),
    "graph of true nodes": put("graphs", 0, "nodes", True),
    "output missing": put("graphs", 0, "outputs", [["y", 99]]),
    "output a name": put("graphs", 0, "outputs", ["y"]),
    "outputs of one name": put("graphs", 0, "outputs", [["y", 5], ["y", 8]]),
    "results in another order": put("graphs", 0, "results", [{"value": 8}, 3, {"value": 5}, None]),
    "results of others": put("graphs", 0, "results", [{"value": 3}, 3, {"value": 8}, None]),
    "results of code": put("graphs", 0, "results", [{"__reduce__": "os.system"}]),
    "results too few": put("graphs", 0, "results", [{"value": 5}, {"value": 8}]),
    "structure of a class": put("graphs", 0, "structure", {"os.system": []}),
    "structure of a number": put("graphs", 0, "structure", 5),
    "structure with two kinds": put("graphs", 0, "structure", {"list": [], "tuple": []}),
    "structure smaller": put("graphs", 0, "structure", {"tuple": ["*"]}),
    "structure with keys twice": put("graphs", 0, "structure", {"dict": [["a", "*"], ["a", "*"]]}),
    "structure with list keys": put("graphs", 0, "structure", {"dict": [[{"a": 1}, "*"]]}),
    "structure with a nan key": put("graphs", 0, "structure", {"dict": [[{"float": "nan"}, "*"]]}),
    "structure with odd pairs": put("graphs", 0, "structure", {"dict": [["a"]]}),
    "structure null inside": put("graphs", 0, "structure", {"list": [None]}),
    "structure of a mask alone": put("graphs", 0, "structure", {"masked": ["*"]}),
    "arguments of a class": put("graphs", 0, "arguments", {"Layer": ["*"]}),
    "cell missing": put("graphs", 0, "cells", []),
    "cell twice": put("graphs", 0, "cells", [["a", 0, "a", None], ["b", 0, "b", None]]),
    "cell of variable 9": put("graphs", 0, "cells", 0, 1, 9),
    "cell of variable -1": put("graphs", 0, "cells", 0, 1, -1),
    "cell gets nothing": put("graphs", 0, "cells", 0, 3, 99),
    "cell gets another shape": put("graphs", 0, "cells", 0, 3, 5),
    "cell gets a text": put("graphs", 0, "cells", 0, 3, "x"),
    "cell of a taken name": put("graphs", 0, "cells", 0, 2, "x"),
    "input twice": put("graphs", 0, "inputs", [["x", "x", 0, None], ["x", "x", 0, None]]),
    "input of a strange type": put("graphs", 0, "inputs", 0, 2, "float32"),
    "inputs none": put("graphs", 0, "inputs", []),
    "constant without a tensor": put("graphs", 0, "constants", 0, 2, "nothing"),
    "constant short": put("graphs", 0, "constants", [["constant"]]),
    "output short": put("graphs", 0, "outputs", [["y"]]),
    "cell short": put("graphs", 0, "cells", [["w"]]),
    "constant of a Variable": put("graphs", 0, "constants", 0, 2, "dense/kernel"),
    "constant of another type": put("graphs", 0, "constants", 0, 1, 2),
    "constant of a free size": put("graphs", 0, "constants", 0, 1, 0),
    "constants none": put("graphs", 0, "constants", []),
    "variable of another type": put("variables", 0, 2, 5),
    "variable of a free size": put("variables", 0, 2, 0),
    "variable of a constant": put("variables", 0, 1, "constant"),
    "variable without a tensor": put("variables", 0, 1, "nothing"),
    "variable without a flag": put("variables", 0, 3, 1),
    "variable short": put("variables", 0, []),
    "variables twice": rows("variables", lambda r: [*r, *r]),
    "variables none": rows("variables", lambda r: []),
    "list of ten million": rows("attributes", lambda r: ["[" + "0," * 10_000_000 + "0]", *r[1:]]),
    "list of 400,000": put("attributes", 0, "index", [0] * 400_000),
    "a million keys": rows(
        "attributes", lambda r: ["{" + ",".join(f'"{i}":0' for i in range(1_000_000)) + "}", *r[1:]]
    ),
    "keys twice": rows(
        "attributes", lambda r: [r[0], '{"axis":null,"axis":null,"dtype":null,"keepdims":false}']
    ),
    "not a number": rows(
        "attributes", lambda r: [r[0], '{"axis":NaN,"dtype":null,"keepdims":false}']
    ),
    "no number at all": rows("attributes", lambda r: [r[0], '{"axis":Infinity}']),
    "5000 digits": rows("attributes", lambda r: [r[0], '{"axis":' + "9" * 5000 + "}"]),
    "deep row": rows("attributes", lambda r: ["[" * 10_000 + "]" * 10_000, *r[1:]]),
    "deep attribute": put("attributes", 0, "index", json.loads("[" * 100 + "]" * 100)),
    "deep structure": put(
        "graphs", 0, "structure", json.loads('{"list":[' * 90 + '"*"' + "]}" * 90)
    ),
    "deep structure of 10,000": rows(
        "graphs", lambda r: ['{"structure":' + '{"list":[' * 10_000 + "]}" * 10_000 + "}"]
    ),
}


def programs():
    """Files whose graph is wrong."""
    base = file.encode(dense())
    for name, change in CHANGES.items():
        yield name, changed(base, change)
    text = text_of(sections(base))
    texts = {
        "blank before": " " + text,
        "blank within": text.replace("],", "], ", 1),
        "blank after": text + "\n",
        "nothing": "{}",
        "beginning alone": text[:100],
        "sections in another order": text.replace('"nodes"', '"nodez"'),
        "no commas between rows": text.replace(",\n[", "\n["),
        "windows lines": text.replace("\n", "\r\n"),
        "lines alone": "\n" * 100,
        "four million lines": "\n" * 4_000_001,
        "rest": text + "{}",
        "accents": text.replace("x", "é"),
        "a section twice": text[:-1] + ',\n"variables":[\n]}',
    }
    for name, words in texts.items():
        yield f"text with {name}", with_text(base, words)
    header, arrays = pieces(base)
    yield (
        "tensor that nothing uses",
        joined(header | {"more": {"dtype": "U8", "shape": [0], "data_offsets": [0, 0]}}, arrays),
    )
    yield "no tensors", joined({"__metadata__": header["__metadata__"]})
    step = file.encode(training_step())
    yield "two Variables of one tensor", changed(step, put("variables", 1, 1, "w"))
    yield "two Variables of one name", changed(step, put("graphs", 0, "cells", 1, 0, "steps"))
    truth = file.encode(flags())
    yield (
        "constant of a Variable's tensor",
        changed(truth, put("graphs", 0, "constants", 0, 2, "shown")),
    )
    yield "constant of another dtype", changed(truth, put("types", 0, 0, "int8"))
    yield "truth values of 2", truth[:-1] + b"\x02"
    # Work that a few rows stand for: a large attribute that very many nodes share.
    yield "shared rows", changed(base, share)
    yield (
        "many results of one name",
        changed(base, put("nodes", 1, ["tanh", "n" * 1_000_000, [3], None, 0, [1] * 100_000])),
    )
    yield "a billion parts", changed(base, unstacked(10**9))
    yield "a billion pieces", changed(base, pieced)
    yield "pieces of nothing", changed(base, lambda tables: pieced(tables, None))


def places():
    """Valid files with hostile paths and names, which must not be run or shown."""
    base = file.encode(dense())
    for number, odd in enumerate(ODD):
        for how in range(3):
            yield (
                f"odd place {number} {how}",
                changed(base, lambda t, o=odd, h=how: odd_place(t, o, h)),
            )


def odd_place(tables, odd, how):
    if how == 0:
        tables["sources"] = [[f"a.py{odd}", 1, odd] for _ in tables["sources"]]
    elif how == 1:
        tables["nodes"][1][1] = f"dense/{odd}tanh"
        tables["graphs"][0]["name"] = odd
    else:
        tables["graphs"][0]["inputs"][0][:2] = [odd, odd or "x"]


def share(tables):
    tables["attributes"].append({"index": [{"ellipsis": True}] + [None] * 30_000})
    for i in range(20_000):
        tables["nodes"].append(["getitem", f"n{i}", [5], 2, 0, [1]])
    tables["graphs"][0]["nodes"] += 20_000


def unstacked(count):
    def change(tables):
        tables["types"].append(["float32", [count]])
        tables["attributes"] += [{"axis": 0}, {"shape": [count]}]
        tables["ops"] += [["unstack", 1], ["broadcast_to", 1]]
        tables["nodes"] += [
            ["broadcast_to", "wide", [8], 3, 0, [6]],
            ["unstack", "parts", [9], 2, 0, [4, 4]],
        ]
        tables["graphs"][0]["nodes"] += 2

    return change


def pieced(tables, attributes=2):
    unstacked(10**9)(tables)
    tables["attributes"][2] = {"axis": 0, "indices_or_sections": 10**9}
    tables["ops"][6] = ["split", 1]
    tables["nodes"][7][0], tables["nodes"][7][3] = "split", attributes


def nests():
    """Files with graphs in graphs; the op ``test_call`` has to be there."""
    base = file.encode(branch("outer", branch("middle", branch("inner"))))
    yield "graph of itself", changed(base, put("attributes", 0, "body", {"graph": 1}))
    yield "graph of a later one", changed(base, put("attributes", 0, "body", {"graph": 2}))
    yield "graph -1", changed(base, put("attributes", 0, "body", {"graph": -1}))
    yield "graph of a text", changed(base, put("attributes", 0, "body", {"graph": "inner"}))
    yield "graph that nothing uses", changed(base, rows("graphs", lambda r: [r[0], *r]))
    yield "no graph", changed(base, put("attributes", 0, "body", None))
    yield "10,000 deep", changed(base, lambda tables: deep(tables, 10_000, 1))
    yield "66 deep", changed(base, lambda tables: deep(tables, 66, 1))
    # Thirty graphs, each twice in the next: a billion nodes if they were counted out.
    yield "doubled 30 times", changed(base, lambda tables: deep(tables, 30, 2))


def deep(tables, count, width):
    """Graphs each of which calls the one before it, ``width`` times."""
    row = tables["graphs"][2]
    made, nodes, attributes = [tables["graphs"][0]], [tables["nodes"][0]], []
    for i in range(count):
        attributes.append({"body": {"graph": i}})
        made.append(row | {"nodes": width})
        nodes += [["test_call", f"call{j or ''}", [0], i, None, [0]] for j in range(width)]
    for new in made[1:]:
        new["outputs"] = [["y", 1]]
        new["results"] = [{"value": 1}]
    tables["graphs"], tables["nodes"], tables["attributes"] = made, nodes, attributes
