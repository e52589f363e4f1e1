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
# # A small GPT that writes characters
#
# A transformer reads our own pages, letter by letter, and learns to guess the next one. It has one
# thousandth of the weights of the smallest GPT-2 and trains for a minute or less, so it will write
# no sense; what it learns in that minute can be watched. It needs `pip install "eagerflow[plot]"`,
# no GPU and no download, but a clone of the repository, where the pages are.

# %%
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import eagerflow as ef

# %% [markdown]
# ## The text
#
# A token is a character. Its number is its place in the sorted set of all characters. The last
# tenth is held out.

# %%
folders = [Path.cwd(), *Path.cwd().parents, Path(ef.__file__).parent.parent]
root = next((folder for folder in folders if (folder / "docs" / "nn.md").is_file()), None)
if root is None:
    raise SystemExit("no pages to read: run this in a clone of eagerflow's repository")
pages = [root / "README.md", *sorted((root / "docs").glob("*.md"))]
text = "\n\n".join(page.read_text(encoding="utf-8") for page in pages)
characters, tokens = np.unique(list(text), return_inverse=True)
train, held_out = np.split(tokens, [len(tokens) * 9 // 10])
print(f"{len(pages)} pages, {len(text):,} characters, {len(characters)} different ones")

# %% [markdown]
# An example is a window of the text; its targets are the same window, one character further. So one
# window asks for 64 guesses, with 1 to 64 characters known.

# %%
CONTEXT, BATCH = 64, 32
rng = np.random.default_rng(0)


def windows(tokens, count):
    starts = rng.integers(0, len(tokens) - CONTEXT, count)
    found = tokens[starts[:, None] + np.arange(CONTEXT + 1)]
    return found[:, :-1], found[:, 1:]


def batches():
    while True:
        yield windows(train, BATCH)


x, y = windows(train, 1)
print(repr("".join(characters[x[0, :32]])))
print(repr("".join(characters[y[0, :32]])))

# %% [markdown]
# ## The model
#
# `ef.nn.networks.GPT` is GPT-2's decoder in any size. The output layer has the weights of the
# embedding, so it is no layer of its own.

# %%
ef.random.seed(0)
model = ef.nn.networks.GPT(
    vocabulary=len(characters), context=CONTEXT, width=64, depth=2, heads=4, dropout=0.0
)
model.summary()


# %% [markdown]
# `generate` draws one character after the other. Untrained, each is as good as any other.


# %%
def write(count=CONTEXT - 8):
    prompt = tokens[None, :8]  # the first characters of the README
    drawn = model.generate(prompt, count, temperature=0.7, seed=0).numpy()
    return "".join(characters[drawn[0]])


print(repr(write()))

# %% [markdown]
# ## Training
#
# A round of 100 steps is an epoch here, and after some of them the model writes. The learning rate
# rises for 50 steps, as transformers need it, and falls along a cosine.

# %%
ROUNDS, STEPS = 10, 100


def show(epoch, logs):
    if epoch + 1 in (1, 2, 4, 7, 10):
        print(f"round {epoch + 1:2}, validation loss {logs['val_loss']:.2f}: {write()!r}")


rate = ef.nn.schedules.CosineDecay(0.0, ROUNDS * STEPS - 50, warmup_target=5e-3, warmup_steps=50)
model.compile(
    optimizer=ef.nn.optimizers.AdamW(rate, global_clipnorm=1.0),
    loss=ef.nn.losses.SparseCategoricalCrossentropy(from_logits=True),
)
history = model.fit(
    batches(),
    epochs=ROUNDS,
    steps_per_epoch=STEPS,
    validation_data=windows(held_out, 256),
    callbacks=[ef.nn.callbacks.LambdaCallback(on_epoch_end=show)],
    verbose=0,
)

# %% [markdown]
# ## What it has learned
#
# The loss is the mean of -log p, p being the probability that the model gave to the right
# character. Two simpler models to compare with: one knows how frequent each character is, the other
# how frequent each is behind the one before. Below the second line, the network makes use of more
# than one character.

# %%
size = len(characters)
pairs = np.full((size, size), 0.1)  # as if each pair had been seen a tenth of a time
np.add.at(pairs, (train[:-1], train[1:]), 1)
of_one = pairs.sum(axis=0) / pairs.sum()
of_two = pairs / pairs.sum(axis=1, keepdims=True)
loss_one = -np.log(of_one[held_out]).mean()
loss_two = -np.log(of_two[held_out[:-1], held_out[1:]]).mean()

(axes,) = history.plot("loss")
axes.axhline(loss_one, color="gray", linestyle=":", label="frequencies of characters")
axes.axhline(loss_two, color="gray", linestyle="--", label="of pairs")
axes.set(xlabel="round of 100 steps", ylabel="loss", title="a guess of the next character")
legend = axes.legend(fontsize=8)
final = history.history["val_loss"][-1]
print(f"characters {loss_one:.2f}, pairs {loss_two:.2f}, GPT {final:.2f}")
assert final < loss_two

# %% [markdown]
# How sure is it? For each character of a held-out piece, the probability that it had for the
# network, which knew only what stands to the left.

# %%
piece = held_out[200 : 200 + CONTEXT + 1]
probabilities = ef.softmax(model(piece[None, :-1]))[0].numpy()
right = probabilities[np.arange(CONTEXT), piece[1:]]
figure, axes = plt.subplots(figsize=(11, 2.2), layout="constrained")
axes.bar(np.arange(CONTEXT), right, color=plt.cm.viridis(right))
axes.set_xticks(np.arange(CONTEXT), [c.replace("\n", "⏎") for c in characters[piece[1:]]])
axes.set(ylabel="probability", ylim=(0, 1))
title = axes.set_title("high within words, low where a word begins")

# %% [markdown]
# The temperature divides the logits: at 0 the most probable character is always taken, which soon
# goes round in circles; at 1 characters are drawn as the model expects them. A window of 64 is all
# that it sees, so a longer text is written by moving on.


# %%
def write_on(prompt, count, temperature):
    found = np.array([[np.flatnonzero(characters == c)[0] for c in prompt]])
    while found.shape[1] < count:
        seen = ef.tensor(found[:, -CONTEXT // 2 :])
        new = model.generate(seen, CONTEXT - seen.shape[1], temperature, seed=found.shape[1])
        found = np.concatenate([found, new.numpy()[:, seen.shape[1] :]], axis=1)
    return "".join(characters[found[0]])


for temperature in (0.0, 0.6, 1.0):
    print(f"--- temperature {temperature}")
    print(write_on("A layer ", 250, temperature))
