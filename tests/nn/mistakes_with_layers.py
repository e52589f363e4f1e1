"""Mistakes that people make with single layers and symbolic tensors; rows as in mistakes.py."""

import numpy as np

import eagerflow as ef
from tests.nn.mistakes import RNG, X

nn = ef.nn
STEPS = RNG.standard_normal((2, 5, 4)).astype("float32")  # sequences
IMAGES = RNG.standard_normal((2, 8, 8, 3)).astype("float32")


def weight(*args, **kwargs):
    """A layer of a user's that asks for a weight so."""

    def build(self, input_shape):
        self.w = self.add_weight(*(args or [(input_shape[-1], 2)]), **kwargs)

    members = {"build": build, "call": lambda self, x: x @ self.w}
    return type("Own", (nn.Layer,), members)(name="own")


def then(layer, *inputs):
    """Call a layer on one input after the other."""
    return [layer(x) for x in inputs]


def without_base(base):
    """A layer or model of a user's whose constructor forgets that of its base."""

    def __init__(self):
        self.inner = nn.Dense(2)

    members = {"__init__": __init__, "call": lambda self, x: self.inner(x)}
    return type("Mine", (base,), members)()


PAIR = {name: nn.Input((4,), name=name) for name in ("a", "b")}
JOINED = nn.Model(PAIR, PAIR["a"] + PAIR["b"], name="joined")

LAYERS = {
    "a layer without the constructor of its base": (
        lambda net: without_base(nn.Layer)(X),
        "ArgumentError: Mine super().__init__() try: first line",
    ),
    "a model without the constructor of its base": (
        lambda net: without_base(nn.Model).compile("sgd", "mse"),
        "ArgumentError: Mine super().__init__() try: first line",
    ),
    "a weight whose shape is a number": (
        lambda net: weight(3)(X),
        "ArgumentError: own shape 3 a tuple of sizes",
    ),
    "a weight's name in the place of its shape": (
        lambda net: weight("w", (4, 2))(X),
        "ArgumentError: own shape 'w' a tuple of sizes name='w'",
    ),
    "an input under another name": (
        lambda net: JOINED({"a": X, "c": X}),
        "ArgumentError: joined inputs 'b' expected: 'a', 'b'",
    ),
    "a list of texts for a layer": (
        lambda net: nn.Dense(2, name="words")(["a", "b"]),
        "DTypeError: str expected: numbers",
    ),
    "a rate in words": (
        lambda net: nn.optimizers.SGD("fast"),
        "ArgumentError: SGD learning_rate 'fast' expected: a number",
    ),
    "gradients that are all None": (
        lambda net: nn.optimizers.SGD(0.1).apply([None], net.weights[:1]),
        "GradientError: sgd grads no variable has a gradient try: tape.why",
    ),
    "negative units": (lambda net: nn.Dense(-3), "ArgumentError: Dense units -3 at least 1"),
    "units of a fraction": (lambda net: nn.Dense(2.5), "ArgumentError: Dense units 2.5 integer"),
    "a rate in percent": (lambda net: nn.Dropout(50), "ArgumentError: Dropout rate 50 from 0"),
    "a misspelt activation": (
        lambda net: nn.Dense(3, "relo"),
        "ArgumentError: activation 'relo' try: 'relu'",
    ),
    "a misspelt initializer": (
        lambda net: nn.Dense(3, kernel_initializer="he_norml"),
        "ArgumentError: initializer 'he_norml' try: 'he_normal'",
    ),
    "a misspelt argument": (
        lambda net: nn.Dense(3, actvation="relu"),
        "KeywordError: Dense 'actvation' try: activation",
    ),
    "an argument of former versions": (
        lambda net: nn.Dense(3, input_shape=(4,)),
        "KeywordError: Dense 'input_shape' ef.nn.Input",
    ),
    "a misspelt policy": (
        lambda net: nn.Dense(3, dtype="mixed_float61"),
        "DTypeError: dtype 'mixed_float61' 'mixed_float16'",
    ),
    "a misspelt padding": (
        lambda net: nn.Conv2D(2, 3, padding="full"),
        "ArgumentError: Conv2D padding 'full' 'same'",
    ),
    "channels first": (
        lambda net: nn.Conv2D(2, 3, data_format="channels_first"),
        "ArgumentError: Conv2D data_format channels_last ef.moveaxis",
    ),
    "images without channels": (
        lambda net: nn.Conv2D(2, 3)(IMAGES[..., 0]),
        "ShapeError: Conv2D inputs (2, 8, 8) (batch, rows, columns, channels) x[..., None]",
    ),
    "another number of channels": (
        lambda net: then(nn.Conv2D(2, 3), IMAGES, IMAGES[..., :1]),
        "ShapeError: Conv2D inputs (2, 8, 8, 1) size 3 along the last axis",
    ),
    "images smaller than the window": (
        lambda net: nn.Conv2D(2, 5, name="wide")(IMAGES[:, :2, :2]),
        "ShapeError: layer 'wide' window of 5 does not fit into 2 padding='same'",
    ),
    "a recurrent layer over single steps": (
        lambda net: nn.Sequential([nn.Input((5, 4)), nn.LSTM(3), nn.LSTM(3)]),
        "ShapeError: LSTM inputs (batch, steps, features) return_sequences=True",
    ),
    "two states for one": (
        lambda net: nn.GRU(3)(STEPS, initial_state=[np.zeros((2, 3))] * 2),
        "ArgumentError: GRU initial_state 2 states layer with 1 list of one",
    ),
    "states of another width": (
        lambda net: nn.GRU(3, name="gates")(STEPS, initial_state=np.zeros((2, 4))),
        "ShapeError: layer 'gates' (2, 4) shape (2, 3)",
    ),
    "a stateful layer and another batch size": (
        lambda net: then(nn.GRU(3, stateful=True), STEPS, STEPS[:1]),
        "ShapeError: GRU inputs 1 examples states of 2 2 examples",
    ),
    "a mask of another length": (
        lambda net: nn.LSTM(3, name="gates")(STEPS, mask=np.ones((2, 4), bool)),
        "ShapeError: layer 'gates' mask (2, 4) shape (2, 5)",
    ),
    "integers out of range for an embedding": (
        lambda net: nn.Embedding(10, 4, name="words")(np.array([[3, 12]])),
        "IndexRangeError: layer 'words' index 12 out of range length 10",
    ),
    "heads that cannot share": (
        lambda net: nn.GroupQueryAttention(4, 6, 4),
        "ArgumentError: GroupQueryAttention num_key_value_heads 6 4 divisor",
    ),
    "attention without values": (
        lambda net: nn.MultiHeadAttention(2, 4)(STEPS),
        "ShapeError: MultiHeadAttention inputs no values layer(x, x)",
    ),
    "attention with another batch size": (
        lambda net: nn.MultiHeadAttention(2, 4, name="heads")(STEPS, STEPS[:1]),
        "ShapeError: layer 'heads' batch sizes differ 2 1",
    ),
    "a mask of attention of another length": (
        lambda net: nn.MultiHeadAttention(2, 4, name="heads")(
            STEPS, STEPS, attention_mask=np.ones((2, 5, 6), bool)
        ),
        "ShapeError: layer 'heads' mask expected: (batch, heads",
    ),
    "unequal shapes to join": (
        lambda net: nn.Concatenate(axis=1)([STEPS, STEPS[..., :2]]),
        "ShapeError: Concatenate inputs (2, 5, 4), (2, 5, 2) except for axis 1",
    ),
    "unequal shapes to add": (
        lambda net: nn.Add()([X, X[:, :3]]),
        "ShapeError: Add inputs (12, 4), (12, 3) equal or 1",
    ),
    "one tensor to join": (
        lambda net: nn.Concatenate()(X),
        "ShapeError: Concatenate inputs takes a list of tensors a list of",
    ),
    "numbers that fit into no shape": (
        lambda net: nn.Reshape((5, 5), name="square")(X),
        "ShapeError: layer 'square' 48 elements (12, 5, 5) product",
    ),
    "a class in place of a layer": (
        lambda net: nn.Sequential([nn.Dense]),
        "ArgumentError: Sequential layers ef.nn.Dense(...)",
    ),
    "a layer in place of a list": (
        lambda net: nn.Sequential(nn.Dense(2)),
        "ArgumentError: Sequential layers no list ef.nn.Sequential([layer",
    ),
    "a call of another name": (
        lambda net: type("Mine", (nn.Layer,), {"forward": lambda self, x: x})()(X),
        "ArgumentError: Mine does not define call rename forward to call",
    ),
    "a weight of an unknown shape": (
        lambda net: weight()(nn.Input((None,))),
        "ShapeError: own (None, 2) not known expected: integers",
    ),
    "values for a layer without weights": (
        lambda net: nn.Dense(2, name="late").set_weights([X]),
        "ShapeError: late values 1 arrays for 0 weights build it first",
    ),
    "values for some weights": (
        lambda net: net.set_weights([np.ones((4, 5))]),
        "ShapeError: net values 1 arrays for 4 weights hidden/kernel(4, 5)",
    ),
    "values of other shapes": (
        lambda net: net.set_weights([w.T for w in net.get_weights()]),
        "ShapeError: net hidden/kernel (5, 4) expected: float32(4, 5)",
    ),
    "a layer by another name": (
        lambda net: net.get_layer("hiden"),
        "ArgumentError: net 'hiden' one of hidden, out",
    ),
}

SYMBOLS = {
    "inputs that lead nowhere": (
        lambda net: nn.Model(nn.Input((4,)), nn.Dense(2)(nn.Input((4,), name="b"))),
        "ArgumentError: inputs depend on 'b' ef.nn.Model([..., b], outputs)",
    ),
    "no outputs": (
        lambda net: nn.Model(nn.Input((4,))),
        "ArgumentError: outputs no symbolic tensor ef.nn.Input(shape)",
    ),
    "arrays in place of inputs": (
        lambda net: nn.Model(X, nn.Dense(2)(X)),
        "ArgumentError: inputs no symbolic tensor ef.nn.Input(shape)",
    ),
    "an input as a number": (lambda net: float(nn.Input(())[0]), "CaptureError: float() ops of ef"),
    "an input as an array": (lambda net: nn.Input((4,)).numpy(), "CaptureError: numpy() ops of ef"),
    "an input in NumPy": (
        lambda net: np.asarray(nn.Input((4,))),
        "CaptureError: np.asarray() ops of ef",
    ),
    "an input in a condition": (
        lambda net: 1 if nn.Input((4,)).sum() > 0 else 0,
        "CaptureError: bool() a Layer that does this in its call",
    ),
    "a loop over an input": (lambda net: list(nn.Input((4,))), "CaptureError: iteration ops of ef"),
    "a shared layer and another width": (
        lambda net: then(nn.Dense(2, name="shared"), nn.Input((4,)), nn.Input((5,))),
        "ShapeError: Dense 'shared' inputs size 4 along the last axis",
    ),
    "an input without a shape": (lambda net: nn.Input(), "ArgumentError: Input shape batch_shape"),
    "a file of a model without inputs": (
        lambda net: nn.Sequential([nn.Dense(2)]).export("model.ef"),
        "ArgumentError: export has not been called ef.nn.Input(shape)",
    ),
}

GROUPS = {"layers": LAYERS, "symbols": SYMBOLS}
