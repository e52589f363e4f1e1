"""Translation with attention: dates as people write them become dates as machines write them.

An LSTM reads the characters of "3 march 1987", another one writes "1987-03-03"; at each character
it looks back at what was read (Luong and others, 2015). ``fit`` trains it; beam search translates,
keeping the best beginnings of a translation side by side.
"""

import numpy as np

import eagerflow as ef

CHARACTERS = " 0123456789-,abcdefghijklmnopqrstuvwxyz"  # 0 is also what fills up
BEGIN = len(CHARACTERS)
MONTHS = "january february march april may june july august september october november december"
READ, WRITTEN, WIDTH, BATCH = 18, 10, 64, 64


def encode(text, length):
    """The numbers of the characters, filled up to ``length``."""
    return [CHARACTERS.index(c) for c in text.ljust(length)]


def make_pair(rng):
    """A date in one of three ways, and in the form of ISO 8601."""
    year, month, day = rng.integers(1900, 2100), rng.integers(12), rng.integers(1, 29)
    name = MONTHS.split()[month]
    ways = f"{day} {name} {year}", f"{name} {day}, {year}", f"{name[:3]} {day} {year}"
    return ways[rng.integers(3)], f"{year}-{month + 1:02}-{day:02}"


def batches(seed=0):
    """Batches ``((source, shifted target), target)`` for ever."""
    rng = np.random.default_rng(seed)
    while True:
        pairs = [make_pair(rng) for _ in range(BATCH)]
        source = np.array([encode(a, READ) for a, _ in pairs])
        target = np.array([encode(b, WRITTEN) for _, b in pairs])
        shifted = np.concatenate([np.full((BATCH, 1), BEGIN), target[:, :-1]], axis=1)
        yield (source, shifted), target


class Translator(ef.nn.Model):
    """Logits of the next character of the translation, for each character of it."""

    def __init__(self):
        super().__init__()
        self.embedding = ef.nn.Embedding(BEGIN + 1, 32)
        self.encoder = ef.nn.LSTM(WIDTH, return_sequences=True, return_state=True)
        self.decoder = ef.nn.LSTM(WIDTH, return_sequences=True, return_state=True)
        self.attention = ef.nn.Attention()
        self.hidden, self.logits = ef.nn.Dense(WIDTH, "tanh"), ef.nn.Dense(BEGIN)

    def call(self, inputs):
        source, shifted = inputs
        memory, *state = self.encoder(self.embedding(source))
        return self.decode(shifted, memory, state)[0]

    def decode(self, shifted, memory, state):
        """Logits, and the decoder's state after them."""
        outputs, *state = self.decoder(self.embedding(shifted), initial_state=state)
        seen = self.attention([outputs, memory])
        return self.logits(self.hidden(ef.concat([outputs, seen], axis=-1))), state


def make_model():
    """The network, with weights that are the same in each run."""
    ef.random.seed(0)
    model = Translator()
    model(next(batches())[0])
    return model


def compile_model(model, captured=True):
    """Loss and optimizer; steps are captured unless they are to run op by op."""
    model.compile(
        optimizer=ef.nn.optimizers.Adam(3e-3, global_clipnorm=1.0),
        loss=ef.nn.losses.SparseCategoricalCrossentropy(from_logits=True),
        run_eagerly=not captured,
    )
    return model


def training(model, captured=True):
    """Train for ever; yields the loss of each step. ``fit`` does the same with epochs."""
    compile_model(model, captured)
    for x, y in batches():
        yield model.train_on_batch(x, y)


def beam_search(model, decode, text, width=4):
    """The best translation that was found, and its log probability.

    ``decode`` is ``model.decode`` or the same captured: it is called for one character at a time.
    """
    memory, *state = model.encoder(model.embedding(np.array([encode(text, READ)])))
    memory, *state = (ef.repeat(x, width, axis=0) for x in (memory, *state))
    texts = np.full((width, 1), BEGIN)
    scores = ef.tensor([0.0] + [-np.inf] * (width - 1))  # all beams are the same at first
    for _ in range(WRITTEN):
        logits, state = decode(texts[:, -1:], memory, state)
        scores, best = ef.top_k((scores[:, None] + ef.log_softmax(logits[:, 0])).reshape(-1), width)
        beams, characters = np.divmod(best.numpy(), BEGIN)
        state = [x[beams] for x in state]
        texts = np.concatenate([texts[beams], characters[:, None]], axis=1)
    return "".join(CHARACTERS[i] for i in texts[0, 1:]), float(scores[0])


def main(steps=400, captured=True, verbose=False):
    """After each batch, the mean loss since the epoch began: what ``fit`` shows."""
    model = compile_model(make_model(), captured)
    losses = []
    keep = ef.nn.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs: losses.append(logs["loss"])
    )
    epochs = max(steps // 100, 1)
    model.fit(
        batches(),
        steps_per_epoch=steps // epochs,
        epochs=epochs,
        callbacks=[keep],
        verbose=2 if verbose else 0,
    )
    if verbose:
        decode = ef.function(model.decode) if captured else model.decode
        rng = np.random.default_rng(1)
        for text, right in (make_pair(rng) for _ in range(5)):
            found, score = beam_search(model, decode, text)
            print(f"{text:>18} -> {found} (log probability {score:.2f}; right: {right})")
    return losses


if __name__ == "__main__":
    main(verbose=True)
