"""Mistakes that people make with networks.

A row is the mistake, made with a small classifier at hand, and the class of the error with the
words that its message has to hold.
"""

import os
import tempfile
from pathlib import Path

import numpy as np

import eagerflow as ef
from eagerflow.nn import callbacks, losses, metrics, optimizers, schedules

nn = ef.nn
RNG = np.random.default_rng(0)
X = RNG.standard_normal((12, 4)).astype("float32")
Y = np.arange(12) % 3
HOT = np.eye(3, dtype="float32")[Y]
HERE = f"at: {Path(__file__)}:"  # where captured code went wrong


def network(activation="softmax"):
    layers = [
        nn.Input((4,)),
        nn.Dense(5, "relu", name="hidden"),
        nn.Dense(3, activation, name="out"),
    ]
    model = nn.Sequential(layers, name="net")
    model.compile("sgd", "sparse_categorical_crossentropy", ["accuracy"])
    return model


def fit(model, x=X, y=Y, loss=None, metrics=None, **options):
    if loss is not None:
        model.compile("sgd", loss, metrics)
    return model.fit(x, y, verbose=0, **options)


def made(build=None, call=None, **methods):
    """A compiled model of a user's class with these methods, and a Dense layer ``dense``."""

    def start(self):
        super(cls, self).__init__(name="mine")
        self.dense = nn.Dense(3)

    found = {"__init__": start, "call": call or (lambda self, x: self.dense(x)), **methods}
    cls = type("Mine", (nn.Model,), found if build is None else found | {"build": build})
    model = cls()
    model.compile("sgd", "mse")
    return model


def two_outputs(loss="mse"):
    x = nn.Input((4,))
    model = nn.Model(x, [nn.Dense(2, name="p")(x), nn.Dense(3, name="q")(x)])
    model.compile("sgd", loss)
    return model


def in_file(write, read, name="model.ef"):
    """Write a file, which is gone afterwards, and read it."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, name)
        write(path)
        return read(path)


def cut_off(model):
    def write(path):
        model.save(path)
        Path(path).write_bytes(Path(path).read_bytes()[:-100])

    return write


def other(units=6):
    return nn.Sequential([nn.Input((4,)), nn.Dense(units, name="hidden"), nn.Dense(3, name="out")])


def gradient(model, of):
    with ef.GradientTape() as tape:
        loss = of()
    return tape.gradient(loss, model.trainable_weights)


def swapped_pairs(model):
    with ef.GradientTape() as tape:
        loss = ef.mean(model(X))
    gradients = tape.gradient(loss, model.trainable_weights)
    optimizers.SGD().apply_gradients(zip(model.trainable_weights, gradients, strict=True))


sparse = losses.SparseCategoricalCrossentropy(from_logits=True)

LOSSES = {
    "class numbers for one-hot targets": (
        lambda net: fit(net, loss="categorical_crossentropy"),
        "ShapeError: categorical_crossentropy y_true (12,) y_pred (12, 3) "
        "SparseCategoricalCrossentropy",
    ),
    "one-hot targets for class numbers": (
        lambda net: fit(net, y=HOT),
        "ShapeError: sparse_categorical_crossentropy y_true (12, 3) shape (12,) "
        "CategoricalCrossentropy",
    ),
    "two class numbers for each example": (
        lambda net: fit(net, y=np.stack([Y, Y], axis=1)),
        "ShapeError: sparse_categorical_crossentropy y_true (12, 2) expected: y_true of shape "
        "(12,)",
    ),
    "class numbers for the squared error": (
        lambda net: fit(net, loss="mse"),
        "ShapeError: mean_squared_error y_true (12,) ef.one_hot(y_true, 3)",
    ),
    "targets of another width": (
        lambda net: fit(net, y=X, loss="mse"),
        "ShapeError: mean_squared_error y_true (12, 4) y_pred (12, 3) equal shapes",
    ),
    "logits for a loss of probabilities": (
        lambda net: fit(network(activation=None)),
        "ArgumentError: fit loss probabilities negative from_logits=True softmax",
    ),
    "classes counted from 1": (
        lambda net: fit(net, y=Y + 1),
        f"IndexRangeError: 3 is out of range {HERE}",
    ),
    "classes counted from 1, and logits": (
        lambda net: fit(net, y=Y + 1, loss=sparse),
        f"IndexRangeError: sparse_softmax_cross_entropy labels class 3 from 0 to 2 {HERE}",
    ),
    "negative classes, and logits": (
        lambda net: fit(net, y=Y - 1, loss=sparse),
        "IndexRangeError: labels class -1 from 0 to 2",
    ),
    "negative classes": (
        lambda net: fit(net, y=Y - 1),
        "IndexRangeError: index -1 is out of range from 0 to 2",
    ),
    "a loss in NumPy": (
        lambda net: fit(net, loss=lambda y, p: np.asarray(p).mean()),
        f"CaptureError: np.asarray() {HERE} ef ops run_eagerly=True",
    ),
    "a misspelt loss": (
        lambda net: net.compile("sgd", "sparse_categorical_crossentropi"),
        "ArgumentError: loss try: 'sparse_categorical_crossentropy'",
    ),
    "no loss": (
        lambda net: (net.compile("sgd"), fit(net)),
        "ArgumentError: net loss there is no loss compile(loss='mse')",
    ),
    "one loss in a list for two outputs": (
        lambda net: fit(two_outputs(["mse"])),
        "ArgumentError: loss 1 items 'p', 'q'",
    ),
    "a loss for an output that is not there": (
        lambda net: fit(two_outputs({"p": "mse", "r": "mse"})),
        "ArgumentError: loss 'p', 'r' 'p', 'q'",
    ),
    "targets of one output for two": (
        lambda net: fit(two_outputs(), y=HOT),
        "ArgumentError: y does not fit 'p', 'q'",
    ),
    "a metric of one-hot targets on class numbers": (
        lambda net: fit(net, loss="sparse_categorical_crossentropy", metrics=["auc"]),
        "ShapeError: auc y_true (12,) y_pred (12, 3) ef.one_hot",
    ),
    "a misspelt metric": (
        lambda net: net.compile("sgd", "mse", ["acuracy"]),
        "ArgumentError: metric try: 'accuracy'",
    ),
    "a metric for other classes": (
        lambda net: metrics.F1Score()(np.ones((3, 2)), np.ones((3, 3))),
        "ShapeError: f1_score y_true (3, 2) y_pred (3, 3) equal shapes",
    ),
    "a metric of no classes": (
        lambda net: metrics.MeanIoU(0),
        "ArgumentError: mean_io_u num_classes 0 at least 1",
    ),
}

DATA = {
    "x and y of different lengths": (
        lambda net: fit(net, y=Y[:10]),
        "ShapeError: fit y x float32(12, 4) y int64(10,) same length",
    ),
    "weights of another length": (
        lambda net: fit(net, sample_weight=np.ones(5)),
        "ShapeError: fit sample_weight (5,) same length",
    ),
    "two weights for each example": (
        lambda net: fit(net, sample_weight=np.ones((12, 2))),
        "ShapeError: sample_weight weights and examples differ in number shape (12,)",
    ),
    "weights of classes in a list": (
        lambda net: fit(net, class_weight=[1, 2, 3]),
        "ArgumentError: fit class_weight {0: 1.0, 1: 5.0}",
    ),
    "weights of classes by their names": (
        lambda net: fit(net, class_weight={"cat": 1.0}),
        "ArgumentError: fit class_weight 'cat' {0: 1.0, 1: 5.0}",
    ),
    "texts as inputs": (
        lambda net: fit(net, x=np.array([["a", "b"]] * 12)),
        "DTypeError: fit x no numbers <U1 StringLookup",
    ),
    "texts as targets": (
        lambda net: fit(net, y=np.array(["cat"] * 12)),
        "DTypeError: fit y no numbers StringLookup",
    ),
    "None among the numbers": (
        lambda net: fit(net, x=np.array([[1, None, 2, 3]] * 12)),
        "DTypeError: fit x object astype('float32')",
    ),
    "rows of different lengths": (
        lambda net: fit(net, x=[[1.0, 2.0], [3.0]], y=[0, 1]),
        "ShapeError: ragged pad",
    ),
    "no inputs": (lambda net: fit(net, x=None), "ArgumentError: fit x there are no inputs arrays"),
    "no targets": (lambda net: fit(net, y=None), "ArgumentError: net y no targets batches (x, y)"),
    "no examples": (
        lambda net: fit(net, X[:0], Y[:0]),
        "ShapeError: fit x no examples (0, 4) at least one",
    ),
    "batches of none": (
        lambda net: fit(net, batch_size=0),
        "ArgumentError: fit batch_size 0 at least 1",
    ),
    "half an epoch": (lambda net: fit(net, epochs=1.5), "ArgumentError: fit epochs 1.5 integer"),
    "validation every 0 epochs": (
        lambda net: fit(net, validation_data=(X, Y), validation_freq=0),
        "ArgumentError: fit validation_freq 0 at least 1",
    ),
    "a generator that is split": (
        lambda net: fit(net, iter([(X, Y)]), None, validation_split=0.2),
        "ArgumentError: fit validation_split only arrays validation_data",
    ),
    "a split beyond 1": (
        lambda net: fit(net, validation_split=20),
        "ArgumentError: fit validation_split 20 from 0 to below 1",
    ),
    "validation data of four parts": (
        lambda net: fit(net, validation_data=(X, Y, Y, Y)),
        "ArgumentError: fit validation_data 4 parts (x, y)",
    ),
    "targets beside a generator": (
        lambda net: fit(net, iter([(X, Y)])),
        "ArgumentError: fit y itself batches (x, y)",
    ),
    "batches of four parts": (
        lambda net: fit(net, [(X, Y, None, None)], None),
        "ShapeError: fit x 4 parts (x, y, sample_weight)",
    ),
    "examples of different shapes": (
        lambda net: fit(net, nn.Loader([(X[0], 0), (X[0, :3], 1)], batch_size=2), None),
        "ShapeError: Loader different shapes (4,), (3,) pads",
    ),
    "inputs of another width": (
        lambda net: fit(net, X[:, :3]),
        "ShapeError: InputLayer inputs (12, 3) (batch, 4)",
    ),
    "one example without its axis": (
        lambda net: net(X[0]),
        "ShapeError: InputLayer inputs (4,) 2 axes x[None]",
    ),
    "one input for a model of two": (
        lambda net: nn.Model([a := nn.Input((4,), name="a"), b := nn.Input((4,), name="b")], a + b)(
            X
        ),
        "ArgumentError: inputs 1 inputs for a model of 2 a: b:",
    ),
}

TRAINING = {
    "compile forgotten": (
        lambda net: fit(nn.Sequential([nn.Dense(2)])),
        "ArgumentError: fit model.compile(",
    ),
    "a misspelt optimizer": (
        lambda net: net.compile("adamm", "mse"),
        "ArgumentError: optimizer 'adamm' try: 'adam'",
    ),
    "optimizer and loss swapped": (
        lambda net: net.compile("mse", "adam"),
        "ArgumentError: optimizer there is no 'mse' 'adam'",
    ),
    "a learning rate of another name": (
        lambda net: optimizers.SGD(lr=0.1),
        "KeywordError: SGD 'lr' try: learning_rate",
    ),
    "a negative learning rate": (
        lambda net: optimizers.SGD(-0.1),
        "ArgumentError: SGD learning_rate -0.1 at least 0",
    ),
    "gradients of some weights": (
        lambda net: optimizers.SGD().apply([np.zeros((4, 5))], net.trainable_weights),
        "GradientError: sgd grads 1 gradients for 4 variables one gradient",
    ),
    "gradients of another shape": (
        lambda net: optimizers.SGD().apply([np.zeros((5, 4))], net.trainable_weights[:1]),
        "ShapeError: sgd hidden/kernel (5, 4) float32(4, 5)",
    ),
    "pairs the wrong way round": (swapped_pairs, "GradientError: sgd variables only Variables"),
    "a loss that left for NumPy": (
        lambda net: gradient(net, lambda: ef.tensor(net(X).numpy().mean())),
        "GradientError: hidden/kernel left through numpy() unconnected=",
    ),
    "a loss from before the tape": (
        lambda net: gradient(net, net(X).sum),
        "GradientError: hidden/kernel does not depend unconnected=",
    ),
    "a number that is not monitored": (
        lambda net: callbacks.EarlyStopping("val_loss").on_epoch_end(0, {"loss": 1.0}),
        "ArgumentError: EarlyStopping monitor 'val_loss' 'loss' validation_data",
    ),
    "a class in place of a callback": (
        lambda net: fit(net, callbacks=[callbacks.EarlyStopping]),
        "ArgumentError: fit callbacks EarlyStopping()",
    ),
    "a function in place of a callback": (
        lambda net: fit(net, callbacks=[print]),
        "ArgumentError: fit callbacks print ef.nn.callbacks.Callback",
    ),
    "a misspelt mode": (
        lambda net: callbacks.EarlyStopping(mode="minimum"),
        "ArgumentError: EarlyStopping mode 'minimum' 'min'",
    ),
    "two schedules of the rate": (
        lambda net: (
            net.compile(optimizers.SGD(schedules.CosineDecay(0.1, 10)), "mse"),
            fit(net, callbacks=[callbacks.LearningRateScheduler(lambda epoch: 0.1)]),
        ),
        "ArgumentError: learning_rate follows a schedule an optimizer made with a number",
    ),
    "a schedule that gives nothing": (
        lambda net: fit(net, callbacks=[callbacks.LearningRateScheduler(lambda epoch, rate: None)]),
        "ArgumentError: LearningRateScheduler schedule gave None a number",
    ),
    "a step of training that gives nothing": (
        lambda net: fit(made(train_step=lambda self, data: None)),
        "ArgumentError: train_step None a dict of numbers return {",
    ),
    "a call that gives nothing": (
        lambda net: fit(made(call=lambda self, x: None), y=HOT),
        "ArgumentError: mine call gives None return",
    ),
    "a layer made in each call": (
        lambda net: fit(made(call=lambda self, x: nn.Dense(3)(x)), y=HOT),
        f"CaptureError: {HERE} weights of 'dense create it once attribute",
    ),
    "NumPy in a call": (
        lambda net: fit(made(call=lambda self, x: self.dense(np.sin(x.numpy()))), y=HOT),
        f"CaptureError: numpy() {HERE} 'mine' ef ops run_eagerly=True",
    ),
    "a condition in a call": (
        lambda net: fit(made(call=lambda self, x: self.dense(x if x.sum() > 0 else -x)), y=HOT),
        f"CaptureError: bool() {HERE} 'mine' ef.cond",
    ),
    "shapes that do not meet in a call": (
        lambda net: fit(made(call=lambda self, x: self.dense(x) + x), y=HOT),
        f"ShapeError: add (12, 3) and (12, 4) {HERE} 'mine' equal or 1",
    ),
    "a loss that no weight has a part in": (
        lambda net: fit(made(compute_loss=lambda self, *parts, **more: ef.tensor(1.0)), y=HOT),
        "GradientError: mine depends on none of the weights dense tape.why(loss, weight)",
    ),
}

FILES = {
    "weights of another architecture": (
        lambda net: in_file(net.save_weights, other().load_weights, "w.safetensors"),
        "FileFormatError: reshaped: hidden/kernel: (4, 5) for (4, 6) strict=False",
    ),
    "weights of more layers": (
        lambda net: in_file(
            net.save_weights,
            nn.Sequential([nn.Input((4,)), nn.Dense(5, name="hidden")]).load_weights,
            "w.safetensors",
        ),
        "FileFormatError: extra: out/bias, out/kernel strict=False",
    ),
    "weights for a model without any": (
        lambda net: in_file(net.save_weights, nn.Sequential([nn.Dense(5)]).load_weights, "w.st"),
        "FileFormatError: extra: hidden/bias call the model on an input first",
    ),
    "weights of a model without any": (
        lambda net: nn.Sequential([nn.Dense(2)], name="late").save_weights("w.safetensors"),
        "ArgumentError: save_weights 'late' has no weights yet ef.nn.Input(shape)",
    ),
    "a file that is not there": (
        lambda net: net.load_weights(os.path.join(tempfile.gettempdir(), "no", "such.safetensors")),
        "FileFormatError: such.safetensors cannot be read check the path",
    ),
    "a file that is cut off": (
        lambda net: in_file(cut_off(net), nn.load_model),
        "FileFormatError: load_model model.ef cut off bytes expected:",
    ),
    "a file that is no model": (
        lambda net: in_file(lambda path: Path(path).write_text("hi"), nn.load_model),
        "FileFormatError: load_model model.ef ends after 2 bytes model.save wrote",
    ),
    "a file of weights alone": (
        lambda net: in_file(net.save_weights, nn.load_model),
        "FileFormatError: load_model no model model.load_weights(path)",
    ),
    "a file of Keras's": (
        lambda net: in_file(
            lambda path: Path(path).write_bytes(b"PK\x03\x04" + bytes(90)), nn.load_model, "m.keras"
        ),
        "FileFormatError: load_model m.keras zip archive save_weights('x.weights.h5')",
    ),
}

GROUPS = {"losses": LOSSES, "data": DATA, "training": TRAINING, "files": FILES}
