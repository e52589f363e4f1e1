"""Published measurements of training over many machines, and the known facts about their machines.

The scaling curves of synthetic data on Amazon's p2.8xlarge (8 K80, 10 Gbit/s between machines,
PCI Express 3 with 16 lanes within, a bus to the processor), with parameter servers on the machines
of the workers: https://www.tensorflow.org/performance/benchmarks (April 2017). The factors 58 and
7.3 of Inception-v3 are those of the announcement of TensorFlow 1.0 (February 2017), which says no
more of them; the machines are taken to be those of the benchmarks:
https://developers.googleblog.com/2017/02/announcing-tensorflow-10.html.
"""

from typing import NamedTuple

import eagerflow as ef

NETWORK = ef.cluster.Link(latency=5e-5, bandwidth=10e9 / 8)
PCI_EXPRESS = ef.cluster.Link(latency=1e-5, bandwidth=15.75e9, bus=True)


class Curve(NamedTuple):
    """Examples a second by numbers of GPUs; parameters are those of the papers of the models."""

    name: str
    parameters: float
    batch: int
    servers: int  # with 8 machines
    rates: dict[int, float]

    def work(self):
        """A step of one GPU, as it was measured; gradients come evenly."""
        parts = 60
        return ef.cluster.Workload(
            compute_seconds=self.batch / self.rates[1],
            gradients=[4 * self.parameters / parts] * parts,
            batch=self.batch,
            name=self.name,
        )

    def predicted(self, gpus):
        """The predicted speed-up over one GPU."""
        found = ef.cluster.simulate(
            self.work(),
            machines(gpus),
            method="parameter-servers",
            servers=min(self.servers, max(gpus // 8, 1)),
        )
        return found.last.speedup

    def measured(self, gpus):
        """The published one."""
        return self.rates[gpus] / self.rates[1]


def machines(gpus):
    """So many K80, 8 in a machine."""
    return ef.cluster.Machines(
        max(gpus // 8, 1),
        devices_per_machine=min(gpus, 8),
        link=NETWORK,
        inner=PCI_EXPRESS,
        memory=12e9,
        price=7.2,
    )


CURVES = [
    Curve("Inception-v3", 23.8e6, 64, 6, {1: 29.7, 8: 229, 16: 459, 32: 902, 64: 1783}),
    Curve("ResNet-50", 25.6e6, 64, 8, {1: 55.0, 8: 410, 16: 825, 32: 1468, 64: 3051}),
    Curve("ResNet-152", 60.2e6, 32, 4, {1: 19.8, 8: 150, 16: 300, 32: 575, 64: 1004}),
    Curve("Inception-v3", 23.8e6, 32, 6, {1: 29.2, 8: 219, 16: 427, 32: 820, 64: 1608}),
    Curve("ResNet-50", 25.6e6, 32, 4, {1: 53.0, 8: 363, 16: 719, 32: 1265, 64: 2623}),
]
# Horovod's benchmark on 128 machines of 4 Pascal GPUs, 25 Gbit/s by RoCE, buffers of 64 MiB:
# https://github.com/horovod/horovod/blob/master/docs/benchmarks.rst. Times of one GPU are those of
# TensorFlow's benchmarks on a P100. Parameters, examples a second, efficiency:
HOROVOD = {"Inception-v3": (23.8e6, 142.0, 0.90), "VGG-16": (138.4e6, 132.0, 0.68)}


def horovod(name, overlap):
    """The predicted efficiency, with all of the sending beside the backward pass or none."""
    parameters, rate, _ = HOROVOD[name]
    work = ef.cluster.Workload(64 / rate, [4 * parameters / 60] * 60, batch=64)
    link = ef.cluster.Link(latency=5e-6, bandwidth=25e9 / 8)
    pascals = ef.cluster.Machines(128, devices_per_machine=4, link=link)
    options = {"algorithm": "ring", "bucket": 64 * 2**20, "overlap": overlap}
    return ef.cluster.simulate(work, pascals, **options).last.efficiency


ANNOUNCED = {8: 7.3, 64: 58.0}  # speed-ups of Inception-v3
