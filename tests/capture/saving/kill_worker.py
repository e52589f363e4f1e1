"""Saves repeatedly in a child that is killed, and reports the files found afterwards.

    kill_worker.py KILLS SEED FOLDER whole|named|naive

``whole`` saves as ``graph.save`` does; ``named`` as it does where there are no nameless files;
``naive`` writes in place, which has to be found out.
"""

import json
import os
import random
import select
import signal
import sys
import time

import numpy as np

import eagerflow as ef
from eagerflow.capture.saving import file
from eagerflow.errors import FileFormatError
from eagerflow.files import atomic

SIZE = 4096


def naive(path, parts):
    """Overwrites the existing file, as most programs do."""
    with open(path, "wb", buffering=0) as stream:
        for part in parts:
            data = memoryview(part).cast("B")
            for start in range(0, len(data), atomic.PIECE):
                stream.write(data[start : start + atomic.PIECE])


def not_here(*_):
    raise atomic.NotHereError


def save_forever(path, first, acknowledge):
    """Save generation after generation, each with its number in every element."""
    w = ef.Variable(np.zeros(SIZE), name="w", dtype="int64")
    graph = ef.capture.trace(lambda x: x + w, ef.TensorSpec((SIZE,), "int64"))
    for generation in range(first, first + 100_000):
        w.assign(np.full(SIZE, generation))
        graph.save(path)
        os.write(acknowledge, generation.to_bytes(8, "little"))


def round_of(path, first, delay):
    """The last generation that was acknowledged before the kill."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            save_forever(path, first, writing)
        finally:
            os._exit(1)
    os.close(writing)
    assert select.select([reading], [], [], 60)[0], "nothing is saved"
    time.sleep(delay)
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status), "the child ended by itself"
    known = b""
    while part := os.read(reading, 1 << 16):
        known += part
    os.close(reading)
    return int.from_bytes(known[-8:], "little")


def generation_of(path):
    """The generation that a file holds; None where it cannot be read or is of two."""
    try:
        values = ef.capture.load(path).variables["w"].numpy()
    except FileFormatError:
        return None
    return int(values[0]) if (values == values[0]).all() else None


def main(kills, seed, folder, way):
    rng = random.Random(seed)
    path = os.path.join(folder, "model.ef")
    atomic.PIECE = 256  # many writes, so that many moments lie within one save
    if way == "naive":
        file.write_whole = naive
    if way == "named":
        atomic.Nameless._made = not_here
    found = {"unreadable": 0, "lost": 0, "litter": 0, "saves": 0}
    last = 0
    for _ in range(kills):
        before = last
        acknowledged = round_of(path, last + 1, rng.uniform(0, 0.01))
        last = generation_of(path)
        found["unreadable"] += last is None
        found["lost"] += last is not None and last < acknowledged
        found["litter"] += len(os.listdir(folder)) > 1
        last = acknowledged + 1 if last is None else last
        found["saves"] += last - before
    w = ef.Variable([1.0], name="w")
    ef.capture.trace(lambda x: x + w, ef.TensorSpec((1,), "float32")).save(path)
    found["files"] = sorted(os.listdir(folder))
    print(json.dumps(found))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4])
