"""Trains and computes for a while in a process of its own and prints the memory left in use."""

import gc
import json
import os
import sys
import tracemalloc

import numpy as np

import eagerflow as ef
from eagerflow.op import Op
from eagerflow.tensor import Tensor


def resident():
    """Bytes of memory that the process has now."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def alive():
    """How many tensors and recorded op calls there are."""
    objects = gc.get_objects()
    return {
        "tensors": sum(type(x) is Tensor for x in objects),
        "entries": sum(type(x) is tuple and len(x) > 6 and type(x[0]) is Op for x in objects),
        "tapes": sum(type(x) is ef.GradientTape for x in objects),
    }


def collected():
    """Bytes of Python's objects, without those that the interpreter keeps for reuse."""
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


class Regression:
    """A linear model and a step of gradient descent."""

    def __init__(self):
        rng = np.random.default_rng(0)
        self.x = ef.asarray(rng.normal(size=(16, 8)))
        self.t = ef.asarray(rng.normal(size=(16, 1)))
        self.w = ef.Variable(rng.normal(size=(1, 8)))
        self.b = ef.Variable(np.zeros((1, 1)))

    def step(self):
        with ef.GradientTape() as tape:
            y = ef.sum(self.x * self.w, axis=1, keepdims=True) + self.b
            loss = ef.sum((y - self.t) * (y - self.t)) * (1 / 16)
        for variable, g in zip(
            (self.w, self.b), tape.gradient(loss, [self.w, self.b]), strict=True
        ):
            variable.assign_sub(g * 0.01)
        return loss


def eager(count):
    """Ops of several kinds outside of any tape, errors included."""
    x = ef.ones((8, 8))
    for i in range(count // 4):
        y = x * 2.0
        y = ef.sum(y + x, axis=0)
        y = y.reshape((2, 4))
        if i % 10 == 0:
            try:
                ef.add(x, y)
            except ef.errors.ShapeError:
                pass


def transforms(count):
    """Gradients of gradients, forward mode and vmap."""
    f = lambda x: ef.sum(x * x * x)
    x = ef.asarray(np.arange(3.0))
    for _ in range(count):
        ef.grad(lambda x: ef.sum(ef.grad(f)(x)))(x)
        ef.jvp(f, (x,), (x,))
        ef.vmap(f)(ef.ones((2, 3)))


KEPT = []


def leaky():
    """A planted leak."""
    KEPT.append(ef.ones((2_000,)))


def rounds(model, steps, calls, leak):
    """One share of the work."""
    for _ in range(steps):
        model.step()
        if leak:
            leaky()
    eager(calls)
    transforms(steps // 20)


def main():
    steps, calls, leak = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:] == ["leak"]
    model = Regression()
    first = float(model.step())
    rounds(model, steps // 4, calls // 4, leak)
    gc.collect()
    before = alive()
    gc.disable()  # objects in cycles would need the collector, and hold on to memory
    rounds(model, 50, 200, leak)
    after = alive()
    gc.enable()
    gc.collect()
    tracemalloc.start()
    rounds(model, 50, 200, leak)
    traced = collected()
    rounds(model, 200, 800, leak)
    grown = collected() - traced
    tracemalloc.stop()
    start = resident()
    rounds(model, steps, calls, leak)
    gc.collect()
    print(
        json.dumps(
            {
                "before": before,
                "after": after,
                "traced": grown,
                "start": start,
                "end": resident(),
                "first": first,
                "last": float(model.step()),
            }
        )
    )


if __name__ == "__main__":
    main()
