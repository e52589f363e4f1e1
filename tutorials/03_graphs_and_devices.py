# ---
# jupyter:
#   jupytext:
#     formats: py:percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Graphs over several devices
#
# A captured graph can be spread over devices: what you pin stays where you say, the rest is placed
# by cost, and every edge that crosses devices becomes a Send and a Recv. This machine may have only
# a CPU. Two *logical* devices, each with its share of the cores, show everything that real ones do.

# %%
import json
import time

import numpy as np

import eagerflow as ef

ef.set_logical_devices("cpu", 2)
ef.devices("cpu")

# %% [markdown]
# ## The classic example
#
# `s += W @ x + b`: the parameters lie on one device, as on a parameter server, and the arithmetic
# runs on another one. A Variable lies where it was made. `ef.device` says where the calls inside it
# are to run.

# %%
rng = np.random.default_rng(0)
W = ef.Variable(rng.standard_normal((3, 4)).astype("float32"), name="W", device="cpu:0")
b = ef.Variable(np.ones(3, "float32"), name="b", device="cpu:0")
s = ef.Variable(np.zeros(3, "float32"), name="s", device="cpu:0")


def step(x):
    with ef.device("cpu:1"):
        s.assign_add(W @ x + b)
    return s.value


graph = ef.capture.trace(step, ef.TensorSpec((4,), "float32", name="x"))
print(graph)

# %% [markdown]
# Partitioned, each value goes to the other device once. `print(plan)` shows the pieces of each
# device and the bill, before anything runs. Here it says what it should say: four numbers are not
# worth a second device.

# %%
plan = ef.capture.partition(graph, ["cpu:0", "cpu:1"], numerics="exact")
print(plan)

# %%
x = ef.tensor([1.0, 2.0, 3.0, 4.0])
wanted = W.numpy() @ x.numpy() + b.numpy()
print(plan(x))
print(plan(x))
np.testing.assert_allclose(s.numpy(), 2 * wanted, rtol=1e-6)

# %% [markdown]
# `cuts` lists what crosses, with the exact number of bytes, and `explain` says why a node is where
# it is.

# %%
for cut in plan.cuts:
    print(cut)
print(plan.explain("matmul"))
print(plan.explain("W"))
assert sum(cut.bytes for cut in plan.cuts) == 4 * (12 + 4 + 3 + 3 + 3)

# %% [markdown]
# What was cut is a graph as well, with Send and Recv in it. It can be checked, saved and drawn.

# %%
plan.partitioned.check()
print(plan.partitioned)

# %% [markdown]
# ## Nothing pinned: placed by cost
#
# Two branches that do not need each other, and enough work in both. The costs come from a
# calibration that takes about a second once on each machine. The placement gives each node to the
# device on which it ends earliest.


# %%
def two_branches(x, *weights):
    a = b = x
    for w, v in zip(weights[::2], weights[1::2], strict=True):
        a, b = ef.tanh(a @ w), ef.sin(b @ v)
    return (a * b).mean()


arguments = [ef.tensor(rng.standard_normal((384, 384)).astype("float32") / 20) for _ in range(9)]
branches = ef.capture.trace(two_branches, *arguments)
one = ef.capture.partition(branches, ["cpu:0"])
two = ef.capture.partition(branches, ["cpu:0", "cpu:1"])
print(two.bill)
for name in ("matmul_2", "matmul_3"):
    print(name, "on", two.explain(name))

# %% [markdown]
# The results agree. With `numerics="exact"` they have the very bits of the unpartitioned graph.

# %%
exact = ef.capture.partition(branches, ["cpu:0", "cpu:1"], numerics="exact")
whole = ef.capture.partition(branches, ["cpu:0"], numerics="exact")
assert exact(*arguments).numpy().tobytes() == whole(*arguments).numpy().tobytes()
print(float(one(*arguments)), float(two(*arguments)), float(exact(*arguments)))

# %% [markdown]
# After some runs, `compare` sets what was predicted beside what was measured.


# %%
def best_of(plan, runs=10):
    times = []
    for _ in range(runs):
        begin = time.perf_counter()
        plan(*arguments)
        times.append(time.perf_counter() - begin)
    return min(times)


print(f"one device {best_of(one) * 1e3:.1f} ms, two devices {best_of(two) * 1e3:.1f} ms")
print(two.compare())

# %% [markdown]
# And `timeline` writes what ran when, one row for each device, for any viewer of Chrome traces
# (`chrome://tracing`, Perfetto).

# %%
two.timeline("branches.json")
with open("branches.json") as file:
    events = json.load(file)["traceEvents"]
for event in events:
    if event["ph"] == "X":
        print(
            f"{event['name']} in row {event['tid']}: {event['ts']:.0f} µs + {event['dur']:.0f} µs"
        )

# %% [markdown]
# ## What cannot be placed
#
# A pin that the devices do not allow is an error that names the line and what to do.

# %%
try:
    ef.capture.partition(graph, ["cpu:0"])
except ef.errors.PlacementError as error:
    print(error)
