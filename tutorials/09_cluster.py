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
# # One machine to many
#
# A network that learns on one device learns on two workers with the same numbers, and the program
# changes by two lines. This page does that, looks at what goes between the workers, lets servers
# keep the weights, ends a worker in the middle, and asks at last whether all of it is worth it. It
# needs `pip install "eagerflow[demo]"`, no GPU and no download: the workers are threads here. As
# processes, on one machine or on several, they need the extra `cluster`, and no other line.

# %%
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

import eagerflow as ef

images, labels = load_digits(return_X_y=True)
x, y = (images / 16).astype("float32"), labels.astype("int64")


def network():
    ef.random.seed(0)
    layers = [ef.nn.Dense(64, "relu"), ef.nn.Dense(32, "relu"), ef.nn.Dense(10)]
    model = ef.nn.Sequential([ef.nn.Input((64,)), *layers])
    loss = ef.nn.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(ef.nn.optimizers.Adam(2e-3), loss, metrics=["accuracy"])
    return model


def show(history):
    loss, accuracy = history.history["loss"][-1], history.history["accuracy"][-1]
    print(f"loss {loss:.6f}, accuracy {accuracy:.1%}")


# %% [markdown]
# ## One device

# %%
one = network()
alone = one.fit(x, y, batch_size=64, epochs=6, verbose=0)
show(alone)

# %% [markdown]
# ## Two workers
#
# A cluster is jobs of numbered tasks. `DataParallel` gives each worker a replica of the network and
# its half of every batch: `batch_size` is that of the whole, so nothing else is to be tuned anew.

# %%
two = network()
with ef.cluster.Cluster({"worker": 2}, local=True) as cluster:
    strategy = ef.cluster.DataParallel(cluster)
    together = two.fit(x, y, batch_size=64, epochs=6, verbose=0, strategy=strategy)
    status = cluster.status()
    cuts = ef.capture.partition(strategy.graphs[0], strategy.devices).cuts
show(together)

# %% [markdown]
# The digits agree. They are not the same bits, as the sum over a batch is now the sum of two sums;
# but two runs on two workers have the same bits, since sums have one order whatever comes first.
#
# Without `local=True` the same program runs in processes that Ray starts on this machine, and with
# `address="10.0.0.1:6379"` on the machines of [a Ray cluster](../docs/cluster.md). There is no
# script for workers, no rank, and nothing to launch: this program leads, and brings the data.

# %%
np.testing.assert_allclose(alone.history["loss"], together.history["loss"], rtol=1e-4)
for a, b in zip(one.get_weights(), two.get_weights(), strict=True):
    print(f"{a.shape!s:9} largest difference {np.abs(a - b).max():.1e}")

# %% [markdown]
# ## What goes between them
#
# `status` prints as a table of the tasks, and is a picture in a notebook. Most of what the
# first worker has sent was there to measure the link, once for each two machines.

# %%
print(status)

# %%
status

# %% [markdown]
# A strategy makes one graph of the step for all workers, with a Send and a Recv wherever a value
# changes its place. Each weight has a home: the other worker's part of its gradient comes there and
# is added, the optimizer's state is kept there alone, and the new weight goes back.

# %%
for cut in cuts:
    source, target = (place.removesuffix("/device:cpu:0") for place in (cut.source, cut.target))
    print(f"{cut.value:28} {cut.bytes:6,} bytes from {source} to {target}")

# %% [markdown]
# ## Weights with a server
#
# With `ParameterServer` the weights and the optimizer's state lie with the job `ps`. Asynchronous,
# each batch goes to one worker: it pulls the weights, computes, and pushes its gradients into the
# weights as they are by then. Nobody waits, but for `staleness`: no worker may be more than so many
# steps ahead of the slowest one.

# %%
jobs = {"worker": 2, "ps": 1}


def served(**options):
    model = network()
    with ef.cluster.Cluster(jobs, local=True) as cluster:
        strategy = ef.cluster.ParameterServer(cluster, mode="asynchronous", **options)
        history = model.fit(x, y, batch_size=64, epochs=6, verbose=0, strategy=strategy)
    return model, history, strategy.schedule


first, stale, schedule = served(staleness=4)
show(stale)

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.2), layout="constrained")
left.plot(range(1, 7), alone.history["loss"], color="0.7", linewidth=6, label="one device")
left.plot(range(1, 7), together.history["loss"], label="two workers, in step")
left.plot(range(1, 7), stale.history["loss"], "--", label="two workers, asynchronous")
left.set(xlabel="epoch", ylabel="loss", title="the same loss, or nearly")
left.legend()
begins = {}
for moment, (what, worker) in enumerate(schedule[:40]):
    if what == "pull":
        begins[worker] = moment
    else:
        right.plot([begins[worker], moment], [worker] * 2, f"C{worker}o-", linewidth=5)
right.set(yticks=[0, 1], yticklabels=["worker 0", "worker 1"], ylim=(-0.6, 1.6))
title = right.set(
    xlabel="pulls and pushes, in their order", title="the first steps, from pull to push"
)

# %% [markdown]
# Where bars overlap, a worker computed with weights that the other one changed meanwhile. What came
# when depends on timing, so no two such trainings are alike, unless one is replayed: `schedule` is
# the list of all pulls and pushes, and with it the same bits come out, here or in another process.

# %%
second, _, _ = served(schedule=schedule)
for a, b in zip(first.get_weights(), second.get_weights(), strict=True):
    assert a.tobytes() == b.tobytes()
schedule[:4]

# %% [markdown]
# ## Places by hand
#
# What is not training, or not split by examples, is a graph like any other: `with ef.device(...)`
# says which task has a Variable or makes a step, and a Session runs it. Here each worker has half
# of the hidden units, and the server adds up what they say.

# %%
weights = [w.numpy() for w in two.weights]
halves = []
cluster = ef.cluster.Cluster(jobs, local=True)


def hidden_half(x, index):
    with ef.device(f"/job:worker/task:{index}"):
        w, b, v = halves[index]
        return ef.relu(x @ w + b) @ v


def answer(x):
    parts = [hidden_half(x, 0), hidden_half(x, 1)]
    with ef.device("/job:ps/task:0"):
        h = ef.relu(parts[0] + parts[1] + bias)
        asked.assign_add(1)
        return {"digit": ef.argmax(h @ w_out + b_out, axis=1)}


with cluster:
    for index, half in enumerate([slice(0, 32), slice(32, 64)]):
        with ef.device(f"/job:worker/task:{index}"):
            own = weights[0][:, half], weights[1][half], weights[2][half]
            halves.append([ef.Variable(w) for w in own])
    with ef.device("/job:ps/task:0"):
        bias, w_out, b_out = map(ef.Variable, weights[3:])
        asked = ef.Variable(0, name="asked")
    graph = ef.capture.trace(answer, ef.TensorSpec((4, 64), "float32", name="x"))
    session = ef.capture.Session(graph, cluster=cluster)
    print(session.run("digit", {"x": x[:4]}), y[:4])

# %% [markdown]
# ## When a worker dies
#
# `kill` ends a task as a broken machine would. The run that it was part of raises `TaskLostError`
# and changes nothing, another one takes its place by itself, and gets its Variables again with the
# next run. So a program tries again, and each answer is counted once.

# %%
answered = 0
with cluster:
    worker = cluster.task("/job:worker/task:1")
    while answered < 6:
        if answered == 3 and worker.lives == 1:
            cluster.kill(worker)
        try:
            session.run("digit", {"x": x[:4]}, targets="asked/assign")
            answered += 1
        except ef.errors.TaskLostError as error:
            print(error.problem)
            cluster.wait()
    print(worker, "in its life number", worker.lives)
print(f"{answered} answers, {int(asked)} counted")
assert asked.numpy() == 6

# %% [markdown]
# Training that a lost task was part of raises the same error. Lost are the steps since the last
# `merge`, which `fit` does after each epoch, and it goes on from a checkpoint of that:
# [When a worker dies](../docs/strategies-failures.md).
#
# ## Is it worth it?
#
# Before anything is spread there is a bill. For this network it says what is
# true: its step takes less time than sending its gradients.

# %%
machines = ef.cluster.Machines.measured(2)
print(ef.cluster.bill(one, machines))

# %% [markdown]
# For larger ones the answer is in the network between machines. A GPT of 124 million weights whose
# step takes 350 ms on one device makes 496 MB of gradients. `simulate` says what 64 machines make
# of that, by which way, and what is in the way.

# %%
gpt = ef.cluster.Workload(
    compute_seconds=0.35, gradients=[4 * 124e6 / 50] * 50, batch=16, name="GPT"
)


def simulated(gigabits, **options):
    link = ef.cluster.Link(latency=5e-5, bandwidth=gigabits * 1e9 / 8)
    machines = ef.cluster.Machines(64, link=link, jitter=0.03)
    return ef.cluster.simulate(gpt, machines, **options)


curves = {
    "all-reduce, 100 Gbit/s": simulated(100),
    "all-reduce, 10 Gbit/s": simulated(10),
    "all-reduce, 1 Gbit/s": simulated(1),
    "8 parameter servers, 100 Gbit/s": simulated(100, method="parameter-servers", servers=8),
}
print(curves["all-reduce, 10 Gbit/s"])

# %%
figure, axes = plt.subplots(figsize=(7, 4.2), layout="constrained")
counts = [row.devices for row in simulated(100).rows]
axes.plot(counts, counts, "--", color="0.7", label="ideal")
for name, curve in curves.items():
    devices, times = [r.devices for r in curve.rows], [r.speedup for r in curve.rows]
    axes.plot(devices, times, marker="o", label=name)
axes.set_xscale("log", base=2)
axes.set_yscale("log", base=2)
axes.set_xticks(counts, counts)
axes.set_yticks([0.25, 0.5, *counts], ["1/4", "1/2", *counts])
axes.set(xlabel="machines", ylabel="times one machine", title="a GPT of 124 million weights")
axes.grid(alpha=0.3)
legend = axes.legend()

# %% [markdown]
# [Training on several devices](../docs/strategies.md) tells of steps of your own,
# [What a cluster would take](../docs/cluster-simulator.md) what is assumed, and how near published
# curves come.
