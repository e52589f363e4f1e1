"""Recurrent layers and layers around them."""

import numpy as np

from tests.nn.cases import case


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def simple_step(weights, x, h):
    kernel, recurrent, bias = weights
    return [np.tanh(x @ kernel + h @ recurrent + bias)]


def lstm_step(weights, x, h, c):
    kernel, recurrent, bias = weights
    i, f, new, o = np.split(x @ kernel + h @ recurrent + bias, 4, axis=-1)
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(new)
    return [sigmoid(o) * np.tanh(c), c]


def gru_step(weights, x, h):
    kernel, recurrent, bias = weights
    a, u = (np.split(v, 3, axis=-1) for v in (x @ kernel + bias[0], h @ recurrent + bias[1]))
    z, r = sigmoid(a[0] + u[0]), sigmoid(a[1] + u[1])
    return [z * h + (1 - z) * np.tanh(a[2] + r * u[2])]


def gru_step_before(weights, x, h):
    """The reset gate acts before the product."""
    kernel, recurrent, bias = weights
    a, units = np.split(x @ kernel + bias, 3, axis=-1), h.shape[-1]
    z, r = (sigmoid(a[i] + h @ recurrent[:, i * units : (i + 1) * units]) for i in (0, 1))
    return [z * h + (1 - z) * np.tanh(a[2] + (r * h) @ recurrent[:, 2 * units :])]


def along(step, states=1, back=False, mask=None, zeros=False):
    """The outputs of all steps, in the order in which they come, and the last states."""

    def run(weights, x):
        now = [np.zeros((len(x), weights[1].shape[0]))] * states
        outputs = []
        for t in range(x.shape[1])[:: -1 if back else 1]:
            after = step(weights, x[:, t], *now)
            output = after[0]
            if mask is not None:
                seen = mask[:, t, None]
                after = [np.where(seen, new, old) for new, old in zip(after, now, strict=True)]
                output = np.where(seen, output, 0) if zeros else after[0]
            now = after
            outputs.append(output)
        return np.stack(outputs, axis=1), now

    return run


def last(step, states=1, **options):
    return lambda weights, x: along(step, states, **options)(weights, x)[0][:, -1]


def every(step, states=1, **options):
    return lambda weights, x: along(step, states, **options)(weights, x)[0]


def every_of(run):
    return lambda *given: run(*given)[0]


def with_state(run):
    def both(*given):
        outputs, states = run(*given)
        return (outputs[:, -1], *states)

    return both


def two_ways(step, states=1):
    def run(weights, x):
        half = len(weights) // 2
        there = every(step, states)(weights[:half], x)
        back = every(step, states, back=True)(weights[half:], x)[:, ::-1]
        return np.concatenate([there, back], axis=-1)

    return run


X = [(3, 5, 4)]
MASK = np.array([[1, 1, 0, 1, 1], [0, 1, 1, 0, 0], [1, 0, 0, 0, 0]], bool)
SEQUENCES = {"return_sequences": True}
STATES = {"return_state": True}
BACK = {"go_backwards": True}
DROPOUT = {"dropout": 0.5, "recurrent_dropout": 0.5}
ZEROS = {"zero_output_for_mask": True}
SMALL = {"recurrent_initializer": "glorot_uniform"}


def rows(cls, step, states=1, **more):
    """The common cases of all recurrent layers."""
    return [
        case(cls, 3, inputs=X, _reference=last(step, states)),
        case(cls, 3, inputs=X, **SEQUENCES, _reference=every(step, states)),
        case(cls, 3, inputs=X, **STATES, _reference=with_state(along(step, states))),
        case(cls, 3, inputs=X, **BACK, **SEQUENCES, _reference=every(step, states, back=True)),
        case(cls, 3, inputs=X, activation="relu", use_bias=False, **SEQUENCES, **BACK, **STATES),
        case(cls, 3, inputs=X, kernel_regularizer="l2", unroll=True),
        case(cls, 2, inputs=X, dropout=0.4, recurrent_dropout=0.3, _random=True),
        case(cls, 2, inputs=X, dropout=0.4, **SEQUENCES, _random=True),
        *masked(cls, step, states),
    ]


def masked(cls, step, states):
    """Masks with holes, at the start and at the end."""

    def reference(**options):
        return lambda weights, x, mask: along(step, states, mask=mask, **options)(weights, x)

    def of(options, run):
        return case(cls, 3, inputs=X, _named={"mask": MASK}, **options, _reference=run)

    return [
        of(SEQUENCES, every_of(reference())),
        of(BACK | SEQUENCES, every_of(reference(back=True))),
        of(ZEROS | SEQUENCES, every_of(reference(zeros=True))),
        of(STATES, with_state(reference())),
        of({"activation": "softsign"} | SEQUENCES | ZEROS, None),
        of({"activation": "softsign"} | BACK | STATES, None),
    ]


def wrapped():
    """Layers around recurrent ones, and cells on one another."""
    lstm, gru = case("LSTM", 2, **SEQUENCES), case("GRU", 2, **SEQUENCES, **STATES)
    cells = [case("LSTMCell", 3), case("GRUCell", 2), case("SimpleRNNCell", 2, activation="relu")]
    mask = {"mask": MASK}
    back = case("LSTM", 3, **SEQUENCES, **BACK)
    return [
        case("RNN", cells[0], inputs=X, **STATES, _reference=with_state(along(lstm_step, 2))),
        case("RNN", case("GRUCell", 3), inputs=X, _named=mask, **SEQUENCES, **ZEROS),
        case("RNN", cells, inputs=X, **SEQUENCES, **BACK),
        case("RNN", cells[:2], inputs=X, _named=mask, **SEQUENCES),
        case("RNN", case("StackedRNNCells", cells[1:]), inputs=X, **STATES),
        case("RNN", case("GRUCell", 2, **DROPOUT), inputs=X, _random=True),
        case("RNN", [case("LSTMCell", 2, **DROPOUT), cells[1]], inputs=X, _random=True),
        case("Bidirectional", lstm, inputs=X, _reference=two_ways(lstm_step, 2)),
        *(case("Bidirectional", lstm, way, inputs=X) for way in ("sum", "mul", "ave", None)),
        case("Bidirectional", case("SimpleRNN", 3), inputs=X),
        case("Bidirectional", gru, inputs=X),
        case("Bidirectional", gru, None, inputs=X, _named=mask),
        case("Bidirectional", lstm, inputs=X, _named=mask),
        case("Bidirectional", case("GRU", 2), inputs=X, _named=mask),
        case("Bidirectional", lstm, backward_layer=back, inputs=X),
        case("TimeDistributed", case("Dense", 3), inputs=X),
        case("TimeDistributed", case("Conv2D", 2, 2), inputs=[(2, 3, 4, 4, 1)]),
        case("TimeDistributed", case("BatchNormalization"), inputs=X, _tolerance=1e-4),
        case("TimeDistributed", case("LSTM", 2), inputs=[(2, 3, 4, 2)]),
    ]


CASES = [
    *rows("SimpleRNN", simple_step),
    *rows("LSTM", lstm_step, 2),
    *rows("GRU", gru_step),
    case("LSTM", 3, inputs=X, unit_forget_bias=False, recurrent_activation="hard_sigmoid"),
    case("GRU", 3, inputs=X, reset_after=False, **SEQUENCES, _reference=every(gru_step_before)),
    case("GRU", 3, inputs=X, reset_after=False, use_bias=False, **BACK),
    case("GRU", 2, inputs=X, reset_after=False, recurrent_dropout=0.5, _random=True),
    case("GRU", 3, inputs=[*X, (3, 3)], **SEQUENCES),
    case("SimpleRNN", 3, inputs=[*X, (3, 3)], **STATES, **BACK),
    case("SimpleRNNCell", 3, inputs=[(2, 4), (2, 3)]),
    case("SimpleRNNCell", 3, inputs=[(2, 4), (2, 3)], **DROPOUT, _random=True),
    case("GRUCell", 3, inputs=[(2, 4), (2, 3)]),
    case("GRUCell", 3, inputs=[(2, 4), (2, 3)], reset_after=False, activation="relu"),
    case("ConvLSTM1D", 2, 3, inputs=[(2, 3, 6, 2)], **SEQUENCES),
    case("ConvLSTM1D", 2, 2, inputs=[(2, 3, 6, 2)], padding="same", strides=2, **STATES),
    case("ConvLSTM2D", 2, (2, 3), inputs=[(2, 3, 5, 4, 1)], **SEQUENCES, **BACK),
    case("ConvLSTM2D", 2, 2, inputs=[(1, 2, 5, 5, 2)], dilation_rate=2, use_bias=False),
    case("ConvLSTM2D", 2, 2, inputs=[(3, 5, 3, 3, 1)], _named={"mask": MASK}, _keras=None),
    case("ConvLSTM2D", 2, 2, inputs=[(1, 2, 3, 3, 1)], **DROPOUT, _random=True),
    case("ConvLSTM3D", 2, 2, inputs=[(1, 2, 3, 3, 3, 1)], padding="same"),
    *wrapped(),
]
