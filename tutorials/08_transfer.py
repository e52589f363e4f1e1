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
# # Transfer: what one task knows of another
#
# A network learns the digits 0 to 4 from many images. What it knows of strokes, and of finding them
# anywhere in an image, then helps with the digits 5 to 9, of which there are few: the body is
# frozen, the head replaced, and in the end all is tuned. It needs
# `pip install "eagerflow[demo]"`, no GPU and no download.

# %%
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

import eagerflow as ef

# %% [markdown]
# ## Two tasks
#
# Each digit of 8x8 pixels is put somewhere in an image of 16x16. Of the digits 0 to 4 there are
# 5406 images, each digit in six places. Of the digits 5 to 9, 400 are there to measure with, and a
# few at a time to learn from.

# %%
rng = np.random.default_rng(0)


def placed(digits):
    images = np.zeros((len(digits), 16, 16, 1), "float32")
    corners = rng.integers(0, 9, (len(digits), 2))
    for image, digit, (row, column) in zip(images, digits, corners, strict=True):
        image[row : row + 8, column : column + 8, 0] = digit
    return images


digits, labels = load_digits(return_X_y=True)
order = rng.permutation(len(labels))
digits, labels = digits[order].reshape(-1, 8, 8) / 16, labels[order].astype("int64")
low = labels < 5
x_low, y_low = placed(np.tile(digits[low], (6, 1, 1))), np.tile(labels[low], 6)
high, y_high = digits[~low], labels[~low] - 5
x_test, y_test = placed(high[:400]), y_high[:400]


def few(count):
    """So many images of each of the digits 5 to 9, which are the classes 0 to 4."""
    candidates = [400 + np.flatnonzero(y_high[400:] == c) for c in range(5)]
    rows = np.concatenate([rng.choice(found, count, replace=False) for found in candidates])
    return placed(high[rows]), y_high[rows]


x_few, y_few = few(5)
x_low.shape, x_few.shape, x_test.shape

# %%
figure, rows = plt.subplots(2, 10, figsize=(9, 2.2), layout="constrained")
some = np.arange(25).reshape(5, 5)[:, :2].ravel()
shown = [*zip(x_low[:10], y_low[:10], strict=True), *zip(x_few[some], y_few[some] + 5, strict=True)]
for axes, (image, digit) in zip(rows.flat, shown, strict=True):
    axes.imshow(image[:, :, 0], cmap="gray_r")
    axes.set(title=digit, xticks=[], yticks=[])

# %% [markdown]
# ## The first task: digits 0 to 4


# %%
def convolution(filters):
    return [
        ef.nn.Conv2D(filters, 3, padding="same", use_bias=False),
        ef.nn.BatchNormalization(momentum=0.9),
        ef.nn.Activation("relu"),
    ]


def learn(model, x, y, rate, epochs, **options):
    model.compile(
        optimizer=ef.nn.optimizers.Adam(rate),
        loss=ef.nn.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    return model.fit(x, y, epochs=epochs, verbose=0, **options)


ef.random.seed(0)
model = ef.nn.Sequential(
    [
        ef.nn.Input((16, 16, 1)),
        *convolution(32),
        ef.nn.MaxPooling2D(2),
        *convolution(64),
        ef.nn.MaxPooling2D(2),
        *convolution(64),
        ef.nn.GlobalMaxPooling2D(name="features"),
        ef.nn.Dense(5, name="zero_to_four"),
    ],
    name="digits",
)
history = learn(model, x_low, y_low, 2e-3, 6)
history

# %% [markdown]
# ## Another head
#
# `pop` takes the head away, `add` puts another one in its place. The body is frozen: `fit` will
# change the head alone, and batch normalization keeps the means that it has.

# %%
model.pop()
for layer in model.layers:
    layer.trainable = False
model.add(ef.nn.Dense(5, name="five_to_nine"))
model.summary()
body_weights = model.get_weights()

# %%
learn(model, x_few, y_few, 5e-3, 60)
loss, frozen = model.evaluate(x_test, y_test, verbose=0)
print(f"{len(x_few)} images, body frozen:  {frozen:.1%} of the digits 5 to 9 are right")

# %% [markdown]
# With a head that knows what it wants, all weights may move, at a lower rate. `compile` begins with
# a new optimizer.

# %%
model.trainable = True
learn(model, x_few, y_few, 1e-3, 40)
loss, tuned = model.evaluate(x_test, y_test, verbose=0)
print(f"{len(x_few)} images, all is tuned: {tuned:.1%}")

# %% [markdown]
# And the same network without what the digits 0 to 4 have taught it: a clone has the layers, but
# weights of its own, which are new.

# %%
fresh = ef.nn.clone_model(model)
learn(fresh, x_few, y_few, 2e-3, 60)
loss, scratch = fresh.evaluate(x_test, y_test, verbose=0)
print(f"{len(x_few)} images, from nothing: {scratch:.1%}")

# %% [markdown]
# ## How many images are few
#
# One draw of 25 images says little. So: all of that three times for each number of images.


# %%
def accuracies(count):
    x, y = few(count)
    transferred, fresh = ef.nn.clone_model(model), ef.nn.clone_model(model)
    transferred.set_weights(body_weights)
    for layer in transferred.layers[:-1]:
        layer.trainable = False
    found = []
    learn(transferred, x, y, 5e-3, 60)
    found.append(transferred.evaluate(x_test, y_test, verbose=0)[1])
    transferred.trainable = True
    learn(transferred, x, y, 1e-3, 40)
    found.append(transferred.evaluate(x_test, y_test, verbose=0)[1])
    learn(fresh, x, y, 2e-3, 60)
    found.append(fresh.evaluate(x_test, y_test, verbose=0)[1])
    return found


names = ["body frozen", "all is tuned", "from nothing"]
counts = [2, 5, 10, 20]
results = np.array([[accuracies(count) for _ in range(3)] for count in counts])
print("images of each digit  " + "  ".join(names))
for count, row in zip(counts, results.mean(axis=1), strict=True):
    print(f"{count:20}  " + "  ".join(f"{a:{len(n)}.1%}" for a, n in zip(row, names, strict=True)))

# %%
figure, axes = plt.subplots(figsize=(6, 3.5), layout="constrained")
for index, name in enumerate(names):
    line = axes.plot(counts, results[:, :, index].mean(axis=1), marker="o", label=name)
    axes.plot(counts, results[:, :, index], ".", color=line[0].get_color(), alpha=0.4)
axes.set_xscale("log")
axes.set_xticks(counts, counts)
axes.minorticks_off()
axes.set(xlabel="images of each digit to learn from", ylabel="accuracy", ylim=(0.15, 1))
axes.set_title("digits 5 to 9: means of three draws, and each draw")
legend = axes.legend()

# %% [markdown]
# What was learned elsewhere counts most where there is least to learn from. A frozen body alone is
# soon not enough: the digits 5 to 9 ask for other features. And with twenty images of each digit,
# the network that began with nothing is about as good.

# %%
means = dict(zip(names, results[:2].mean(axis=(0, 1)), strict=True))
assert means["all is tuned"] > means["from nothing"]
