"""Models and layers as classes, and other user-defined parts: losses, metrics, regularizers ..."""

import numpy as np

from tests.nn.programs import IMAGES, LABELS, ONE_HOT, SERIES, WEIGHTS, WORDS, X, Y, trained


@trained
def layers_in_lists_and_dicts(keras):
    class Network(keras.Model):
        def __init__(self):
            super().__init__()
            self.blocks = [keras.layers.Dense(5, activation="tanh") for _ in range(2)]
            self.heads = {"mean": keras.layers.Dense(1), "scale": keras.layers.Dense(1)}

        def call(self, inputs):
            for block in self.blocks:
                inputs = block(inputs)
            return self.heads["mean"](inputs) * keras.ops.exp(self.heads["scale"](inputs))

    model = Network()
    model.compile(keras.optimizers.SGD(0.02), "mse")
    return model, {"x": X, "y": Y}


@trained
def residual_blocks(keras):
    class Block(keras.layers.Layer):
        def __init__(self, width):
            super().__init__()
            self.wide = keras.layers.Dense(2 * width, activation="relu")
            self.norm = keras.layers.BatchNormalization(momentum=0.8)
            self.narrow = keras.layers.Dense(width)

        def call(self, inputs, training=False):
            return inputs + self.narrow(self.norm(self.wide(inputs), training=training))

    class Network(keras.Model):
        def __init__(self, depth):
            super().__init__()
            self.stack = keras.Sequential([Block(6) for _ in range(depth)])
            self.head = keras.layers.Dense(3)

        def call(self, inputs, training=False):
            return self.head(self.stack(inputs, training=training))

    model = Network(2)
    loss = keras.losses.CategoricalCrossentropy(from_logits=True, label_smoothing=0.1)
    model.compile(keras.optimizers.Adam(0.01), loss, metrics=["accuracy"])
    return model, {"x": X, "y": ONE_HOT}


@trained
def layer_with_weights_of_its_own(keras):
    class Quadratic(keras.layers.Layer):
        def __init__(self, units, **kwargs):
            super().__init__(**kwargs)
            self.units = units

        def build(self, input_shape):
            width = input_shape[-1]
            self.square = self.add_weight(
                shape=(width, self.units), initializer="random_normal", regularizer="l1"
            )
            self.linear = self.add_weight(shape=(width, self.units), initializer="glorot_normal")
            self.offset = self.add_weight(shape=(self.units,), initializer="zeros")
            self.calls = self.add_weight(shape=(), initializer="zeros", trainable=False)

        def call(self, inputs, training=False):
            if training:
                self.calls.assign(self.calls + 1.0)
            squared = keras.ops.matmul(keras.ops.square(inputs), self.square)
            return squared + keras.ops.matmul(inputs, self.linear) + self.offset

        def get_config(self):
            return super().get_config() | {"units": self.units}

    model = keras.Sequential([keras.Input((6,)), Quadratic(3), Quadratic(1)])
    model.compile(keras.optimizers.SGD(0.005), "mse")
    return model, {"x": X, "y": Y}


@trained
def dicts_in_and_out(keras):
    class Network(keras.Model):
        def __init__(self):
            super().__init__()
            self.text = keras.layers.Embedding(11, 4)
            self.table = keras.layers.Dense(4, activation="relu")
            self.price, self.kind = keras.layers.Dense(1), keras.layers.Dense(3)

        def call(self, inputs):
            words = keras.ops.mean(self.text(inputs["words"]), axis=1)
            h = keras.ops.concatenate([words, self.table(inputs["numbers"])], axis=-1)
            return {"price": self.price(h), "kind": keras.ops.softmax(self.kind(h))}

    model = Network()
    model.compile(
        keras.optimizers.Adam(0.01),
        loss={"price": "mse", "kind": "sparse_categorical_crossentropy"},
        metrics={"price": "mae", "kind": ["accuracy", "sparse_categorical_crossentropy"]},
        loss_weights={"price": 0.3, "kind": 1.0},
    )
    data = {"words": WORDS, "numbers": X}, {"price": Y, "kind": LABELS}
    return model, dict(zip(("x", "y"), data, strict=True))


@trained
def losses_added_in_call(keras):
    class Sparse(keras.layers.Layer):
        def __init__(self, rate):
            super().__init__()
            self.rate = rate

        def call(self, inputs):
            self.add_loss(self.rate * keras.ops.mean(keras.ops.abs(inputs)))
            return inputs

    x = keras.Input((6,))
    h = Sparse(0.1)(keras.layers.Dense(4, activation="relu")(x))
    h = keras.layers.ActivityRegularization(l2=0.01)(h)
    model = keras.Model(x, keras.layers.Dense(1)(h))
    model.compile(keras.optimizers.SGD(0.05), "mse")
    return model, {"x": X, "y": Y}


@trained
def variational_autoencoder(keras):
    """The noise is an input, so that both libraries have the same."""

    class Autoencoder(keras.Model):
        def __init__(self):
            super().__init__()
            self.encoder = keras.layers.Dense(8, activation="relu")
            self.mean, self.log_variance = keras.layers.Dense(2), keras.layers.Dense(2)
            self.decoder = keras.Sequential(
                [keras.layers.Dense(8, activation="relu"), keras.layers.Dense(6)]
            )

        def call(self, inputs):
            x, noise = inputs
            h = self.encoder(x)
            mean, log_variance = self.mean(h), self.log_variance(h)
            z = mean + keras.ops.exp(0.5 * log_variance) * noise
            divergence = 1 + log_variance - mean**2 - keras.ops.exp(log_variance)
            self.add_loss(-0.5 * keras.ops.mean(keras.ops.sum(divergence, axis=1)))
            return self.decoder(z)

    model = Autoencoder()
    model.compile(keras.optimizers.Adam(0.01), keras.losses.MeanSquaredError())
    return model, {"x": (X, SERIES[:, 0, :2].copy()), "y": X}


@trained
def distillation(keras):
    class Distiller(keras.Model):
        def __init__(self, teacher, student, temperature):
            super().__init__()
            self.teacher, self.student, self.temperature = teacher, student, temperature
            self.teacher.trainable = False

        def call(self, inputs, training=False):
            return self.student(inputs, training=training)

        def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
            hard = super().compute_loss(x, y, y_pred, sample_weight, training)
            soft = keras.losses.kl_divergence(
                keras.ops.softmax(self.teacher(x, training=False) / self.temperature),
                keras.ops.softmax(y_pred / self.temperature),
            )
            return 0.3 * hard + 0.7 * keras.ops.mean(soft) * self.temperature**2

    def network(width):
        x = keras.Input((6,))
        return keras.Model(x, keras.layers.Dense(3)(keras.layers.Dense(width, "relu")(x)))

    model = Distiller(network(9), network(4), 3.0)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.01), loss, metrics=["accuracy"])
    return model, {"x": X, "y": LABELS}


@trained
def contrast_without_targets(keras):
    class Contrast(keras.Model):
        def __init__(self):
            super().__init__()
            self.encoder = keras.layers.Dense(4, use_bias=False)

        def call(self, inputs):
            return [self.encoder(inputs["one"]), self.encoder(inputs["other"])]

        def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
            ops = keras.ops
            a, b = (z / ops.norm(z, axis=-1)[:, None] for z in y_pred)
            alike = ops.matmul(a, ops.transpose(b, (1, 0))) / 0.5
            return -ops.mean(ops.diagonal(ops.log_softmax(alike, axis=-1)))

    model = Contrast()
    model.compile(keras.optimizers.Adam(0.01))
    return model, {"x": {"one": X, "other": X + 0.1}}


@trained
def own_losses_and_metrics(keras):
    class Asymmetric(keras.losses.Loss):
        def __init__(self, ratio=2.0, **kwargs):
            super().__init__(**kwargs)
            self.ratio = ratio

        def call(self, y_true, y_pred):
            error = y_pred - y_true
            return keras.ops.mean(keras.ops.maximum(-error, self.ratio * error), axis=-1)

        def get_config(self):
            return super().get_config() | {"ratio": self.ratio}

    class Within(keras.metrics.Metric):
        def __init__(self, bound, name="within", **kwargs):
            super().__init__(name=name, **kwargs)
            self.bound = bound
            self.hits = self.add_variable(shape=(), initializer="zeros", name="hits")
            self.seen = self.add_weight(shape=(), initializer="zeros", name="seen")

        def update_state(self, y_true, y_pred, sample_weight=None):
            near = keras.ops.cast(keras.ops.abs(y_true - y_pred) < self.bound, "float32")
            self.hits.assign_add(keras.ops.sum(near))
            self.seen.assign_add(keras.ops.sum(keras.ops.ones_like(near)))

        def result(self):
            return self.hits / self.seen

    def bias(y_true, y_pred):
        return keras.ops.mean(y_pred - y_true, axis=-1)

    x = keras.Input((6,))
    model = keras.Model(x, keras.layers.Dense(1)(x))
    metrics = [Within(0.5), bias, keras.metrics.MeanMetricWrapper(bias, name="wrapped")]
    model.compile(keras.optimizers.SGD(0.05), loss=Asymmetric(3.0), metrics=metrics)
    return model, {"x": X, "y": Y, "sample_weight": WEIGHTS}


@trained
def own_initializers_regularizers_constraints(keras):
    class Diagonal(keras.initializers.Initializer):
        def __call__(self, shape, dtype=None):
            return keras.ops.convert_to_tensor(np.eye(*shape, dtype="float32"))

    class Orthogonality(keras.regularizers.Regularizer):
        def __init__(self, rate):
            self.rate = rate

        def __call__(self, x):
            product = keras.ops.matmul(keras.ops.transpose(x, (1, 0)), x)
            return self.rate * keras.ops.sum(keras.ops.square(product))

    class Bounded(keras.constraints.Constraint):
        def __call__(self, w):
            return keras.ops.clip(w, -0.3, 0.3)

    x = keras.Input((6,))
    h = keras.layers.Dense(
        6,
        kernel_initializer=Diagonal(),
        kernel_regularizer=Orthogonality(0.01),
        kernel_constraint=Bounded(),
        bias_constraint=keras.constraints.MaxNorm(0.2),
    )(x)
    regularizer = keras.regularizers.L1L2(0.01, 0.02)
    outputs = keras.layers.Dense(1, kernel_regularizer=regularizer)(h)
    model = keras.Model(x, outputs)
    model.compile(keras.optimizers.SGD(0.05), lambda y, p: keras.ops.mean((y - p) ** 2, axis=-1))
    return model, {"x": X, "y": Y}


@trained
def transformer_of_classes(keras):
    class Embedded(keras.layers.Layer):
        def __init__(self, words, length, width):
            super().__init__()
            self.words = keras.layers.Embedding(words, width)
            self.places = keras.layers.Embedding(length, width)

        def call(self, ids):
            return self.words(ids) + self.places(keras.ops.arange(ids.shape[-1]))

    class Block(keras.layers.Layer):
        def __init__(self, width, heads):
            super().__init__()
            self.attention = keras.layers.MultiHeadAttention(heads, width // heads, use_bias=False)
            self.norms = [keras.layers.LayerNormalization() for _ in range(2)]
            self.ffn = keras.Sequential(
                [keras.layers.Dense(2 * width, activation="relu"), keras.layers.Dense(width)]
            )

        def call(self, x):
            h = self.norms[0](x)
            x = x + self.attention(h, h, use_causal_mask=True)
            return x + self.ffn(self.norms[1](x))

    ids = keras.Input((7,), dtype="int32")
    h = Block(4, 2)(Block(4, 2)(Embedded(11, 7, 4)(ids)))
    model = keras.Model(ids, keras.layers.Dense(11, activation="softmax")(h))
    model.compile(
        keras.optimizers.Adam(0.01), "sparse_categorical_crossentropy", metrics=["accuracy"]
    )
    return model, {"x": WORDS, "y": np.roll(WORDS, -1, axis=1)}


@trained
def patches_of_images(keras):
    class Patches(keras.layers.Layer):
        def call(self, images):
            tiles = keras.ops.reshape(images, (-1, 2, 4, 2, 4, 3))
            return keras.ops.reshape(keras.ops.transpose(tiles, (0, 1, 3, 2, 4, 5)), (-1, 4, 48))

    class WithClass(keras.layers.Layer):
        def build(self, shape):
            self.token = self.add_weight(shape=(1, 1, shape[-1]), initializer="zeros")
            self.places = self.add_weight(shape=(1, shape[1] + 1, shape[-1]))

        def call(self, x):
            first = keras.ops.tile(self.token, (keras.ops.shape(x)[0], 1, 1))
            return keras.ops.concatenate([first, x], axis=1) + self.places

    layers = keras.layers
    x = keras.Input((8, 8, 3))
    h = WithClass()(layers.Dense(6)(Patches()(x)))
    normed = layers.LayerNormalization()(h)
    h = h + layers.MultiHeadAttention(2, 3, use_bias=False)(normed, normed)
    model = keras.Model(x, layers.Dense(3)(h[:, 0]))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.AdamW(0.005), loss, metrics=["accuracy"])
    return model, {"x": IMAGES, "y": LABELS}


@trained
def masks_through_own_layers(keras):
    class Doubled(keras.layers.Layer):
        def __init__(self):
            super().__init__()
            self.supports_masking = True

        def call(self, inputs):
            return inputs * 2.0

    class Mean(keras.layers.Layer):
        def __init__(self):
            super().__init__()
            self.supports_masking = False

        def call(self, inputs, mask=None):
            if mask is None:  # while a model is made
                return keras.ops.mean(inputs, axis=1)
            share = keras.ops.cast(mask, "float32")[:, :, None]
            return keras.ops.sum(inputs * share, axis=1) / (keras.ops.sum(share, axis=1) + 1e-3)

    class Even(keras.layers.Layer):
        """Every other word."""

        def call(self, inputs):
            return inputs[:, ::2]

        def compute_mask(self, inputs, mask=None):
            return None if mask is None else mask[:, ::2]

    ids = keras.Input((7,), dtype="int32")
    h = Doubled()(keras.layers.Embedding(11, 4, mask_zero=True)(ids))
    model = keras.Model(ids, keras.layers.Dense(1)(Mean()(Even()(keras.layers.Dropout(0.0)(h)))))
    model.compile(keras.optimizers.SGD(0.05), "mse")
    return model, {"x": WORDS, "y": Y}


@trained
def low_rank_adapters(keras):
    class Adapted(keras.layers.Layer):
        def __init__(self, base, rank):
            super().__init__()
            self.base, self.rank = base, rank
            self.base.trainable = False
            self.down = keras.layers.Dense(rank, use_bias=False)
            self.up = keras.layers.Dense(base.units, use_bias=False, kernel_initializer="zeros")

        def call(self, inputs):
            return self.base(inputs) + self.up(self.down(inputs))

    x = keras.Input((6,))
    dense = keras.layers.Dense(5, activation="tanh")
    dense(x)
    model = keras.Model(x, keras.layers.Dense(1)(Adapted(dense, 2)(x)))
    model.compile(keras.optimizers.Adam(0.02), "mse")
    return model, {"x": X, "y": Y}
