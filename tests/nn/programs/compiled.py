"""Arguments of ``compile`` and ``fit``: losses, weights and metrics of one or several outputs."""

from tests.nn.programs import LABELS, X, Y, trained


@trained
def sequential(keras):
    layers = [keras.Input((6,)), keras.layers.Dense(8, activation="relu")]
    layers += [keras.layers.Dense(3, activation="softmax")]
    model = keras.Sequential(layers)
    model.compile("sgd", "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model, {"x": X, "y": LABELS}


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
def sums_to_the_batch(keras):
    x = keras.Input((6,))
    model = keras.Model(x, keras.layers.Dense(1)(x))
    model.compile(keras.optimizers.SGD(0.001), loss=keras.losses.MeanSquaredError(reduction="sum"))
    return model, {"x": X, "y": Y}
