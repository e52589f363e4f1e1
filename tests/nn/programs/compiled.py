"""Arguments of ``compile`` and ``fit``: losses, weights and metrics of one or several outputs."""

import numpy as np

from tests.nn.programs import LABELS, X, Y, trained


@trained
def sequential(keras):
    model = keras.Sequential(
        [
            keras.Input((6,)),
            keras.layers.Dense(8, activation="relu"),
            keras.layers.Dense(3, activation="softmax"),
        ]
    )
    model.compile("sgd", "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model, {"x": X, "y": LABELS}


@trained
def branches(keras):
    x = keras.Input((6,))
    left = keras.layers.Dense(4, activation="tanh", name="left")(x)
    right = keras.layers.Dense(5, name="right")(x)
    right = keras.layers.Dense(4, name="righter")(right)
    joined = left * right + left
    model = keras.Model(x, keras.layers.Dense(1, name="end")(joined))
    model.compile(keras.optimizers.SGD(0.05), loss="mse", metrics=["mae"])
    return model, {"x": X, "y": Y}


@trained
def shared_layers(keras):
    a, b = keras.Input((6,), name="a"), keras.Input((6,), name="b")
    shared = keras.layers.Dense(4, activation="tanh", name="shared")
    first = keras.layers.Dense(6, name="first")(a)
    model = keras.Model([a, b], keras.layers.Dense(1, name="end")(shared(first) + shared(b)))
    model.compile(keras.optimizers.SGD(0.05), loss="mae")
    return model, {"x": [X, X[::-1].copy()], "y": Y}


@trained
def outputs_by_name(keras):
    x = keras.Input((6,))
    h = keras.layers.Dense(8, activation="relu")(x)
    age = keras.layers.Dense(1, name="age")(h)
    kind = keras.layers.Dense(3, activation="softmax", name="kind")(h)
    model = keras.Model(x, [age, kind])
    model.compile(
        keras.optimizers.SGD(0.05),
        loss={"age": "mse", "kind": "sparse_categorical_crossentropy"},
        loss_weights={"age": 0.5, "kind": 2.0},
        metrics={"age": ["mae"], "kind": ["accuracy"]},
    )
    return model, {"x": X, "y": [Y, LABELS]}


@trained
def dict_outputs(keras):
    x = keras.Input((6,), name="x")
    h = keras.layers.Dense(8, activation="relu")(x)
    outputs = {"p": keras.layers.Dense(1)(h), "q": keras.layers.Dense(2)(h)}
    model = keras.Model({"x": x}, outputs)
    model.compile(keras.optimizers.SGD(0.05), loss={"p": "mse", "q": "mae"})
    return model, {"x": {"x": X}, "y": {"p": Y, "q": X[:, :2]}}


@trained
def weights_of_examples(keras):
    model, data = sequential(keras)
    return model, data | {"sample_weight": np.linspace(0, 1, 48).astype("float32")}


@trained
def weights_of_classes(keras):
    model, data = sequential(keras)
    return model, data | {"class_weight": {0: 1.0, 1: 3.0, 2: 0.5}}


@trained
def weighted_metrics(keras):
    x = keras.Input((6,))
    model = keras.Model(x, keras.layers.Dense(1)(x))
    model.compile(keras.optimizers.SGD(0.05), loss="mse", metrics=["mae"], weighted_metrics=["mae"])
    return model, {"x": X, "y": Y, "sample_weight": np.linspace(0, 2, 48).astype("float32")}


@trained
def regularized(keras):
    x = keras.Input((6,))
    h = keras.layers.Dense(
        8,
        activation="tanh",
        kernel_regularizer="l2",
        bias_regularizer="l2",
        activity_regularizer="l2",
    )(x)
    model = keras.Model(x, keras.layers.Dense(1, kernel_constraint="non_neg")(h))
    model.compile(keras.optimizers.SGD(0.05), loss="mse")
    return model, {"x": X, "y": Y}


@trained
def batch_normalized(keras):
    model = keras.Sequential(
        [
            keras.Input((6,)),
            keras.layers.Dense(8),
            keras.layers.BatchNormalization(),
            keras.layers.Activation("relu"),
            keras.layers.Dense(1),
        ]
    )
    model.compile(keras.optimizers.SGD(0.05), loss="mse")
    return model, {"x": X, "y": Y}


@trained
def frozen_features(keras):
    base = keras.Sequential(
        [keras.Input((6,)), keras.layers.Dense(8, name="f"), keras.layers.Dense(4)]
    )
    base.trainable = False
    x = keras.Input((6,))
    model = keras.Model(x, keras.layers.Dense(1)(base(x, training=False)))
    model.compile(keras.optimizers.SGD(0.05), loss="mse")
    return model, {"x": X, "y": Y}


@trained
def validated(keras):
    model, data = branches(keras)
    return model, data | {"validation_split": 0.25}


@trained
def sums_to_the_batch(keras):
    x = keras.Input((6,))
    model = keras.Model(x, keras.layers.Dense(1)(x))
    model.compile(keras.optimizers.SGD(0.001), loss=keras.losses.MeanSquaredError(reduction="sum"))
    return model, {"x": X, "y": Y}
