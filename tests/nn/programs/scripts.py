"""Whole programs: loops of one's own, files, clones, texts, data from objects."""

import numpy as np

from tests.nn.peers import numbers
from tests.nn.programs import IMAGES, LABELS, SERIES, WEIGHTS, WORDS, X, Y, script
from tests.nn.programs.fitting import network

FIT = {"epochs": 2, "batch_size": 16, "shuffle": False, "verbose": 0}


@script
def adversaries(keras, folder):
    """A generator and a discriminator, each with an optimizer."""
    ops, layers = keras.ops, keras.layers
    make = keras.start(
        keras.Sequential([keras.Input((3,)), layers.Dense(8, "relu"), layers.Dense(6)])
    )
    judge = keras.start(
        keras.Sequential([keras.Input((6,)), layers.Dense(8, "tanh"), layers.Dense(1)])
    )
    loss = keras.losses.BinaryCrossentropy(from_logits=True)
    of_make, of_judge = keras.optimizers.Adam(0.01, beta_1=0.5), keras.optimizers.Adam(0.01)
    curve = []
    for step in range(5):
        noise, real = SERIES[:16, step], X[:16]

        def judged(noise=noise, real=real):
            fake = make(noise)
            return loss(ops.ones((16, 1)), judge(real)) + loss(ops.zeros((16, 1)), judge(fake))

        value, grads = keras.gradients(judged, judge.trainable_variables)
        of_judge.apply(grads, judge.trainable_variables)
        weights = make.trainable_variables
        fooled, grads = keras.gradients(
            lambda noise=noise: loss(ops.ones((16, 1)), judge(make(noise))), weights
        )
        of_make.apply(grads, weights)
        curve += [float(value), float(fooled)]
    return {"curve": curve, "make": make.get_weights(), "judge": judge.get_weights()}


@script
def penalty_on_gradients(keras, folder):
    """The gradient of a loss that holds a gradient."""
    judge = keras.start(network(keras))

    def loss():
        slope = keras.input_gradient(lambda x: keras.ops.sum(judge(x)), X[:8])
        norm = keras.ops.sqrt(keras.ops.sum(keras.ops.square(slope), axis=1))
        return keras.ops.mean((norm - 1.0) ** 2)

    value, grads = keras.gradients(loss, judge.trainable_variables)
    return {"value": value, "grads": list(grads)[:3]}


@script
def loop_with_metrics(keras, folder):
    model = keras.start(network(keras, 3))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    optimizer = keras.optimizers.SGD(0.1, momentum=0.5)
    right, mean = keras.metrics.SparseCategoricalAccuracy(), keras.metrics.Mean()
    found = []
    for _ in range(3):
        right.reset_state()
        for start in range(0, 48, 16):
            x, y = X[start : start + 16], LABELS[start : start + 16]
            value, grads = keras.gradients(
                lambda x=x, y=y: loss(y, model(x, training=True)), model.trainable_variables
            )
            optimizer.apply(grads, model.trainable_variables)
            right.update_state(y, model(x))
            mean(value)
        found.append((float(right.result()), float(mean.result())))
    return {"found": np.array(found), "weights": model.get_weights()}


@script
def batch_by_batch(keras, folder):
    model = keras.start(network(keras))
    model.compile(keras.optimizers.SGD(0.05), "mse", metrics=["mae"])
    losses = [model.train_on_batch(X[:16], Y[:16], return_dict=True)["loss"] for _ in range(3)]
    weighted = model.train_on_batch(X, Y, sample_weight=WEIGHTS, return_dict=True)["loss"]
    tested = model.test_on_batch(X, Y, return_dict=True)
    return {"losses": losses, "weighted": weighted, "predicted": model.predict_on_batch(X)} | tested


@script
def transfer(keras, folder):
    """Train a head on frozen features, then all of it, with statistics that stay."""
    layers = keras.layers
    base = keras.Sequential(
        [
            keras.Input((8, 8, 3)),
            layers.Conv2D(4, 3),
            layers.BatchNormalization(),
            layers.ReLU(),
            layers.GlobalAveragePooling2D(),
        ]
    )
    base.trainable = False
    x = keras.Input((8, 8, 3))
    model = keras.Model(x, layers.Dense(3)(base(x, training=False)))
    keras.start(model)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.05), loss)
    first = model.fit(IMAGES, LABELS, **FIT).history["loss"]
    counts = [len(model.trainable_weights), len(model.non_trainable_weights)]
    base.trainable = True
    base.layers[1].trainable = False
    model.compile(keras.optimizers.Adam(0.001), loss)
    second = model.fit(IMAGES, LABELS, **FIT).history["loss"]
    counts += [len(model.trainable_weights), len(model.non_trainable_weights)]
    return {"first": first, "second": second, "counts": counts, "weights": model.get_weights()}


@script
def saved_and_loaded(keras, folder):
    folder.mkdir()
    x = keras.Input((6,), name="x")
    h = keras.layers.Dense(5, activation="relu", kernel_regularizer="l2")(x)
    h = keras.layers.BatchNormalization()(h)
    model = keras.start(keras.Model(x, keras.layers.Dense(1, name="y")(h * 2.0)))
    model.compile(keras.optimizers.Adam(0.01), "mse", metrics=["mae"])
    model.fit(X, Y, **FIT)
    path = str(folder / f"model{keras.ending}")
    model.save(path)
    again = keras.models.load_model(path)
    found = {"predicted": again.predict(X, verbose=0), "before": model.predict(X, verbose=0)}
    history = again.fit(X, Y, **FIT).history
    return found | {"loss": history["loss"], "mae": history["mae"]}


@script
def classes_of_ones_own_are_saved(keras, folder):
    folder.mkdir()

    @keras.saving.register_keras_serializable(package="tests")
    class Gated(keras.layers.Layer):
        def __init__(self, units, activation="sigmoid", **kwargs):
            super().__init__(**kwargs)
            self.units = units
            self.activation = keras.activations.get(activation)
            self.dense = keras.layers.Dense(units)

        def call(self, inputs):
            h = self.dense(inputs)
            return h * self.activation(h)

        def get_config(self):
            config = super().get_config()
            config.update(units=self.units, activation=self.activation.__name__)
            return config

    @keras.saving.register_keras_serializable(package="tests")
    class Power(keras.losses.Loss):
        def __init__(self, power=2.0, name="power", reduction="sum_over_batch_size"):
            super().__init__(name=name, reduction=reduction)
            self.power = power

        def call(self, y_true, y_pred):
            return keras.ops.mean(keras.ops.abs(y_true - y_pred) ** self.power, axis=-1)

        def get_config(self):
            return {"power": self.power, "name": self.name, "reduction": self.reduction}

    model = keras.Sequential([keras.Input((6,)), Gated(4), keras.layers.Dense(1)])
    keras.start(model).compile(keras.optimizers.SGD(0.05), Power(1.5))
    model.fit(X, Y, **FIT)
    path = str(folder / f"model{keras.ending}")
    model.save(path)
    again = keras.models.load_model(path, custom_objects={"Gated": Gated, "Power": Power})
    return {
        "before": model.predict(X, verbose=0),
        "after": again.predict(X, verbose=0),
        "loss": again.fit(X, Y, **FIT).history["loss"],
    }


@script
def clones_and_configurations(keras, folder):
    x = keras.Input((6,))
    h = keras.layers.Dense(4, activation="selu", name="h")(x)
    model = keras.start(keras.Model(x, keras.layers.Dense(2)(keras.layers.Add()([h, h]))))
    found = {"model": model.predict(X, verbose=0)}
    copies = {
        "clone": keras.models.clone_model(model),
        "config": keras.Model.from_config(model.get_config()),
        "json": keras.models.model_from_json(model.to_json()),
    }
    for name, copy in copies.items():
        copy.set_weights(model.get_weights())
        found[name] = copy.predict(X, verbose=0)
    layer = keras.layers.Dense.from_config(model.get_layer("h").get_config())
    layer(X)
    layer.set_weights(model.get_layer("h").get_weights())
    return found | {"layer": layer(X), "shape": layer.compute_output_shape((2, 6))}


@script
def best_weights_in_files(keras, folder):
    folder.mkdir()
    model = keras.start(network(keras))
    model.compile(keras.optimizers.SGD(0.05), "mse")
    path = str(folder / "best.weights.h5") if keras.ending == ".keras" else str(folder / "best.ef")
    keep = keras.callbacks.ModelCheckpoint(
        path, monitor="val_loss", save_best_only=True, save_weights_only=True
    )
    log = keras.callbacks.CSVLogger(str(folder / "log.csv"))
    model.fit(X, Y, validation_split=0.25, callbacks=[keep, log], **FIT)
    other = keras.start(network(keras))
    other.load_weights(path)
    rows = (folder / "log.csv").read_text().splitlines()
    header, values = rows[0].split(","), [[float(v) for v in row.split(",")] for row in rows[1:]]
    return {"predicted": other.predict(X, verbose=0), "columns": len(header), "rows": values}


@script
def data_from_objects(keras, folder):
    """Generators, lists of batches, and objects that are indexed by batch."""

    def batches():
        while True:
            for start in range(0, 48, 16):
                yield X[start : start + 16], Y[start : start + 16]

    model = keras.start(network(keras))
    model.compile(keras.optimizers.SGD(0.05), "mse")
    made = model.fit(batches(), steps_per_epoch=3, epochs=2, verbose=0).history["loss"]
    listed = [(X[i : i + 16], Y[i : i + 16]) for i in range(0, 48, 16)]
    indexed = model.fit(keras.from_batches(listed), epochs=2, shuffle=False, verbose=0)
    tested = model.evaluate(batches(), steps=3, verbose=0)
    later = model.fit(X, Y, initial_epoch=3, epochs=5, batch_size=16, shuffle=False, verbose=0)
    return {
        "made": made,
        "indexed": indexed.history["loss"],
        "tested": tested,
        "predicted": model.predict(batches(), steps=2, verbose=0),
        "epochs": later.epoch,
        "later": later.history["loss"],
    }


@script
def datasets_of_torch(keras, folder):
    """A replacement of PyTorch's DataLoader: an iterable with a length."""

    class Loop:
        def __iter__(self):
            return iter([(X[:24], Y[:24]), (X[24:], Y[24:])])

        def __len__(self):
            return 2

    data = Loop() if keras.ending == ".ef" else keras.from_batches(list(Loop()))
    model = keras.start(network(keras))
    model.compile("adam", "mse")
    history = model.fit(data, validation_data=data, epochs=2, verbose=0, shuffle=False)
    return history.history


@script
def texts(keras, folder):
    texts = ["the cat sat", "a dog ran to the cat", "dogs, and cats!", "the the the"]
    vectorize = keras.layers.TextVectorization(max_tokens=12, output_sequence_length=5)
    vectorize.adapt(texts)
    ids = np.asarray(vectorize(np.array(texts)))
    bags = keras.layers.TextVectorization(max_tokens=12, output_mode="tf_idf")
    bags.adapt(texts)
    x = keras.Input((5,), dtype="int64")
    h = keras.layers.GlobalAveragePooling1D()(keras.layers.Embedding(12, 4, mask_zero=True)(x))
    model = keras.start(keras.Model(x, keras.layers.Dense(1, "sigmoid")(h)))
    model.compile("adam", "binary_crossentropy")
    history = model.fit(ids, np.array([0.0, 1.0, 1.0, 0.0]), epochs=2, shuffle=False, verbose=0)
    names = keras.layers.StringLookup(vocabulary=["Oslo", "Rome"], output_mode="one_hot")
    towns = names(np.array([["Oslo"], ["Rome"], ["Oslo"], ["Bern"]]))
    return {
        "ids": ids,
        "words": len(vectorize.get_vocabulary()),
        "towns": towns,
        "bags": bags(np.array(texts)),
        "loss": history.history["loss"],
    }


@script
def tables(keras, folder):
    """Columns of numbers and of names, made ready and put together."""
    layers = keras.layers
    ages = np.array([[20.0], [35.0], [50.0], [65.0]], "float32")
    codes = np.array([[3], [7], [3], [9]])
    normalize = layers.Normalization()
    normalize.adapt(ages)
    buckets = layers.Discretization(bin_boundaries=[30.0, 60.0], output_mode="one_hot")
    numbers = layers.IntegerLookup(vocabulary=[3, 7], num_oov_indices=2)
    encoded = layers.CategoryEncoding(num_tokens=5, output_mode="multi_hot")
    hashed = layers.Hashing(num_bins=6)(codes)
    found = {
        "ages": normalize(ages),
        "buckets": buckets(ages),
        "codes": numbers(codes),
        "encoded": encoded(np.asarray(numbers(codes))),
        "hashed": hashed,
    }
    columns = [np.asarray(found[n], "float32") for n in ("ages", "buckets", "encoded")]
    table = np.concatenate(columns, axis=1)
    model = keras.Sequential([keras.Input((table.shape[1],)), layers.Dense(1)])
    keras.start(model).compile("sgd", "mse")
    return found | model.fit(table, ages / 50, epochs=3, shuffle=False, verbose=0).history


@script
def translation_step_by_step(keras, folder):
    """The decoder of a translation model with its states, one word after the other."""
    layers = keras.layers
    source, target = keras.Input((None, 4), name="source"), keras.Input((None, 4), name="target")
    encoder, decoder = (
        layers.LSTM(5, return_state=True),
        layers.LSTM(5, return_sequences=True, return_state=True),
    )
    end = layers.Dense(4, activation="softmax")
    _, h, c = encoder(source)
    model = keras.start(
        keras.Model([source, target], end(decoder(target, initial_state=[h, c])[0]))
    )
    encode = keras.Model(source, [h, c])
    states = [keras.Input((5,)), keras.Input((5,))]
    outputs, h, c = decoder(target, initial_state=states)
    decode = keras.Model([target, *states], [end(outputs), h, c])
    given = np.eye(4, dtype="float32")[WORDS[:3] % 4]
    h, c = encode.predict(given, verbose=0)
    word, said = np.zeros((3, 1, 4), "float32"), []
    for _ in range(4):
        probabilities, h, c = decode.predict([word, h, c], verbose=0)
        word = np.eye(4, dtype="float32")[probabilities.argmax(-1)]
        said.append(probabilities)
    whole = model.predict([given, given], verbose=0)
    return {"said": said, "whole": whole}


@script
def states_that_stay(keras, folder):
    layer = keras.layers.GRU(4, stateful=True, return_sequences=True)
    layer(SERIES[:4, :3])
    keras.start(layer)
    layer.reset_states()
    parts = [SERIES[:4, :3], SERIES[:4, 3:6]]
    together = [numbers(layer(part)) for part in parts]
    layer.reset_states()
    return {"together": together, "again": layer(parts[0])}


@script
def saliency(keras, folder):
    """Gradients with regard to the inputs, and features of layers."""
    layers = keras.layers
    x = keras.Input((8, 8, 3))
    h = layers.Conv2D(4, 3, activation="relu", name="last")(x)
    model = keras.start(keras.Model(x, layers.Dense(3)(layers.GlobalMaxPooling2D()(h))))
    grads = keras.input_gradient(lambda x: keras.ops.sum(model(x)[:, 1]), IMAGES[:4])
    both = keras.Model(model.inputs, [model.get_layer("last").output, model.output])
    return {"grads": grads, "both": both.predict(IMAGES[:4], verbose=0)}


@script
def tests_of_layers(keras, folder):
    """Shapes, names, numbers of parameters, and weights set by hand."""
    layers = keras.layers
    dense = layers.Dense(3, name="dense")
    dense(np.ones((2, 4), "float32"))
    dense.set_weights([np.eye(4, 3, dtype="float32"), np.arange(3, dtype="float32")])
    conv = layers.Conv2D(2, 3, strides=2, padding="same")
    shape = conv.compute_output_shape((None, 9, 8, 3))
    lines = []
    model = keras.Sequential([keras.Input((4,)), dense, layers.BatchNormalization()])
    model.summary(print_fn=lambda line, **_: lines.append(line))
    named = [w.name.split("/")[-1] for w in model.weights]
    assert named == ["kernel", "bias", "gamma", "beta", "moving_mean", "moving_variance"]
    assert "dense" in "\n".join(lines)
    return {
        "dense": dense(np.ones((2, 4), "float32")),
        "shape": [-1 if size is None else size for size in shape],
        "counts": [model.count_params(), len(model.layers), len(model.trainable_variables)],
    }


@script
def gradients_of_every_weight(keras, folder):
    layers = keras.layers
    x = keras.Input((7, 3))
    h = layers.Bidirectional(layers.LSTM(3, return_sequences=True))(x)
    h = layers.LayerNormalization()(layers.MultiHeadAttention(2, 2)(h, h) + h)
    h = layers.Conv1D(4, 3, padding="same", activation="gelu")(h)
    model = keras.start(keras.Model(x, layers.Dense(1)(layers.GlobalAveragePooling1D()(h))))
    loss = keras.losses.MeanSquaredError()
    value, grads = keras.gradients(
        lambda: loss(Y[:16], model(SERIES[:16], training=True)), model.trainable_variables
    )
    return {"value": value, "grads": list(grads)}


@script
def averages_swapped_for_validation(keras, folder):
    model = keras.start(network(keras))
    model.compile(keras.optimizers.SGD(0.1, use_ema=True, ema_momentum=0.5), "mse")
    swap = keras.callbacks.SwapEMAWeights(swap_on_epoch=False)
    return model.fit(X, Y, validation_data=(X, Y), callbacks=[swap], **FIT).history


@script
def policy_gradient(keras, folder):
    """Rewards of actions weigh their log probabilities."""
    actor, critic = keras.start(network(keras, 3)), keras.start(network(keras, 1))
    variables = actor.trainable_variables + critic.trainable_variables
    optimizer = keras.optimizers.Adam(0.02)
    actions = keras.ops.convert_to_tensor(np.eye(3, dtype="float32")[LABELS[:16]])
    rewards = keras.ops.convert_to_tensor(Y[:16, 0])
    curve = []
    for _ in range(4):

        def loss():
            ops = keras.ops
            log_p = ops.sum(ops.log_softmax(actor(X[:16]), axis=-1) * actions, axis=-1)
            value = critic(X[:16])[:, 0]
            advantage = ops.stop_gradient(rewards - value)
            return -ops.mean(log_p * advantage) + ops.mean((rewards - value) ** 2)

        value, grads = keras.gradients(loss, variables)
        optimizer.apply(grads, variables)
        curve.append(float(value))
    return {"curve": curve}


@script
def own_metrics_in_own_steps(keras, folder):
    """Metrics that a model has as attributes are reset and reported with each epoch."""

    class Network(keras.Model):
        def __init__(self):
            super().__init__()
            self.dense = keras.layers.Dense(1)
            self.distance = keras.metrics.Mean(name="distance")

        def call(self, inputs):
            return self.dense(inputs)

        def compute_metrics(self, x, y, y_pred, sample_weight=None):
            self.distance.update_state(keras.ops.abs(y - y_pred))
            return super().compute_metrics(x, y, y_pred, sample_weight) | {
                "distance": self.distance.result()
            }

    model = Network()
    model(X[:2])
    keras.start(model).compile("sgd", "mse", metrics=["mae"])
    history = model.fit(X, Y, **FIT).history
    return history | {"evaluated": model.evaluate(X, Y, verbose=0, return_dict=True)["distance"]}


@script
def permutations_of_noise(keras, folder):
    """Layers that are random in training only do not change inference."""
    layers = keras.layers
    random = [
        layers.Dropout(0.5),
        layers.GaussianNoise(1.0),
        layers.GaussianDropout(0.5),
        layers.AlphaDropout(0.5),
        layers.SpatialDropout1D(0.5),
    ]
    assert all(np.asarray(layer(SERIES, training=True)).std() > 0 for layer in random)
    return {str(i): layer(SERIES, training=False) for i, layer in enumerate(random)}
