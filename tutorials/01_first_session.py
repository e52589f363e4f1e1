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
# # A first session
#
# Tensors, gradients, errors, and a network that learns to read handwritten digits: the program
# behind `eagerflow demo`, one step at a time. It needs `pip install "eagerflow[demo]"`, no GPU and
# no download: the digits come inside scikit-learn.

# %%
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

import eagerflow as ef

# %% [markdown]
# ## Tensors
#
# A tensor computes at once, as NumPy does. Python floats become float32; arrays keep their dtype.

# %%
x = ef.tensor([[1.0, 2.0], [3.0, 4.0]])
x @ x + 0.5

# %% [markdown]
# Indexing, masks and NumPy itself work as you would expect.

# %%
x[x > 1.5], x[..., ::-1], np.asarray(x).mean()

# %% [markdown]
# Tensors do not change. `.at` gives a new one that differs in some places.

# %%
x.at[0, 1].set(20.0)

# %% [markdown]
# ## Gradients
#
# `ef.grad` makes a function of a function. A tape does the same for a piece of code.

# %%
ef.grad(lambda x: (ef.sin(x) * x).sum())(x)

# %%
w = ef.Variable([0.5, -1.0], name="w")
with ef.GradientTape() as tape:
    loss = ((x @ w) ** 2).sum()
tape.gradient(loss, w)

# %% [markdown]
# ## Errors that tell the story

# %%
try:
    x @ ef.ones((3, 2))
except ef.errors.ShapeError as error:
    print(error)

# %% [markdown]
# ## Digits
#
# 1797 images of 8x8 grey values. A fifth is held out.

# %%
images, labels = load_digits(return_X_y=True)
order = np.random.default_rng(0).permutation(len(labels))
images = (images[order].reshape(-1, 8, 8, 1) / 16).astype(np.float32)
labels = labels[order].astype(np.int64)
held_out = len(labels) // 5
x_test, x_train = images[:held_out], images[held_out:]
y_test, y_train = labels[:held_out], labels[held_out:]
x_train.shape, x_test.shape

# %% [markdown]
# A network is a list of layers. The last one gives a logit for each digit.

# %%
ef.random.seed(0)
model = ef.nn.Sequential(
    [
        ef.nn.Conv2D(32, 3, padding="same", use_bias=False),
        ef.nn.BatchNormalization(momentum=0.9),
        ef.nn.Activation("relu"),
        ef.nn.Conv2D(64, 3, padding="same", use_bias=False),
        ef.nn.BatchNormalization(momentum=0.9),
        ef.nn.Activation("relu"),
        ef.nn.MaxPooling2D(2),
        ef.nn.Flatten(),
        ef.nn.Dropout(0.4),
        ef.nn.Dense(10),
    ]
)

# %% [markdown]
# First by hand: this is all that training is. One step takes the gradient of the loss and lets the
# optimizer move the weights.

# %%
optimizer = ef.nn.optimizers.Adam(learning_rate=2e-3)


def train_step(x, y):
    with ef.GradientTape() as tape:
        loss = ef.mean(ef.sparse_softmax_cross_entropy(model(x, training=True), y))
    weights = model.trainable_weights
    optimizer.apply(tape.gradient(loss, weights), weights)
    return loss


losses = [float(train_step(x_train[i : i + 64], y_train[i : i + 64])) for i in range(0, 640, 64)]
[round(loss, 2) for loss in losses]

# %% [markdown]
# `compile` and `fit` write that loop for you. The learning rate falls along a cosine.

# %%
model.compile(
    optimizer=ef.nn.optimizers.Adam(ef.nn.schedules.CosineDecay(3e-3, 12 * 23)),
    loss=ef.nn.losses.SparseCategoricalCrossentropy(from_logits=True),
    metrics=["accuracy"],
)
history = model.fit(x_train, y_train, batch_size=64, epochs=12, verbose=0)
loss, accuracy = model.evaluate(x_test, y_test, verbose=0)
print(f"{accuracy:.1%} of the held-out digits are right")
assert accuracy >= 0.98

# %% [markdown]
# And the ones that it finds hardest:

# %%
probabilities = ef.softmax(model.predict(x_test, verbose=0)).numpy()
hardest = probabilities.max(axis=1).argsort()[:10]
figure, rows = plt.subplots(1, 10, figsize=(10, 1.6))
for axes, i in zip(rows, hardest, strict=True):
    axes.imshow(x_test[i, :, :, 0], cmap="gray_r")
    axes.set_axis_off()
    axes.set_title(f"{probabilities[i].argmax()} ({y_test[i]})", fontsize=9)
