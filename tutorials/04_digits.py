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
# # Two networks for handwritten digits
#
# A perceptron with hidden layers and a convolutional network, trained with `compile` and `fit`,
# compared, looked into, and saved. It needs `pip install "eagerflow[demo]"`, no GPU and no
# download: the digits come inside scikit-learn.

# %%
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

import eagerflow as ef

# %% [markdown]
# ## The data
#
# 1797 images of 8x8 grey values, in three parts: a fifth is held out to the end, and a sixth of the
# rest tells during the training how well the network does on digits that it does not learn from.

# %%
images, labels = load_digits(return_X_y=True)
order = np.random.default_rng(0).permutation(len(labels))
images = (images[order].reshape(-1, 8, 8, 1) / 16).astype("float32")
labels = labels[order].astype("int64")
x_test, x_valid, x_train = np.split(images, [360, 600])
y_test, y_valid, y_train = np.split(labels, [360, 600])
x_train.shape, x_valid.shape, x_test.shape

# %%
figure, rows = plt.subplots(2, 10, figsize=(9, 2.2))
for axes, image, label in zip(rows.flat, x_train, y_train, strict=False):
    axes.imshow(image[:, :, 0], cmap="gray_r")
    axes.set_title(label, fontsize=9)
    axes.set_axis_off()

# %% [markdown]
# ## A perceptron
#
# It sees an image as 64 numbers without order. With an `Input` at its head, it knows all its shapes
# before the first image comes.

# %%
ef.random.seed(0)
perceptron = ef.nn.Sequential(
    [
        ef.nn.Input((8, 8, 1)),
        ef.nn.Flatten(),
        ef.nn.Dense(64, "relu"),
        ef.nn.Dropout(0.2),
        ef.nn.Dense(32, "relu"),
        ef.nn.Dense(10),
    ],
    name="perceptron",
)
perceptron.summary()

# %% [markdown]
# The network gives logits, and the loss is told so. `EarlyStopping` ends the training when the loss
# on the validation part has not fallen for eight epochs, and gives back the best weights.

# %%
perceptron.compile(
    optimizer=ef.nn.optimizers.Adam(2e-3),
    loss=ef.nn.losses.SparseCategoricalCrossentropy(from_logits=True),
    metrics=["accuracy"],
)
history = perceptron.fit(
    x_train,
    y_train,
    epochs=60,
    validation_data=(x_valid, y_valid),
    callbacks=[ef.nn.callbacks.EarlyStopping(patience=8, restore_best_weights=True)],
    verbose=0,
)
history

# %% [markdown]
# `plot` draws what `fit` returned. Where the curves part, the network begins to learn its own
# digits by heart. At first the validation looks better: `Dropout` switches a part of the network
# off in training, and the weights of an epoch's end are better than those it began with.

# %%
pictures = history.plot()

# %%
loss, accuracy = perceptron.evaluate(x_test, y_test, verbose=0)
print(f"perceptron: {accuracy:.1%} of the held-out digits are right")
assert accuracy >= 0.93

# %% [markdown]
# ## A convolutional network
#
# A stroke looks the same wherever it is. Convolutions use that: their few weights look at each
# place of the image. Batch normalization lets the training take large steps.


# %%
def convolution(filters):
    return [
        ef.nn.Conv2D(filters, 3, padding="same", use_bias=False),
        ef.nn.BatchNormalization(momentum=0.9),
        ef.nn.Activation("relu"),
    ]


ef.random.seed(0)
network = ef.nn.Sequential(
    [
        ef.nn.Input((8, 8, 1)),
        *convolution(32),
        *convolution(64),
        ef.nn.MaxPooling2D(2),
        *convolution(64),
        *convolution(64),
        ef.nn.Flatten(),
        ef.nn.Dropout(0.5),
        ef.nn.Dense(10),
    ],
    name="convolutional",
)
network.summary()

# %% [markdown]
# A digit that is moved by a pixel is the same digit. Four moved copies of each image cost nothing
# and are worth as much as more data.


# %%
def with_shifts(images, labels):
    padded = np.pad(images, ((0, 0), (1, 1), (1, 1), (0, 0)))
    corners = [(1, 1), (0, 1), (2, 1), (1, 0), (1, 2)]
    return np.concatenate([padded[:, i : i + 8, j : j + 8] for i, j in corners]), np.tile(labels, 5)


x_shifted, y_shifted = with_shifts(x_train, y_train)
x_shifted.shape

# %% [markdown]
# The learning rate falls when the validation loss stands still, and a file keeps the best weights
# so far.

# %%
folder = tempfile.TemporaryDirectory()
best = Path(folder.name) / "best.safetensors"
network.compile(
    optimizer=ef.nn.optimizers.Adam(3e-3),
    loss=ef.nn.losses.SparseCategoricalCrossentropy(from_logits=True),
    metrics=["accuracy"],
)
history = network.fit(
    x_shifted,
    y_shifted,
    batch_size=64,
    epochs=12,
    validation_data=(x_valid, y_valid),
    callbacks=[
        ef.nn.callbacks.ReduceLROnPlateau(factor=0.3, patience=2, verbose=1),
        ef.nn.callbacks.ModelCheckpoint(best, save_best_only=True, save_weights_only=True),
    ],
    verbose=2,
)
network.load_weights(best)

# %%
pictures = history.plot()

# %%
loss, accuracy = network.evaluate(x_test, y_test, verbose=0)
print(f"convolutional: {accuracy:.1%} of the held-out digits are right")  # about 99 %
assert accuracy >= 0.98

# %% [markdown]
# ## Which digits are taken for which
#
# A row of the confusion matrix for each digit, a column for each answer: what is right lies on the
# diagonal.


# %%
def confusion(model):
    answers = model.predict(x_test, verbose=0).argmax(axis=1)
    counts = np.zeros((10, 10), "int64")
    np.add.at(counts, (y_test, answers), 1)
    return counts


figure, columns = plt.subplots(1, 2, figsize=(9, 4.4), layout="constrained")
for axes, model in zip(columns, [perceptron, network], strict=True):
    counts = confusion(model)
    axes.imshow(np.log1p(counts), cmap="Blues")
    for i, j in np.argwhere(counts):
        axes.text(j, i, counts[i, j], ha="center", va="center", color="w" if i == j else "r")
    axes.set(xticks=range(10), yticks=range(10), xlabel="answer", ylabel="digit")
    axes.set_title(f"{model.name}: {len(y_test) - counts.trace()} of {len(y_test)} wrong")

# %% [markdown]
# These are the digits that the perceptron gets wrong, with its answer, and with that of the
# convolutional network.

# %%
answers = {
    model: model.predict(x_test, verbose=0).argmax(axis=1) for model in (perceptron, network)
}
wrong = np.flatnonzero(answers[perceptron] != y_test)[:10]
figure, columns = plt.subplots(1, len(wrong), figsize=(10, 1.9), layout="constrained")
for axes, i in zip(columns, wrong, strict=True):
    axes.imshow(x_test[i, :, :, 0], cmap="gray_r")
    axes.set_title(f"{y_test[i]}\n{answers[perceptron][i]}, {answers[network][i]}", fontsize=9)
    axes.set_axis_off()
title = figure.suptitle("the digit, and the answers: perceptron, convolutional", fontsize=10)

# %% [markdown]
# ## Keeping it
#
# One file holds the model, what it was compiled with, its weights and the optimizer's state. Who
# loads it gets the same answers, bit for bit, and can train on.

# %%
path = Path(folder.name) / "digits.ef"
network.save(path)
loaded = ef.nn.load_model(path)
assert loaded.predict(x_test, verbose=0).tobytes() == network.predict(x_test, verbose=0).tobytes()
print(f"{loaded!r}, {path.stat().st_size:,} bytes")
folder.cleanup()
