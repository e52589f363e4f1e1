"""Models from inputs and outputs."""

from tests.nn.programs import IMAGES, LABELS, ONE_HOT, SERIES, X, Y, trained


@trained
def wide_and_deep(keras):
    wide, deep = keras.Input((3,), name="wide"), keras.Input((6,), name="deep")
    h = keras.layers.Dense(8, "relu")(deep)
    h = keras.layers.Dense(8, "relu")(h)
    joined = keras.layers.Concatenate()([wide, h])
    model = keras.Model([wide, deep], keras.layers.Dense(1)(joined))
    model.compile(optimizer="adam", loss="mse", metrics=["mae"])
    return model, {"x": {"deep": X, "wide": X[:, :3]}, "y": Y}


@trained
def one_head_helps_the_other(keras):
    main, side = keras.Input((6,), name="main"), keras.Input((3,), name="side")
    h = keras.layers.Dense(5, activation="tanh", name="h")(main)
    early = keras.layers.Dense(3, activation="softmax", name="early")(h)
    late = keras.layers.Dense(1, name="late")(keras.layers.Concatenate()([h, early, side]))
    model = keras.Model(inputs=[main, side], outputs=[late, early])
    model.compile(
        optimizer=keras.optimizers.RMSprop(0.01),
        loss=[keras.losses.MeanSquaredError(), keras.losses.CategoricalCrossentropy()],
        loss_weights=[1.0, 0.2],
    )
    return model, {"x": {"main": X, "side": X[:, 3:]}, "y": {"late": Y, "early": ONE_HOT}}


@trained
def models_within_models(keras):
    inner_in = keras.Input((6,))
    inner = keras.Model(inner_in, keras.layers.Dense(4, "tanh")(inner_in), name="inner")
    middle = keras.Sequential([inner, keras.layers.Dense(5, "relu"), keras.layers.Dense(4)])
    x = keras.Input((6,))
    both = keras.layers.Add()([inner(x), middle(x)])
    model = keras.Model(x, keras.layers.Dense(1)(both))
    model.compile(keras.optimizers.SGD(0.05), "mse")
    return model, {"x": X, "y": Y}


@trained
def ensemble(keras):
    def member():
        x = keras.Input((6,))
        return keras.Model(x, keras.layers.Dense(1)(keras.layers.Dense(4, "relu")(x)))

    x = keras.Input((6,))
    model = keras.Model(x, keras.layers.Average()([member()(x) for _ in range(3)]))
    model.compile(keras.optimizers.SGD(0.05), "mse")
    return model, {"x": X, "y": Y}


@trained
def twins(keras):
    x = keras.Input((6,))
    tower = keras.Model(x, keras.layers.Dense(4)(keras.layers.Dense(8, "tanh")(x)))
    a, b = keras.Input((6,), name="a"), keras.Input((6,), name="b")
    distance = keras.layers.Lambda(
        lambda ab: keras.ops.sum(keras.ops.square(ab[0] - ab[1]), axis=1, keepdims=True)
    )([tower(a), tower(b)])
    model = keras.Model([a, b], keras.layers.Dense(1, activation="sigmoid")(distance))
    model.compile(keras.optimizers.Adam(0.01), "binary_crossentropy", metrics=["accuracy"])
    return model, {"x": [X, X[::-1].copy()], "y": (Y > 0).astype("float32")}


@trained
def ops_between_layers(keras):
    ops = keras.ops
    x = keras.Input((6,))
    h = keras.layers.Dense(6)(x)
    gate = ops.sigmoid(h) * ops.exp(-ops.abs(x)) + 1.0
    parts = ops.split(gate, 2, axis=1)
    joined = ops.concatenate(
        [parts[1], parts[0] ** 2.0, ops.mean(h, axis=1, keepdims=True)], axis=1
    )
    outputs = keras.layers.Dense(1)(ops.stack([joined, -joined], axis=1)[:, 0])
    model = keras.Model(x, outputs)
    model.compile(keras.optimizers.SGD(0.05), "mse")
    return model, {"x": X, "y": Y}


@trained
def mixture_of_experts(keras):
    x = keras.Input((6,))
    gates = keras.layers.Dense(3, activation="softmax")(x)
    experts = [keras.layers.Dense(2, activation="tanh")(x) for _ in range(3)]
    experts = keras.ops.stack(experts, axis=1)
    mixed = keras.layers.Dot(axes=1)([gates, experts])
    model = keras.Model(x, keras.layers.Dense(1)(mixed))
    model.compile(keras.optimizers.Adam(0.01), keras.losses.Huber(delta=0.5))
    return model, {"x": X, "y": Y}


@trained
def highway(keras):
    x = h = keras.Input((6,))
    for _ in range(3):
        gate = keras.layers.Dense(6, activation="sigmoid", bias_initializer="ones")(h)
        candidate = keras.layers.Dense(6, activation="relu")(h)
        carried = keras.layers.Multiply()([h, 1.0 - gate])
        h = keras.layers.Add()([keras.layers.Multiply()([gate, candidate]), carried])
    model = keras.Model(x, keras.layers.Dense(3, activation="softmax")(h))
    model.compile(
        keras.optimizers.Nadam(0.01), "sparse_categorical_crossentropy", metrics=["accuracy"]
    )
    return model, {"x": X, "y": LABELS}


@trained
def small_resnet(keras):
    def block(x, filters, strides):
        layers = keras.layers
        y = layers.Conv2D(filters, 3, strides=strides, padding="same", use_bias=False)(x)
        y = layers.ReLU()(layers.BatchNormalization()(y))
        y = layers.Conv2D(filters, 3, padding="same", use_bias=False)(y)
        y = layers.BatchNormalization()(y)
        if strides != 1 or x.shape[-1] != filters:
            x = layers.BatchNormalization()(layers.Conv2D(filters, 1, strides=strides)(x))
        return layers.Activation("relu")(layers.Add()([x, y]))

    x = keras.Input((8, 8, 3))
    h = block(block(x, 4, 1), 6, 2)
    h = keras.layers.GlobalAveragePooling2D()(h)
    model = keras.Model(x, keras.layers.Dense(3)(h))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(
        keras.optimizers.SGD(0.02, momentum=0.9, nesterov=True), loss, metrics=["accuracy"]
    )
    return model, {"x": IMAGES, "y": LABELS}


@trained
def inception_and_squeeze(keras):
    layers = keras.layers
    x = keras.Input((8, 8, 3))
    branches = [
        layers.Conv2D(2, 1, padding="same", activation="relu")(x),
        layers.SeparableConv2D(3, 3, padding="same", activation="relu")(x),
        layers.MaxPooling2D(3, strides=1, padding="same")(x),
        layers.DepthwiseConv2D(3, padding="same", depth_multiplier=2)(x),
    ]
    h = layers.Concatenate(axis=-1)(branches)
    weights = layers.Dense(4, activation="relu")(layers.GlobalAveragePooling2D(keepdims=True)(h))
    h = layers.Multiply()([h, layers.Dense(14, activation="sigmoid")(weights)])
    model = keras.Model(x, layers.Dense(3, activation="softmax")(layers.Flatten()(h)))
    model.compile(keras.optimizers.Adam(0.005), "categorical_crossentropy", metrics=["accuracy"])
    return model, {"x": IMAGES, "y": ONE_HOT}


@trained
def small_unet(keras):
    layers = keras.layers
    x = keras.Input((8, 8, 3))
    high = layers.Conv2D(4, 3, padding="same", activation="relu")(x)
    low = layers.Conv2D(6, 3, padding="same", activation="relu")(layers.MaxPooling2D()(high))
    up = layers.Conv2DTranspose(4, 3, strides=2, padding="same", activation="relu")(low)
    h = layers.Concatenate()([up, layers.UpSampling2D(2)(low), high])
    mask = layers.Conv2D(1, 1, activation="sigmoid")(h)
    model = keras.Model(x, mask)
    model.compile(
        keras.optimizers.Adam(0.01), "binary_crossentropy", metrics=[keras.metrics.BinaryIoU()]
    )
    return model, {"x": IMAGES, "y": (IMAGES[..., :1] > 0).astype("float32")}


@trained
def autoencoder(keras):
    layers = keras.layers
    encoder = keras.Sequential(
        [
            keras.Input((8, 8, 3)),
            layers.Conv2D(4, 3, strides=2, padding="same", activation="elu"),
            layers.Flatten(),
            layers.Dense(5),
            layers.LayerNormalization(),
        ]
    )
    decoder = keras.Sequential(
        [
            keras.Input((5,)),
            layers.Dense(64, activation="gelu"),
            layers.Reshape((4, 4, 4)),
            layers.Conv2DTranspose(3, 4, strides=2, padding="same"),
        ]
    )
    x = keras.Input((8, 8, 3))
    model = keras.Model(x, decoder(encoder(x)))
    model.compile(keras.optimizers.Adamax(0.01), "mean_absolute_error")
    return model, {"x": IMAGES, "y": IMAGES}


@trained
def features_from_the_middle(keras):
    x = keras.Input((6,))
    base = keras.Model(x, keras.layers.Dense(3)(keras.layers.Dense(5, "relu", name="mid")(x)))
    features = keras.Model(base.input, base.get_layer("mid").output)
    features.trainable = False
    model = keras.Sequential([features, keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.05), "mse")
    return model, {"x": X, "y": Y}


@trained
def temporal_convolutions(keras):
    layers = keras.layers
    x = h = keras.Input((7, 3))
    for dilation in (1, 2, 4):
        y = layers.Conv1D(4, 2, padding="causal", dilation_rate=dilation, activation="relu")(h)
        y = layers.SpatialDropout1D(0.0)(y)
        h = layers.Add()([layers.Conv1D(4, 1)(h), y])
    pooled = [layers.GlobalMaxPooling1D()(h), layers.GlobalAveragePooling1D()(h)]
    model = keras.Model(x, layers.Dense(1)(layers.Concatenate()(pooled)))
    model.compile(keras.optimizers.AdamW(0.01, weight_decay=0.01), "log_cosh")
    return model, {"x": SERIES, "y": Y}


@trained
def preprocessing_within_the_model(keras):
    layers = keras.layers
    x = keras.Input((8, 8, 3))
    h = layers.Rescaling(0.5, offset=0.1)(x)
    h = layers.Resizing(6, 6)(h)
    h = layers.CenterCrop(5, 5)(h)
    h = layers.ZeroPadding2D(1)(h)
    h = layers.Cropping2D(((1, 0), (0, 1)))(h)
    h = layers.Normalization(mean=0.1, variance=1.5)(h)
    h = layers.Permute((2, 1, 3))(h)
    h = layers.AveragePooling2D(2)(h)
    model = keras.Model(x, layers.Dense(3, activation="softmax")(layers.Flatten()(h)))
    model.compile(keras.optimizers.SGD(0.05), "sparse_categorical_crossentropy")
    return model, {"x": IMAGES, "y": LABELS}


@trained
def nests_of_inputs(keras):
    a, b, c = (keras.Input((2,), name=name) for name in "abc")
    h = keras.layers.Concatenate()([a, b * c])
    outputs = {"first": keras.layers.Dense(1)(h), "rest": [keras.layers.Dense(2)(h), h]}
    model = keras.Model({"a": a, "rest": [b, c]}, outputs["first"])
    model.compile(keras.optimizers.SGD(0.05), "mse")
    return model, {"x": {"a": X[:, :2], "rest": [X[:, 2:4], X[:, 4:]]}, "y": Y}


@trained
def many_normalizations(keras):
    layers = keras.layers
    x = keras.Input((8, 8, 3))
    h = layers.GroupNormalization(2)(layers.Conv2D(4, 3)(x))
    h = layers.Conv2D(4, 3)(h)
    h = layers.LayerNormalization(axis=[1, 2, 3])(h)
    h = layers.UnitNormalization()(layers.Flatten()(h))
    h = layers.RMSNormalization()(layers.Dense(6)(h))
    model = keras.Model(x, layers.Dense(3, activation="softmax")(h))
    model.compile(keras.optimizers.SGD(0.05), "sparse_categorical_crossentropy")
    return model, {"x": IMAGES, "y": LABELS}


@trained
def activations_in_all_forms(keras):
    layers = keras.layers
    x = keras.Input((6,))
    h = layers.PReLU()(layers.Dense(6, activation=keras.activations.softplus)(x))
    h = layers.LeakyReLU(negative_slope=0.2)(layers.Dense(6)(h))
    h = layers.Activation(keras.ops.tanh)(layers.Dense(6, "swish")(h))
    h = layers.ELU(0.7)(layers.Dense(6, activation=lambda x: x * keras.ops.sigmoid(x))(h))
    model = keras.Model(x, layers.Softmax()(layers.Dense(3, activation="linear")(h)))
    model.compile(keras.optimizers.Adam(0.01), "kl_divergence")
    return model, {"x": X, "y": ONE_HOT}
