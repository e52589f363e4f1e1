"""Tables of random models: layers, last layers with losses, optimizers and data, as text.

A row is the constructor of a layer and, after ``@``, its arguments if they are not ``x``: ``x`` is
the input, ``y`` another tensor. ``PLACEHOLDERS`` has the random values of ``<n>`` and the like.
"""

import itertools

from tests.programs.tables import listed

RATES = (0.001, 0.003, 0.01, 0.03, 0.1)
SIZES = (1, 2, 3, 3, 4, 4, 5, 5, 7, 8, 16, 17)
ACTIVATIONS = """
    relu relu relu tanh tanh sigmoid gelu elu selu celu softplus softsign silu mish leaky_relu relu6
    hard_sigmoid hard_silu hard_tanh softmax log_softmax exponential log_sigmoid tanh_shrink
    squareplus sparsemax hard_shrink soft_shrink sparse_sigmoid sparse_plus glu linear
""".split()
SMOOTH = ("relu", "softsign", "sigmoid", "elu")
INITIALIZERS = """
    he_normal he_uniform lecun_normal lecun_uniform glorot_normal random_normal random_uniform
    truncated_normal orthogonal ones zeros
""".split()
REGULARIZERS = (
    "'l2'",
    "'l1'",
    "nn.regularizers.L1(0.02)",
    "nn.regularizers.L2(0.05)",
    "nn.regularizers.L1L2(0.01, 0.02)",
)
CONSTRAINTS = (
    "'non_neg'",
    "nn.constraints.MaxNorm(0.7)",
    "nn.constraints.UnitNorm()",
    "nn.constraints.MinMaxNorm(0.2, 0.8, rate=0.5)",
)


def pick(*values):
    return lambda r: repr(r.choice(values))


def pick_text(*values):
    return lambda r: r.choice(values)


def with_probability(p, make):
    return lambda r: make(r) if r.random() < p else ""


def weight_options(name):
    """Options of a weight: any of an initializer, a regularizer and a constraint."""

    def make(r):
        found = ""
        if r.random() < 0.08:
            found += f", {name}_initializer={r.choice(INITIALIZERS)!r}"
        if r.random() < 0.1:
            found += f", {name}_regularizer={r.choice(REGULARIZERS)}"
        if r.random() < 0.08:
            found += f", {name}_constraint={r.choice(CONSTRAINTS)}"
        return found

    return make


def layer_options(r):
    found = ""
    if r.random() < 0.06:
        found += ", trainable=False"
    if r.random() < 0.05:
        found += f", activity_regularizer={r.choice(REGULARIZERS)}"
    if r.random() < 0.05:
        found += f", dtype={r.choice(['float32', 'float64', 'mixed_bfloat16', 'mixed_float16'])!r}"
    return found


PLACEHOLDERS = {
    "n": pick(*SIZES),
    "units": pick(1, 2, 3, 4, 5, 7, 8),
    "few": pick(1, 2, 3),
    "k": pick(1, 2, 2, 3, 3, (2, 1), (1, 3)),
    "k1": pick(1, 2, 2, 3, 3),
    "two": pick(2, 2, 3),
    "strides": pick_text("", "", "", ", strides=2"),
    "b": pick(True, False),
    "rate": pick(0.1, 0.3, 0.5),
    "small": pick(0.05, 0.2, 0.5),
    "seed": pick_text("", "", ", seed=7", ", seed=11"),
    "pad": pick("valid", "same"),
    "act": lambda r: r.choice(["", "", f", activation={r.choice(ACTIVATIONS)!r}"]),
    "smooth": with_probability(0.3, pick_text(*(f", activation={a!r}" for a in SMOOTH))),
    "bias?": with_probability(0.15, pick_text(", use_bias=False")),
    "sequences": pick_text("", ", return_sequences=True"),
    "recurrent": lambda r: "".join(
        with_probability(0.15, pick_text(x))(r)
        for x in (
            ", go_backwards=True",
            ", unroll=True",
            ", dropout=0.3",
            ", recurrent_dropout=0.2",
            ", zero_output_for_mask=True",
            ", return_state=True",
        )
    ),
    "cell": lambda r: f"nn.{r.choice(['LSTM', 'GRU', 'SimpleRNN'])}Cell({r.choice([2, 3, 4])})",
    "rnn": lambda r: (
        f"nn.{r.choice(['LSTM', 'GRU', 'SimpleRNN'])}({r.choice([2, 3, 4])}"
        f"{r.choice(['', ', return_sequences=True'])})"
    ),
    "axis": pick(-1, -1, 1),
    "kernel": weight_options("kernel"),
    "bias": weight_options("bias"),
    "recurrent_kernel": weight_options("recurrent"),
    "gamma": weight_options("gamma"),
    "beta": weight_options("beta"),
    "depthwise": weight_options("depthwise"),
    "embeddings": weight_options("embeddings"),
    "layer": layer_options,
    "format": with_probability(0.1, pick_text(", data_format='channels_first'")),
    "causal": pick_text("", "", ", use_causal_mask=True"),
    "up": pick("nearest", "bilinear", "bicubic"),
}

ANY = """
Dense(<n><act><bias?><kernel><bias><layer>)
Dense(<n><act><kernel><bias><layer>)
Activation(<activation>)
ReLU(<layer>)
ReLU(max_value=1.0, negative_slope=0.1, threshold=0.2)
LeakyReLU(0.2)
ELU(0.7)
PReLU(<layer>)
PReLU(alpha_initializer='random_normal', alpha_regularizer='l2')
Softmax(axis=<axis>)
Dropout(<rate><seed>)
AlphaDropout(<rate><seed>)
GaussianDropout(<rate><seed>)
GaussianNoise(<small><seed>)
ActivityRegularization(l1=0.01, l2=0.02)
BatchNormalization(momentum=0.8<gamma><beta><layer>)
BatchNormalization(axis=<axis>, scale=<b>, center=<b>)
LayerNormalization(axis=<axis><gamma><beta><layer>)
LayerNormalization(scale=<b>, center=<b>)
RMSNormalization(<layer>)
UnitNormalization(axis=<axis>)
GroupNormalization(1<gamma><layer>)
GroupNormalization(-1)
Normalization(mean=0.2, variance=1.5, axis=None)
Rescaling(0.5, offset=-0.1)
Identity()
SpectralNormalization(nn.Dense(<units>))
Lambda(lambda x: ef.tanh(x) * 0.5 + x)
"""
VECTORS = """
RepeatVector(<two>)
Reshape((-1, 1))
Dense(190<act>)
"""
SEQUENCES = """
LSTM(<units><sequences><recurrent><smooth><kernel><recurrent_kernel><bias><layer>)
GRU(<units><sequences><recurrent><smooth><kernel><recurrent_kernel><bias><layer>)
GRU(<units>, reset_after=False<sequences><recurrent>)
SimpleRNN(<units><sequences><recurrent><smooth><kernel><layer>)
LSTM(<units>, stateful=True<sequences>)
RNN(<cell><sequences><recurrent-free>)
RNN([<cell>, <cell>]<sequences>)
RNN(nn.StackedRNNCells([<cell>, <cell>])<sequences>)
Bidirectional(<rnn>)
Bidirectional(<rnn>, merge_mode=<merge>)
TimeDistributed(nn.Dense(<units><act>))
TimeDistributed(nn.BatchNormalization())
Conv1D(<units>, <k1>, padding=<pad1><strides><act><kernel><bias><layer>)
Conv1D(<units>, <k1>, dilation_rate=2, padding='causal')
Conv1DTranspose(<units>, <k1>, padding=<pad><strides>)
SeparableConv1D(<units>, <k1>, padding=<pad><depthwise>)
DepthwiseConv1D(<k1>, padding=<pad>, depth_multiplier=<few>)
MaxPool1D(<two>, padding=<pad>)
AveragePooling1D(<two>, padding=<pad>)
GlobalAveragePooling1D(keepdims=<b>)
GlobalMaxPool1D()
AdaptiveAveragePooling1D(<few>)
AdaptiveMaxPooling1D(<few>)
ZeroPadding1D(<few>)
Cropping1D(1)
UpSampling1D(<two>)
SpatialDropout1D(<rate><seed>)
Flatten()
Permute((2, 1))
EinsumDense('abc,cd->abd', output_shape=(None, <units>), bias_axes='d'<act><kernel>)
EinsumDense('abc,bcd->abd', output_shape=(None, <units>))
PositionEmbedding(16)
SinePositionEncoding()
RotaryEmbedding()
MultiHeadAttention(<few>, <units><mha><kernel><layer>) @ x, x<causal>
MultiHeadAttention(<few>, <units>, value_dim=<units>, output_shape=<units>) @ x, y
MultiHeadAttention(<few>, <units><mha>) @ y, x<causal>
GroupQueryAttention(<units>, 4, 2) @ x, x
GroupQueryAttention(4, 2, 1, use_bias=False) @ x, y
Attention(use_scale=<b>) @ [x, x]<causal>
Attention(score_mode='concat', use_scale=True, dropout=0.2) @ [x, x]
AdditiveAttention(use_scale=<b>) @ [x, x]<causal>
Attention() @ [x, y]
AdditiveAttention() @ [x, y]
Masking(0.0)
Dot(axes=2, normalize=<b>) @ [x, x]
"""
IMAGES = """
Conv2D(<units>, <k>, padding=<pad><strides><act><kernel><bias><layer>)
Conv2D(<units>, <k>, padding=<pad><act><bias?><format>)
Conv2D(<units>, 2, dilation_rate=2)
Conv2D(4, <k>, groups=2)
Conv2DTranspose(<units>, <k>, padding=<pad><strides><kernel>)
SeparableConv2D(<units>, <k>, padding=<pad><depthwise><layer>)
DepthwiseConv2D(<k>, padding=<pad><strides>, depth_multiplier=<few><depthwise>)
MaxPool2D(<two>, padding=<pad>)
AveragePooling2D(<two>, padding=<pad>)
MaxPool2D((2, 1), strides=1)
GlobalAveragePooling2D(keepdims=<b>)
GlobalMaxPool2D()
AdaptiveAveragePooling2D(<few>)
AdaptiveMaxPooling2D(<few>)
ZeroPadding2D(1)
Cropping2D(1)
UpSampling2D(2, interpolation=<up>)
Resizing(4, 3, interpolation=<up>)
CenterCrop(3, 3)
SpatialDropout2D(<rate><seed>)
LocalResponseNormalization(2)
Flatten()
Permute((2, 3, 1))
TimeDistributed(nn.Flatten())
TimeDistributed(<rnn>)
TimeDistributed(nn.Conv1D(<units>, 2))
ConvLSTM1D(<few>, 2<sequences>)
Reshape((-1, 2))
SpectralNormalization(nn.Conv2D(<few>, 2))
PReLU(shared_axes=(1, 2))
EinsumDense('abcd,de->abce', output_shape=(None, None, <units>), bias_axes='e')
MultiHeadAttention(2, 2, attention_axes=(1,)) @ x, x
GroupNormalization(1, axis=-1<gamma>)
"""
VOLUMES = """
Conv3D(<few>, 2, padding=<pad><act><kernel>)
Conv3DTranspose(<few>, 2)
MaxPool3D(2)
AveragePooling3D(2, padding='same')
GlobalAveragePooling3D()
GlobalMaxPool3D()
AdaptiveAveragePooling3D(2)
AdaptiveMaxPooling3D(<few>)
ZeroPadding3D(1)
Cropping3D((1, 0, 0))
UpSampling3D(2)
SpatialDropout3D(<rate><seed>)
Flatten()
ConvLSTM2D(<few>, 2<sequences>)
ConvLSTM2D(<few>, 2, padding='same', dropout=0.2<sequences>)
TimeDistributed(nn.Conv2D(<few>, 2<act>))
TimeDistributed(nn.GlobalAveragePooling2D())
"""
IDS = """
Embedding(9, <units>, mask_zero=True<embeddings><layer>)
Embedding(9, <units>, mask_zero=True)
Embedding(9, <units><embeddings>)
Embedding(9000, 4, mask_zero=<b>)
ReversibleEmbedding(9, <units>, mask_zero=<b>)
SpectralNormalization(nn.Embedding(9, 4))
CategoryEncoding(9, output_mode='multi_hot')
"""
MERGES = """
Add() @ [x, y]
Subtract() @ [x, y]
Multiply() @ [x, y]
Average() @ [x, y]
Maximum() @ [x, y]
Minimum() @ [x, y]
Concatenate() @ [x, y]
Concatenate(axis=1) @ [x, y]
Dot(axes=-1) @ [x, y]
"""
PLACEHOLDERS |= {
    "activation": pick(*ACTIVATIONS),
    "pad1": pick("valid", "same", "causal"),
    "merge": pick("sum", "mul", "ave", "concat", None),
    "mha": pick_text("", "", ", dropout=0.2", ", use_bias=False", ", sliding_window=2"),
    "recurrent-free": with_probability(0.3, pick_text(", go_backwards=True", ", unroll=True")),
}
OPS = listed("""
ef.tanh(x) | x * 0.5 | x + y | x - y | x * y | ef.relu(x) | ef.sigmoid(x) * x | ef.softmax(x) | x / 2
ef.abs(x) | ef.square(x) * 0.1 | ef.where(x > 0, x, x * 0.1) | ef.clip(x, -0.8, 0.8) | -x | 1.0 - x
ef.maximum(x, y) | ef.concat([x, y], axis=-1) | ef.concat([x, x * 2.0], axis=1) | ef.stop_gradient(x) + y
x[:, ::-1] | x[:, :1] | x[..., :2] | ef.cumulative_sum(x, axis=1) * 0.3 | ef.flip(x, axis=-1)
x - x.mean(axis=-1, keepdims=True) | x - x.mean(axis=0, keepdims=True) | ef.layer_norm(x)
ef.log(ef.abs(x) + 1.5) | ef.sin(x) | ef.expand_dims(x, axis=1) | ef.gelu(x) | x ** 2 | ef.sqrt(ef.abs(x) + 0.1)
""")
REDUCTIONS = (
    "x.mean(axis=1)",
    "x.max(axis=1)",
    "x.sum(axis=1) * 0.3",
    "x[:, -1]",
    "x[:, 0]",
    "ef.logsumexp(x, axis=1)",
    "x.std(axis=1)",
    "ef.reshape(x, (-1, x.shape[-1] * x.shape[-2]))",
)


def rows(*tables):
    return [line.strip() for line in "".join(tables).splitlines() if line.strip()]


LAYERS = {
    2: rows(ANY, VECTORS),
    3: rows(ANY, SEQUENCES, SEQUENCES),
    4: rows(ANY, IMAGES, IMAGES),
    5: rows(VOLUMES),
}
MERGE_LAYERS, ID_LAYERS = rows(MERGES), rows(IDS)

HEADS = {  # last layer, targets, losses, metrics; LEAD is the shape without the last axis, C
    "floats": (
        "Dense(<units>)",
        "rng.normal(size=(LEAD, C)).astype('float32')",
        """'mse' | 'mae' | MeanSquaredError() | MeanAbsoluteError() | Huber(0.7) | LogCosh() | squares
        MeanAbsolutePercentageError() | CosineSimilarity() | MeanSquaredError(reduction='sum')
        MeanSquaredError('mean_with_sample_weight') | 'huber'""",
        """'mae' | 'mse' | RootMeanSquaredError() | CosineSimilarity() | LogCoshError() | squares
        MeanAbsolutePercentageError() | PearsonCorrelation() | ConcordanceCorrelation()""",
    ),
    "positive": (
        "Dense(<units>, activation='softplus')",
        "rng.poisson(2.0, (LEAD, C)).astype('float32')",
        "Poisson() | MeanSquaredLogarithmicError() | 'poisson'",
        "Poisson() | MeanSquaredLogarithmicError() | 'mae'",
    ),
    "one hot": (
        "Dense(3, activation='softmax')",
        "np.eye(3, dtype='float32')[rng.integers(0, 3, (LEAD,))]",
        """CategoricalCrossentropy() | CategoricalCrossentropy(label_smoothing=0.1) | Dice() | Tversky()
        CategoricalFocalCrossentropy() | KLDivergence() | CategoricalGeneralizedCrossEntropy(0.4)
        'categorical_crossentropy'""",
        """'accuracy' | CategoricalAccuracy() | AUC(num_thresholds=11) | Precision() | Recall(0.4)
        TopKCategoricalAccuracy(2) | CategoricalCrossentropy() | KLDivergence() | OneHotMeanIoU(3)
        TruePositives() | FalseNegatives([0.3, 0.6])""",
    ),
    "one hot logits": (
        "Dense(3)",
        "np.eye(3, dtype='float32')[rng.integers(0, 3, (LEAD,))]",
        "CategoricalCrossentropy(from_logits=True) | CategoricalHinge()",
        "'accuracy' | CategoricalHinge() | CategoricalCrossentropy(from_logits=True)",
    ),
    "classes": (
        "Dense(4, activation='softmax')",
        "rng.integers(0, 4, (LEAD,))",
        "SparseCategoricalCrossentropy() | 'sparse_categorical_crossentropy'",
        "'accuracy' | SparseTopKCategoricalAccuracy(2) | SparseCategoricalCrossentropy()",
    ),
    "class logits": (
        "Dense(4)",
        "rng.integers(0, 4, (LEAD,)).astype('int32')",
        """SparseCategoricalCrossentropy(from_logits=True)
        SparseCategoricalCrossentropy(from_logits=True, ignore_class=2)""",
        "'accuracy' | SparseCategoricalCrossentropy(from_logits=True) | MeanIoU(4, sparse_y_pred=False)",
    ),
    "bits": (
        "Dense(<few>, activation='sigmoid')",
        "rng.integers(0, 2, (LEAD, C)).astype('float32')",
        """BinaryCrossentropy() | BinaryCrossentropy(label_smoothing=0.1) | 'binary_crossentropy'
        BinaryFocalCrossentropy() | BinaryFocalCrossentropy(apply_class_balancing=True) | Dice()""",
        """'accuracy' | BinaryAccuracy(threshold=0.4) | AUC(num_thresholds=7) | Precision() | Recall()
        BinaryIoU() | FalsePositives() | TrueNegatives(0.4) | SensitivityAtSpecificity(0.5)""",
    ),
    "bit logits": (
        "Dense(<few>)",
        "rng.integers(0, 2, (LEAD, C)).astype('float32')",
        "BinaryCrossentropy(from_logits=True) | BinaryFocalCrossentropy(from_logits=True)",
        "BinaryCrossentropy(from_logits=True) | 'mse'",
    ),
    "signs": (
        "Dense(<few>, activation='tanh')",
        "2.0 * rng.integers(0, 2, (LEAD, C)) - 1.0",
        "Hinge() | SquaredHinge()",
        "Hinge() | SquaredHinge() | 'mae'",
    ),
}
VECTOR_HEADS = {
    "embeddings": ("UnitNormalization()", "rng.integers(0, 3, (LEAD,))", "Circle(gamma=8)", ""),
}
STEP_HEADS = {
    "words": (
        "Dense(4)",
        "rng.integers(0, 4, (LEAD[0], 1))",
        "CTC()",
        "",
    ),
}

OPTIMIZERS = listed("""
SGD(<lr>) | SGD(<lr>, momentum=0.9) | SGD(<lr>, momentum=0.8, nesterov=True) | Adam(<lr>) | Adam(<lr>)
Adam(<lr>, amsgrad=True) | Adam(<lr>, beta_1=0.8, beta_2=0.95, epsilon=1e-4) | AdamW(<lr>)
AdamW(<lr>, weight_decay=0.1) | Adamax(<lr>) | Nadam(<lr>) | RMSprop(<lr>)
RMSprop(<lr>, momentum=0.5, centered=True) | Adagrad(<lr>) | Adadelta(1.0) | Adafactor(<lr>)
Adafactor(<lr>, relative_step=False) | Ftrl(<lr>, l1_regularization_strength=0.01)
Ftrl(<lr>, beta=0.1, l2_shrinkage_regularization_strength=0.1) | Lamb(<lr>) | Lion(<lr>) | Muon(<lr>)
ScheduleFreeAdamW(<lr>) | ScheduleFreeAdamW(<lr>, warmup_steps=4)
""")
OPTIMIZER_OPTIONS = (
    "clipnorm=0.5",
    "clipvalue=0.1",
    "global_clipnorm=0.7",
    "use_ema=True, ema_momentum=0.8",
    "use_ema=True, ema_overwrite_frequency=3",
    "weight_decay=0.05",
    "gradient_accumulation_steps=3",
    "loss_scale_factor=64.0",
    "clipnorm=0.4, use_ema=True",
    "gradient_accumulation_steps=2, global_clipnorm=0.5",
)
SCHEDULES = (
    "nn.schedules.ExponentialDecay(<lr>, 3, 0.7)",
    "nn.schedules.ExponentialDecay(<lr>, 3, 0.7, staircase=True)",
    "nn.schedules.CosineDecay(<lr>, 15, warmup_target=0.02, warmup_steps=4)",
    "nn.schedules.CosineDecayRestarts(<lr>, 6)",
    "nn.schedules.PiecewiseConstantDecay([4, 9], [0.01, 0.003, 0.001])",
    "nn.schedules.PolynomialDecay(<lr>, 12, power=2.0)",
    "nn.schedules.InverseTimeDecay(<lr>, 4, 0.5)",
    "nn.schedules.LinearWarmup(<lr>, 5)",
)
PLACEHOLDERS["lr"] = pick(*RATES)

INPUTS = {  # shapes of examples, and the expression of the data
    "vector": (
        [(n,) for n in (1, 2, 3, 4, 6, 7, 16, 17)],
        "rng.normal(size=SHAPE).astype('float32')",
    ),
    "wide": ([(190,)], "rng.normal(size=SHAPE).astype('float32')"),
    "sequence": (
        [*itertools.product((2, 3, 4, 5), (1, 2, 3, 5, 8))],
        "rng.normal(size=SHAPE).astype('float32')",
    ),
    "padded": ([*itertools.product((3, 4, 6), (1, 2, 3, 4))], "padded(rng, SHAPE)"),
    "ids": ([(t,) for t in (2, 3, 5, 6)], "ids(rng, SHAPE)"),
    "image": (
        [(5, 5, 1), (6, 4, 2), (4, 7, 3), (8, 8, 3), (3, 3, 8)],
        "rng.normal(size=SHAPE).astype('float32')",
    ),
    "volume": ([(3, 4, 4, 1), (2, 3, 5, 2)], "rng.normal(size=SHAPE).astype('float32')"),
}
KINDS = ("vector", "vector", "wide", "sequence", "sequence", "padded", "ids", "ids", "image", "image",
         "volume")  # fmt: skip
POLICIES = (
    *("float32",) * 12,
    "mixed_bfloat16",
    "mixed_bfloat16",
    "mixed_float16",
    "mixed_float16",
    "float16",
    "bfloat16",
    "float64",
    "float64",
)
HELPERS = '''
def padded(rng, shape):
    """Sequences that end, or begin, with zeros, or have some in between."""
    x = rng.normal(size=shape).astype("float32")
    kept = rng.integers(1, shape[1] + 1, shape[0])
    hidden = np.arange(shape[1]) >= kept[:, None]
    hidden[::4] = hidden[::4, ::-1]
    hidden[2::5] = rng.integers(0, 2, hidden[2::5].shape)
    x[hidden] = 0
    return x

def ids(rng, shape):
    """Ids below 9, with zeros at the end."""
    x = rng.integers(1, 9, shape)
    x[np.arange(shape[1]) >= rng.integers(1, shape[1] + 1, shape[0])[:, None]] = 0
    return x

def squares(y_true, y_pred):
    return ef.square(y_pred - y_true).mean(axis=-1)
'''
