"""How ``fit`` is called: weights, schedules, metrics in all forms, precision, averages."""

import numpy as np

from tests.nn.programs import LABELS, MANY, ONE_HOT, WEIGHTS, WORDS, X, Y, trained
from tests.nn.programs.libraries import policy


def network(keras, outputs=1, activation=None):
    return keras.Sequential(
        [
            keras.Input((6,)),
            keras.layers.Dense(8, activation="tanh"),
            keras.layers.Dense(outputs, activation=activation),
        ]
    )


@trained
def several_labels(keras):
    model = network(keras, 4, "sigmoid")
    model.compile(
        keras.optimizers.Adam(0.02),
        "binary_crossentropy",
        metrics=[
            "binary_accuracy",
            keras.metrics.AUC(multi_label=True, num_thresholds=50),
            keras.metrics.Precision(thresholds=0.4),
            keras.metrics.Recall(name="found"),
            keras.metrics.F1Score(average="macro", threshold=0.5),
        ],
    )
    return model, {"x": X, "y": MANY}


@trained
def rare_class(keras):
    model = network(keras, 1, "sigmoid")
    rare = (Y > 0.8).astype("float32")
    metrics = [
        keras.metrics.FalseNegatives(name="fn"),
        keras.metrics.FalsePositives(name="fp"),
        keras.metrics.TrueNegatives(name="tn"),
        keras.metrics.TruePositives(name="tp"),
        keras.metrics.AUC(name="prc", curve="PR"),
    ]
    model.compile(
        keras.optimizers.Adam(0.01), keras.losses.BinaryFocalCrossentropy(), metrics=metrics
    )
    return model, {"x": X, "y": rare, "class_weight": {0: 0.6, 1: 3.0}}


@trained
def metrics_of_classes(keras):
    model = network(keras, 3, "softmax")
    model.compile(
        optimizer=keras.optimizers.Adam(0.02),
        loss="categorical_crossentropy",
        metrics=[
            "acc",
            "categorical_accuracy",
            keras.metrics.TopKCategoricalAccuracy(k=2),
            keras.metrics.CategoricalCrossentropy(name="xent"),
            keras.metrics.OneHotMeanIoU(num_classes=3),
            "mse",
            "cosine_similarity",
        ],
        weighted_metrics=["accuracy"],
    )
    return model, {"x": X, "y": ONE_HOT, "sample_weight": WEIGHTS}


@trained
def metrics_of_regression(keras):
    model = network(keras)
    model.compile(
        keras.optimizers.SGD(0.02),
        keras.losses.Huber(),
        metrics=["mae", "mape", keras.metrics.RootMeanSquaredError(), keras.metrics.R2Score()],
    )
    return model, {"x": X, "y": Y, "sample_weight": WEIGHTS}


@trained
def weighted_outputs(keras):
    x = keras.Input((6,))
    outputs = {"a": keras.layers.Dense(1)(x), "b": keras.layers.Dense(3, "softmax")(x)}
    model = keras.Model(x, outputs)
    model.compile(
        keras.optimizers.SGD(0.05),
        {"a": "mae", "b": keras.losses.SparseCategoricalCrossentropy()},
        weighted_metrics={"a": ["mse"], "b": ["accuracy"]},
    )
    shares = {"a": WEIGHTS, "b": WEIGHTS[::-1].copy()}
    return model, {"x": X, "y": {"a": Y, "b": LABELS}, "sample_weight": shares}


@trained
def an_output_without_loss(keras):
    x = keras.Input((6,))
    h = keras.layers.Dense(4, activation="relu", name="h")(x)
    model = keras.Model(x, [keras.layers.Dense(1, name="y")(h), h])
    model.compile(keras.optimizers.SGD(0.05), loss=["mse", None], metrics=[["mae"], None])
    return model, {"x": X, "y": [Y, np.zeros((48, 4), "float32")]}


@trained
def weights_of_time_steps(keras):
    model = keras.Sequential(
        [
            keras.layers.Embedding(11, 4),
            keras.layers.SimpleRNN(4, return_sequences=True),
            keras.layers.Dense(3, activation="softmax"),
        ]
    )
    model.compile("sgd", "sparse_categorical_crossentropy", weighted_metrics=["accuracy"])
    shares = (WORDS != 0).astype("float32")
    return model, {"x": WORDS, "y": WORDS % 3, "sample_weight": shares}


@trained
def decaying_rate(keras):
    schedules = keras.optimizers.schedules
    rate = schedules.CosineDecay(0.01, 6, warmup_target=0.05, warmup_steps=3)
    model = network(keras)
    model.compile(keras.optimizers.SGD(rate, momentum=0.9), "mse")
    return model, {"x": X, "y": Y}


@trained
def stepwise_rate(keras):
    schedules = keras.optimizers.schedules
    model = network(keras)
    rate = schedules.PiecewiseConstantDecay([3, 6], [0.1, 0.05, 0.01])
    model.compile(keras.optimizers.RMSprop(rate, centered=True, momentum=0.1), "mse")
    return model, {"x": X, "y": Y}


@trained
def own_schedule(keras):
    class InverseRoot(keras.optimizers.schedules.LearningRateSchedule):
        def __init__(self, width):
            self.width = width

        def __call__(self, step):
            step = keras.ops.cast(step, "float32") + 1.0
            return self.width**-0.5 * keras.ops.minimum(step**-0.5, step * 4.0**-1.5)

        def get_config(self):
            return {"width": self.width}

    model = network(keras)
    model.compile(keras.optimizers.Adam(InverseRoot(64), beta_2=0.98, epsilon=1e-9), "mse")
    return model, {"x": X, "y": Y}


@trained
def rates_set_by_callbacks(keras):
    class Halve(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            optimizer = self.model.optimizer
            optimizer.learning_rate = float(np.asarray(optimizer.learning_rate)) / 2

    model = network(keras)
    model.compile(keras.optimizers.SGD(0.1), "mse")
    callbacks = [
        Halve(),
        keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate * 0.9),
        keras.callbacks.ReduceLROnPlateau(monitor="loss", factor=0.5, patience=1, min_delta=10.0),
    ]
    return model, {"x": X, "y": Y, "callbacks": callbacks}


@trained
def stops_early(keras):
    model = network(keras)
    model.compile(keras.optimizers.SGD(0.05), "mse")
    stop = keras.callbacks.EarlyStopping(
        monitor="val_loss", patience=1, min_delta=1.0, restore_best_weights=True
    )
    data = {"x": X[:32], "y": Y[:32], "validation_data": (X[32:], Y[32:], WEIGHTS[32:])}
    return model, data | {"callbacks": [stop]}


@trained
def numbers_from_callbacks(keras):
    seen = []

    class Count(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            seen.append(batch)

        def on_epoch_end(self, epoch, logs=None):
            logs["batches"] = float(len(seen))
            logs["double"] = 2 * logs["loss"]

    model = network(keras)
    model.compile("sgd", "mse")
    return model, {"x": X, "y": Y, "callbacks": [Count()], "validation_split": 0.5}


@trained
def averages_of_weights(keras):
    model = network(keras)
    optimizer = keras.optimizers.Adam(0.02, use_ema=True, ema_momentum=0.8)
    model.compile(optimizer, "mse")
    return model, {"x": X, "y": Y}


@trained
def averages_written_over_weights(keras):
    model = network(keras)
    options = {"use_ema": True, "ema_momentum": 0.7, "ema_overwrite_frequency": 2}
    model.compile(keras.optimizers.SGD(0.05, **options), "mse")
    return model, {"x": X, "y": Y}


@trained
def accumulated_gradients(keras):
    model = network(keras)
    optimizer = keras.optimizers.Adam(0.02, gradient_accumulation_steps=2)
    model.compile(optimizer, "mse")
    return model, {"x": X, "y": Y}


@trained
def clipped_and_decayed(keras):
    model = network(keras)
    optimizer = keras.optimizers.Adam(0.02, clipnorm=0.1, weight_decay=0.02)
    model.compile(optimizer, "mse")
    return model, {"x": X, "y": Y}


@trained
def clipped_values(keras):
    model = network(keras)
    model.compile(keras.optimizers.Adadelta(1.0, clipvalue=0.01), keras.losses.LogCosh())
    return model, {"x": X, "y": Y}


@trained
def half_precision(keras):
    with policy(keras, "mixed_bfloat16"):
        model = keras.Sequential(
            [
                keras.Input((6,)),
                keras.layers.Dense(8, activation="relu"),
                keras.layers.Dense(1, dtype="float32"),
            ]
        )
    model.compile(keras.optimizers.SGD(0.02), "mse")
    # bfloat16 has 8 bits, so inputs and computed values are small integers.
    return model, {"x": np.sign(X), "y": np.zeros_like(Y)}


@trained
def double_precision_layers(keras):
    model = keras.Sequential(
        [keras.Input((6,)), keras.layers.Dense(4, "tanh"), keras.layers.Dense(1, dtype="float32")]
    )
    model.compile(keras.optimizers.Ftrl(0.1, l1_regularization_strength=0.01), "mse")
    return model, {"x": X.astype("float64"), "y": Y.astype("float64")[:, 0]}


@trained
def labels_of_other_shapes(keras):
    model = network(keras, 3, "softmax")
    model.compile("sgd", "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model, {"x": X, "y": LABELS[:, None].astype("float32")}


@trained
def losses_by_name(keras):
    x = keras.Input((6,))
    h = keras.layers.Dense(4, activation="sigmoid")(x)
    outputs = [keras.layers.Dense(4, activation="sigmoid", name=f"o{i}")(h) for i in range(6)]
    names = [
        "poisson",
        "squared_hinge",
        "cosine_similarity",
        "mean_squared_logarithmic_error",
        "mean_absolute_percentage_error",
        "dice",
    ]
    model = keras.Model(x, outputs)
    model.compile(keras.optimizers.SGD(0.01), names)
    target = (0.2 + MANY).astype("float32")
    return model, {"x": X, "y": [target] * 6}


@trained
def sums_and_products_of_predictions(keras):
    """Binary losses of one number for an example, with labels without an axis of their own."""
    model = network(keras, 1, "sigmoid")
    model.compile("adam", "binary_crossentropy", metrics=["accuracy", "mse"])
    return model, {"x": X, "y": (Y[:, 0] > 0).astype("int32")}


@trained
def validated_now_and_then(keras):
    model = network(keras)
    model.compile("sgd", "mse", metrics=["mae"])
    return model, {"x": X, "y": Y, "validation_data": (X[:7], Y[:7]), "validation_freq": 2}
