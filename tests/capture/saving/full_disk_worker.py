"""Saves under a limit of the size of files, so that the system itself refuses to write.

full_disk_worker.py PATH LIMIT
"""

import json
import resource
import sys

import numpy as np

import eagerflow as ef
from eagerflow.errors import FileFormatError


def main(path, limit):
    w = ef.Variable(np.ones(100_000), name="w", dtype="float32")
    graph = ef.capture.trace(lambda x: x + w, ef.TensorSpec((100_000,), "float32"))
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    try:
        graph.save(path)
        error = None
    except FileFormatError as raised:
        error = str(raised)
    print(json.dumps(error))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
