"""Files that are almost right: mutations of saved graphs, each given by its number alone."""

import functools
import json
import random

import eagerflow as ef
from eagerflow.capture.saving import file
from eagerflow.op import ops
from eagerflow.tensor import Tensor
from tests.capture.saving.saved_programs import (
    PROGRAMS,
    joined,
    pieces,
    sections,
    text_of,
    with_text,
)
from tests.contract.cases import main_dtype, samples, shipped

# Replacement values: of each type, at the edges, huge, and our own forms.
STRANGE = [
    *(0, 1, -1, 2, 3, 7, 64, 65, 1000, 10**6, 2**31 - 1, 2**31, 2**61, 2**62, 2**63, 2**64 - 1),
    *(-(2**63), 10**30, 1.5, -0.0, 1e308, True, False, None, "", "x", "a/b", "same", "valid"),
    *("float64", "no", [], {}, [[]], [2, 3], [0, 1], [-1], [[1, 2], [3, 4]], [0] * 70),
    *({"slice": [None, 1, None]}, {"slice": [None, None, -(2**62)]}, {"dtype": "float32"}),
    *({"dtype": "void"}, {"graph": 0}, {"graph": -1}, {"float": "nan"}, {"float": "inf"}),
    *({"complex": [1.0, 2.0]}, {"ellipsis": True}, {"dim": [[1, "n"]]}, {"dim": [[2, "n"], [1]]}),
    *({"dim": [[-5, "batch", "batch"]]}, {"dim": []}, {"value": 0}),
    {"dim": [[1, {"quotient": [{"dim": [[1, "n"]]}, 2]}]]},
    {"dim": [[1, {"quotient": [{"dim": [[1, "n"]]}, 0]}]]},
]


def call_graph(op, sample):
    """The graph of one call of an op."""
    tensors = [x for x in sample.args if hasattr(x, "dtype") or isinstance(x, Tensor)]

    def call(*values):
        found = iter(values)
        args = [next(found) if hasattr(x, "dtype") else x for x in sample.args]
        return op.call(*args, **sample.attributes)

    return ef.capture.trace(call, *map(ef.asarray, tensors), name=op.name)


def op_graphs(count):
    """Graphs of calls of every op that can be saved, ``count`` samples each."""
    for op in shipped():
        found = samples(op, main_dtype(op))
        for i in range(0, len(found), max(1, len(found) // count)):
            try:
                yield op, found[i], call_graph(op, found[i])
            except ef.errors.CaptureError:  # ops whose results depend on values
                continue


@functools.cache
def bases():
    """The files that are mutated: programs, and a call of every op."""
    programs = [file.encode(make()) for make in PROGRAMS.values()]
    calls = [file.encode(graph) for op, _, graph in op_graphs(1) if op.name in ops]
    return programs * 20 + calls


def mutant(number):
    """A file that was a graph's, changed in one to five places."""
    rng = random.Random(number)
    data = rng.choice(bases())
    how = rng.randrange(10)
    if how == 0:
        return bytes_changed(rng, data)
    if how == 1:
        header, arrays = pieces(data)
        return joined(tree_changed(rng, header), arrays)
    if how == 2:
        text = text_of(sections(data))
        return with_text(data, bytes_changed(rng, text.encode(), 127).decode("latin1"))
    tables = sections(data)
    part = rng.choice(("attributes", "graphs", "nodes", "nodes", "ops", "types", "variables"))
    tables[part] = tree_changed(rng, tables[part])
    if not isinstance(tables[part], list):
        tables[part] = [tables[part]]
    return with_text(data, text_of(tables))


def bytes_changed(rng, data, top=255):
    data = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 5))):
        if not data:
            break
        at, how = rng.randrange(len(data)), rng.randrange(6)
        if how == 0:
            data[at] = min(top, data[at] ^ (1 << rng.randrange(8)))
        elif how == 1:
            data[at] = rng.randrange(top + 1)
        elif how == 2:
            del data[at : at + rng.choice((1, 4, 50))]
        elif how == 3:
            data[at:at] = bytes(rng.randrange(top + 1) for _ in range(rng.choice((1, 4))))
        elif how == 4:
            del data[at:]
        else:
            other = rng.randrange(len(data))
            data[at : at + 8] = data[other : other + 8]
    return bytes(data)


def tree_changed(rng, tree):
    """A JSON tree with one to three of its parts replaced, removed, moved or repeated."""
    for _ in range(rng.choice((1, 1, 2, 3))):
        tree = {"": tree}
        places = list(every_place(tree))
        parent, key = rng.choice(places)
        how = rng.randrange(7)
        if how < 3 or (parent is tree and how < 6):
            parent[key] = copied(rng.choice(STRANGE))
        elif how == 3:
            del parent[key]
        elif how == 4:
            other, place = rng.choice(places)
            if place in other if isinstance(other, dict) else place < len(other):
                parent[key] = copied(other[place])
        elif how == 5 and isinstance(parent, list):
            parent.insert(key, copied(parent[key]))
        elif type(parent.get(key) if isinstance(parent, dict) else parent[key]) is int:
            parent[key] += rng.choice((-1, 1, 2, 100))
        tree = tree.get("")
    return tree


def every_place(tree):
    for key, part in list(tree.items() if isinstance(tree, dict) else enumerate(tree)):
        yield tree, key
        if isinstance(part, list | dict):
            yield from every_place(part)


def copied(part):
    return json.loads(json.dumps(part))
