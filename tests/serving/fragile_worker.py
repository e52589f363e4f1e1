"""A worker of a server that ends, hangs or does not start where an input or a file says so."""

import os
import signal
import sys
import time

import numpy as np

from eagerflow.serving import worker
from eagerflow.serving.model import ModelVersion

ENDS, HANGS = 666.0, 777.0
DEADLY = "deadly"  # the name of a model
NO_START = "TEST_WORKERS_DO_NOT_START"  # names a file: while it is there, workers end at once

_compute = ModelVersion.compute


def compute(self, inputs, outputs):
    arrays = [np.asarray(x) for x in inputs]
    if self.name == DEADLY or any((array == ENDS).any() for array in arrays):
        os.kill(os.getpid(), signal.SIGKILL)
    if any((array == HANGS).any() for array in arrays):
        time.sleep(1000)
    return _compute(self, inputs, outputs)


if __name__ == "__main__":
    if os.path.exists(os.environ.get(NO_START, "")):
        sys.exit(3)
    ModelVersion.compute = compute
    worker.main(*map(int, sys.argv[1:]))
