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
# # Capture
#
# A function that is called many times can be captured: its Python runs once, and what it computes
# becomes a graph, which is faster, can be read, saved, and run in parts. It needs
# `pip install "eagerflow[demo]"`, no GPU and no download.

# %%
import tempfile
import time
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

import eagerflow as ef

# %% [markdown]
# ## A training step
#
# 1797 images of handwritten digits, 64 grey values each, and a network of two layers. The step is
# what anybody would write: a tape, a loss, an optimizer.

# %%
images, labels = load_digits(return_X_y=True)
order = np.random.default_rng(0).permutation(len(labels))
images, labels = (images[order] / 16).astype("float32"), labels[order].astype("int64")
x_test, x_train = ef.tensor(images[:360]), images[360:]
y_test, y_train = ef.tensor(labels[:360]), labels[360:]

ef.random.seed(0)
model = ef.nn.Sequential(
    [
        ef.nn.Dense(64, "gelu", name="hidden"),
        ef.nn.LayerNormalization(name="norm"),
        ef.nn.Dropout(0.2),
        ef.nn.Dense(10, name="logits"),
    ],
    name="digits",
)
optimizer = ef.nn.optimizers.AdamW(2e-3)


def train_step(x, y):
    with ef.GradientTape() as tape:
        loss = ef.mean(ef.sparse_softmax_cross_entropy(model(x, training=True), y))
    weights = model.trainable_weights
    optimizer.apply(tape.gradient(loss, weights), weights)
    return loss


# %% [markdown]
# `ef.function` makes a captured function of it. The first call traces it, the others replay.

# %%
captured_step = ef.function(train_step)


def epoch(step):
    started = time.perf_counter()
    losses = [
        float(step(ef.tensor(x_train[i : i + 32]), ef.tensor(y_train[i : i + 32])))
        for i in range(0, 1408, 32)
    ]
    return np.mean(losses), (time.perf_counter() - started) / len(losses)


for name, step in [("eager", train_step), ("captured", captured_step)] * 2:
    loss, seconds = epoch(step)
    print(f"{name:8}  loss {loss:.3f}  {seconds * 1e3:.2f} ms a step")

# %% [markdown]
# Weights, the optimizer's state and that of the random numbers are Variables, so both ways go on
# where the other one stopped. The first captured epoch has the tracing and the making of machine
# code in its time.

# %%
print(captured_step.explain())

# %% [markdown]
# ## What a graph relies on
#
# The trace read more than its arguments: the model, the optimizer, each of their settings. All of
# that is in a ledger, and what has changed is traced again. Freeze a layer, and see why:

# %%
model.layers[0].trainable = False
batch = ef.tensor(x_train[:32]), ef.tensor(y_train[:32])
captured_step(*batch)
model.layers[0].trainable = True
print(captured_step.explain())

# %% [markdown]
# An `if` on a value cannot be captured. The error says where, and what to write instead.

# %%


@ef.function
def clipped(x):
    length = ef.sqrt(ef.sum(x * x))
    if length > 1.0:
        x = x / length
    return x


try:
    clipped(batch[0])
except ef.errors.CaptureError as error:
    print(error)

# %%


@ef.function
def clipped(x):
    length = ef.sqrt(ef.sum(x * x))
    return ef.cond(length > 1.0, lambda: x / length, lambda: x)


ef.sqrt(ef.sum(clipped(batch[0]) ** 2))

# %% [markdown]
# ## Reading a graph
#
# The network alone, for any number of images: `training=False` leaves the dropout out.

# %%


def predict(image):
    logits = model(image, training=False)
    return {"class": ef.argmax(logits, axis=-1), "probability": ef.softmax(logits)}


graph = ef.capture.trace(predict, ef.TensorSpec(("batch", 64), "float32"))
print(graph)

# %% [markdown]
# What would it cost, and how does it run? A plan is a program that can be read. Where machine code
# can be made, GELU and the normalization are one kernel in it.

# %%
print(str(graph.costs(batch=1000)).partition("\n\n")[0])
plan = graph.plan(sizes={"batch": 1000})
print(plan.source())
print(plan.kernels[0].region)

# %% [markdown]
# ## Running parts of it
#
# A session computes what is asked for, and nothing else. Any value can be fetched, or fed.

# %%
with ef.capture.Session(graph) as session:
    classes, hidden = session.run(["class", "digits/norm/layer_norm"], {"image": x_test})
print(f"{ef.mean((classes == y_test).astype('float32')).item():.1%} right", hidden.shape)

# %% [markdown]
# The gradient of a graph is a larger graph. Which pixels speak for the digit that was found?

# %%
larger = graph.gradient("probability", "image")
session = ef.capture.Session(larger)
pixels = session.run("gradient/image", {"image": x_test[:1]})
pixels.shape

# %% [markdown]
# ## Handing it on
#
# One file holds the graph and its weights, and needs none of the code above. `verify` runs a
# function eagerly, captured, loaded and over all devices, and compares every bit.

# %%
with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "digits.ef"
    graph.save(path)
    loaded = ef.capture.load(path)
    print(f"{loaded!r}, {path.stat().st_size:,} bytes")
print(loaded(x_test)["class"][:10], y_test[:10])
print(ef.capture.verify(predict, [x_test]))
