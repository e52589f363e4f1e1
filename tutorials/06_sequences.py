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
# # Sequences of unequal length
#
# A recurrent network reads a sequence step by step and keeps what it needs. The task is the adding
# problem (Hochreiter and Schmidhuber 1997, https://doi.org/10.1162/neco.1997.9.8.1735): two of the
# numbers in a sequence are marked, and their sum is asked for. It needs
# `pip install "eagerflow[plot]"`, no GPU and no download.

# %%
import matplotlib.pyplot as plt
import numpy as np

import eagerflow as ef

# %% [markdown]
# ## The data
#
# A step has two features: a number from 0 to 1, and a marker, 1 or 0. Sequences have 5 to 30 steps.
# A batch is one array, so the short ones are filled up with steps that hold nothing but -1.

# %%
rng = np.random.default_rng(0)
FILL = -1.0


def examples(count, shortest=5, longest=30, width=30):
    lengths = rng.integers(shortest, longest + 1, count)
    x = np.full((count, width, 2), FILL, "float32")
    y = np.empty((count, 1), "float32")
    for i, length in enumerate(lengths):
        x[i, :length, 0] = rng.uniform(size=length)
        x[i, :length, 1] = 0.0
        x[i, rng.choice(length, 2, replace=False), 1] = 1.0
        y[i] = x[i, :length, 0] @ x[i, :length, 1]
    return x, y, lengths


x_train, y_train, _ = examples(5000)
x_valid, y_valid, _ = examples(1000)
x_test, y_test, lengths = examples(1000)
shortest = lengths.argmin()
print(x_test[shortest, :8], y_test[shortest], sep="\n")

# %% [markdown]
# ## The network
#
# `Masking` finds the steps that are filling, and the layers behind it are told: the LSTM passes
# over such a step and keeps its state, so its last state is that after the last real step. The size
# None is a length that is not known before.
#
# `states` are the states after each step. The network that is trained looks at the last one. A
# second model of the same layers answers after each step; it costs nothing, and will show what goes
# on inside.

# %%
ef.random.seed(0)
steps = ef.nn.Input((None, 2), name="steps")
masking = ef.nn.Masking(FILL, name="masking")
lstm = ef.nn.LSTM(32, return_sequences=True, name="lstm")
head = ef.nn.Dense(1, name="sum")

states = lstm(masking(steps))
model = ef.nn.Model(steps, head(states[:, -1]), name="adding")
watch = ef.nn.Model(steps, head(states), name="watch")
model.summary()

# %% [markdown]
# Gradients that run back through thirty steps can be large at times, so their norm is bounded.

# %%
BATCH, EPOCHS = 64, 12
schedule = ef.nn.schedules.CosineDecay(0.01, EPOCHS * -(-len(x_train) // BATCH))
model.compile(ef.nn.optimizers.Adam(schedule, global_clipnorm=1.0), "mse", metrics=["mae"])
history = model.fit(
    x_train,
    y_train,
    batch_size=BATCH,
    epochs=EPOCHS,
    validation_data=(x_valid, y_valid),
    verbose=2,
)

# %% [markdown]
# Who always answers the mean, 1, has a loss of 1/6, the variance of a sum of two such numbers. On a
# logarithmic axis one sees how long the network does no better, and when it finds out what the
# marker means.

# %%
pictures = history.plot()
pictures[0].axhline(1 / 6, color="gray", linestyle="--", linewidth=0.8)
for axes in pictures:
    axes.set_yscale("log")

# %% [markdown]
# ## What it predicts

# %%
predicted = model.predict(x_test, verbose=0)
error = np.abs(predicted - y_test)[:, 0]
print(f"mean error {error.mean():.3f}, largest {error.max():.3f}")
assert error.mean() < 0.06

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
left.plot([0, 2], [0, 2], color="gray", linewidth=0.8)
points = left.scatter(y_test, predicted, s=6, c=lengths)
left.set(xlabel="sum", ylabel="prediction", title="1000 sequences that it has not seen")
figure.colorbar(points, ax=left, label="steps")

example = int(np.flatnonzero(lengths == 20)[0])
answers = watch.predict(x_test[example : example + 1], verbose=0)[0, :, 0]
numbers, marked = x_test[example, :20, 0], x_test[example, :20, 1] == 1
right.bar(np.arange(20), numbers, color=np.where(marked, "C1", "lightgray"), label="numbers")
right.plot(np.arange(30), answers, color="C0", marker="o", markersize=3, label="prediction")
right.axhline(y_test[example], color="C1", linestyle="--", linewidth=0.8, label="sum")
right.axvline(19.5, color="gray", linestyle=":", label="end of the sequence")
right.set(xlabel="step", title="one of them, step by step (orange: marked)")
legend = right.legend(fontsize=8)

# %% [markdown]
# The prediction jumps at a marked number, and stays what it is in the filling behind the end.
#
# ## What the mask is worth
#
# The same layers without the mask read the filling as if it were data.

# %%
bare = ef.nn.Model(steps, head(lstm(steps)[:, -1]), name="bare")
error_bare = np.abs(bare.predict(x_test, verbose=0) - y_test)[:, 0]
figure, axes = plt.subplots(figsize=(6, 3), layout="constrained")
for name, errors in (("with mask", error), ("without", error_bare)):
    means = [errors[lengths == length].mean() for length in range(5, 31)]
    axes.plot(range(5, 31), means, marker="o", markersize=3, label=name)
axes.set(xlabel="steps of the sequence, of 30", ylabel="mean error", yscale="log")
legend = axes.legend()
print(f"mean error without the mask {error_bare.mean():.3f}")

# %% [markdown]
# With the mask, more filling changes nothing.

# %%
wider = np.full((len(x_test), 50, 2), FILL, "float32")
wider[:, :30] = x_test
np.testing.assert_allclose(model.predict(wider, verbose=0), predicted, atol=1e-5)

# %% [markdown]
# ## Longer than all it has learned from
#
# The length was never part of the model, so it can be asked for sequences of any. How well it does
# there is another question.

# %%
for longest in (30, 40, 60, 90):
    x, y, _ = examples(500, shortest=longest - 5, longest=longest, width=longest)
    _, mean_error = model.evaluate(x, y, verbose=0)
    print(f"{longest - 5} to {longest} steps: mean error {mean_error:.3f}")
