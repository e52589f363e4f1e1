"""Tasks of tests in processes with GPUs of a look-alike, which NCCL's look-alike connects."""

import os
import sys

from eagerflow.backends import cupy as backend
from tests.backends.lookalike import Lookalike
from tests.backends.lookalike_nccl import Nccl
from tests.cluster.processes import ProcessHosts, main, nursery


def prepare(given):
    """Have GPUs with these names, and NCCL in this version, if any."""
    cupy = sys.modules["cupy"] = Lookalike(len(given["gpus"]), given["gpus"])
    sys.modules["cupy.cuda.nccl"] = Nccl(cupy, given["version"]) if given["version"] else None
    os.environ.update(given["settings"])
    backend.count_devices.cache_clear()


class GpuHosts(ProcessHosts):
    """Each task has a GPU of its own, unless ``gpus`` says which by its name."""

    gpus = {}
    versions = {}
    settings = {}

    def born(self, task):
        given = {
            "gpus": self.gpus.get(task.name, [f"0000:{task.job}{task.index}:00.0"]),
            "version": self.versions.get(task.name, 23203),
            "settings": self.settings.get(task.name, {}),
        }
        return nursery(__name__).born(task.name, self._token, self.host, given)


if __name__ == "__main__":
    main(prepare)
