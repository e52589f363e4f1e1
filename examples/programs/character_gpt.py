"""A GPT that reads the documentation of this library, letter by letter, and writes on.

The model is a decoder as in GPT-2, written out: attention, residual connections, a loop of one's
own with clipped gradients, and text drawn from the network at the end.
"""

from itertools import islice

import numpy as np

import eagerflow as ef

CONTEXT, BATCH, WIDTH, HEADS, DEPTH = 32, 16, 64, 4, 2


def load_text():
    """The tokens of the docstrings of all public functions, and the character of each token."""
    pages = [getattr(ef, name).__doc__ or "" for name in sorted(ef.__all__)]
    characters, tokens = np.unique(list("\n\n".join(pages)), return_inverse=True)
    return tokens, characters


class Block(ef.nn.Layer):
    """Attention to earlier characters, then a perceptron, each added to its input."""

    def __init__(self):
        super().__init__()
        self.norm_1, self.norm_2 = ef.nn.LayerNormalization(), ef.nn.LayerNormalization()
        self.queries_keys_values = ef.nn.Dense(3 * WIDTH)
        self.output_projection = ef.nn.Dense(WIDTH)
        self.up, self.down = ef.nn.Dense(4 * WIDTH, "gelu"), ef.nn.Dense(WIDTH)

    def call(self, x):
        batch, length, _ = x.shape
        parts = self.queries_keys_values(self.norm_1(x))
        parts = parts.reshape(batch, length, 3, HEADS, WIDTH // HEADS)
        q, k, v = ef.permute_dims(parts, (2, 0, 3, 1, 4))
        seen = ef.dot_product_attention(q, k, v, is_causal=True)
        seen = ef.permute_dims(seen, (0, 2, 1, 3)).reshape(batch, length, WIDTH)
        x = x + self.output_projection(seen)
        return x + self.down(self.up(self.norm_2(x)))


class GPT(ef.nn.Model):
    """Logits of the next token, for each token of a batch of texts: (batch, length, vocabulary)."""

    def __init__(self, vocabulary):
        super().__init__()
        self.tokens = ef.nn.Embedding(vocabulary, WIDTH)
        self.positions = ef.nn.Embedding(CONTEXT, WIDTH)
        self.blocks = [Block() for _ in range(DEPTH)]
        self.norm, self.logits = ef.nn.LayerNormalization(), ef.nn.Dense(vocabulary)

    def call(self, ids):
        x = self.tokens(ids) + self.positions(ef.arange(ids.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.logits(self.norm(x))


def batches(tokens):
    """Windows of the text, and the same windows one character further."""
    rng = np.random.default_rng(0)
    while True:
        starts = rng.integers(0, len(tokens) - CONTEXT, BATCH)
        windows = tokens[starts[:, None] + np.arange(CONTEXT + 1)]
        yield windows[:, :-1], windows[:, 1:]


def make_model(vocabulary):
    """The network, with weights that are the same in each run."""
    ef.random.seed(0)
    model = GPT(vocabulary)
    model(np.zeros((1, CONTEXT), dtype=int))  # makes the weights
    return model


def training(model, tokens, captured=True):
    """Train for ever; yields the loss of each step."""
    optimizer = ef.nn.optimizers.AdamW(3e-3, weight_decay=0.01)

    def step(x, y):
        with ef.GradientTape() as tape:
            loss = ef.cross_entropy(model(x), y)
        weights = model.trainable_weights
        gradients, _ = ef.clip_by_global_norm(tape.gradient(loss, weights), 1.0)
        optimizer.apply(gradients, weights)
        return loss

    if captured:
        step = ef.function(step)
    for x, y in batches(tokens):
        yield step(x, y)


def write(model, prompt, count, temperature=0.8):
    """Draw ``count`` tokens, one after the other, each from the last ``CONTEXT`` ones."""
    logits_of = ef.function(lambda ids, last: model(ids)[0, last])
    found = list(prompt)
    for _ in range(count):
        window = found[-CONTEXT:]
        last = len(window) - 1
        padded = np.array([window + [0] * (CONTEXT - len(window))])  # one shape for all calls
        logits = logits_of(padded, last)
        found.append(int(ef.random.categorical(logits / temperature)))
    return found


def main(steps=400, captured=True, verbose=False):
    """The loss of each step, in nats a character."""
    tokens, characters = load_text()
    model = make_model(len(characters))
    losses = []
    for loss in islice(training(model, tokens, captured), steps):
        losses.append(float(loss))
        if verbose and len(losses) % 100 == 0:
            print(f"step {len(losses)}: loss {np.mean(losses[-100:]):.3f}")
    if verbose:
        written = write(model, tokens[:10], 200)
        print("".join(characters[written]))
    return losses


if __name__ == "__main__":
    main(verbose=True)
