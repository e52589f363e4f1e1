"""Networks of the literature: their sizes, and that each learns, is captured and saved."""

import re
import subprocess
import sys
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pytest

import eagerflow as ef
from eagerflow import tree
from eagerflow.errors import ArgumentError, ShapeError
from eagerflow.nn import initializers, networks
from eagerflow.nn.base_layer import weights_asked
from eagerflow.nn.networks import GPT, bert, lstm_language_model, resnet, resnet_cifar, vgg
from tests.nn.peers import keras_on_torch, numbers

RNG = np.random.default_rng(0)
CROSSENTROPY = ef.nn.losses.SparseCategoricalCrossentropy(from_logits=True)
LOGISTIC = ef.nn.losses.BinaryCrossentropy(from_logits=True)


def images(side, channels=3):
    """Four images, each with one band more than the one before, and noise."""
    bands = np.sin(2 * np.pi * np.arange(1, 5)[:, None] * np.arange(side) / side)
    noise = RNG.normal(size=(4, side, side, channels))
    return (bands[:, :, None, None] + 0.3 * noise).astype("float32")


CLASSES = np.array([0, 1, 2, 3])
WORDS = RNG.integers(1, 12, (4, 7))
TABLE = {"categories": RNG.integers(0, 3, (4, 2))}
TABLE["numbers"] = RNG.normal(size=(4, 2)).astype("float32")


def classifier_of_bert(**options):
    encoder = bert(12, 8, 8, 2, 2, **options)
    logits = ef.nn.Dense(4, name="logits")(encoder.output["pooled"])
    return ef.nn.Model(encoder.input, logits, name="classifier")


class Row(NamedTuple):
    """A small network, a batch, and how fast it learns that."""

    make: Any
    x: Any
    y: Any = CLASSES
    loss: Any = CROSSENTROPY
    rate: float = 0.003
    epochs: int = 16


ROWS = {
    "lenet5": Row(partial(networks.lenet5, 4), images(32, 1)),
    "alexnet": Row(
        partial(networks.alexnet, 4, (63, 63, 3), (8, 16, 16, 16, 16), units=64, dropout=0.1),
        images(63),
    ),
    "vgg11": Row(partial(vgg, 11, 4, (32, 32, 3), 8, 32, dropout=0.1), images(32)),
    "inception_v3": Row(
        partial(networks.inception_v3, 4, (75, 75, 3), 0.0625), images(75), rate=0.001
    ),
    "resnet18": Row(partial(resnet, 18, 4, (None, None, 3), 4), images(32)),
    "resnet50": Row(partial(resnet, 50, 4, (64, 64, 3), 4), images(64), rate=0.001),
    "resnet_cifar": Row(partial(resnet_cifar, 8, 4, (16, 16, 3), 4), images(16)),
    "mobilenet": Row(partial(networks.mobilenet, 4, (32, 32, 3), 0.125), images(32)),
    "mobilenet_v2": Row(partial(networks.mobilenet_v2, 4, (32, 32, 3), 0.125), images(32)),
    "unet": Row(
        partial(networks.unet, 2, (44, 44, 1), 4, depth=2),
        (squares := images(44, 1)),
        (squares[:, 20:24, 20:24, 0] > 0).astype("int64"),
        rate=0.005,
        epochs=30,
    ),
    "unet_padded": Row(
        partial(networks.unet, 2, (16, 16, 1), 4, depth=2, padding="same"),
        (squares := images(16, 1)),
        (squares[..., 0] > 0).astype("int64"),
        rate=0.01,
        epochs=30,
    ),
    "autoencoder": Row(
        partial(networks.autoencoder, 16, (8,), 2),
        (x := RNG.integers(0, 2, (4, 16)).astype("float32")),
        x,
        LOGISTIC,
        rate=0.1,
        epochs=40,
    ),
    "wide_and_deep": Row(
        partial(networks.wide_and_deep, [3, 3], 2, [(0, 1)], 4, (8, 8)),
        TABLE,
        np.array([[0.0], [1.0], [1.0], [0.0]], "float32"),
        LOGISTIC,
        rate=0.02,
    ),
    "lstm": Row(
        partial(lstm_language_model, "medium", 12, 8),
        WORDS,
        np.roll(WORDS, -1, axis=1),
        rate=0.1,
        epochs=60,
    ),
    "gpt": Row(partial(GPT, 12, 8, 8, 2, 2), WORDS, np.roll(WORDS, -1, axis=1), rate=0.05),
    "bert": Row(classifier_of_bert, {"tokens": WORDS, "segments": WORDS % 2}, rate=0.01),
}
by_row = pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)


def made(row, **options):
    ef.random.seed(0)
    model = row.make()
    model.compile(ef.nn.optimizers.Adam(row.rate), row.loss, **options)
    return model


def tensors(nest):
    return tree.map_leaves(ef.tensor, nest)


def equal(a, b):
    np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


def ignorance(y):
    """The least loss of answers that do not depend on the inputs."""
    if y.dtype == "int64":
        frequencies = np.bincount(y.ravel()) / y.size
        return -sum(p * np.log(p) for p in frequencies if p)
    p = y.mean(axis=0)
    return -np.log(np.where(y == 1, p, 1 - p)).mean()


@pytest.mark.sampled(9)
@by_row
def test_it_learns(row):
    losses = made(row).fit(row.x, row.y, epochs=row.epochs, verbose=0).history["loss"]
    blind = ignorance(row.y)
    print(round(blind, 3), [round(loss, 3) for loss in losses])
    assert min(losses[-3:]) < 0.9 * min(losses[0], blind)


@pytest.mark.sampled(12)
@by_row
@pytest.mark.parametrize("training", [False, True])
def test_eager_captured_loaded_and_partitioned_are_the_same(row, training):
    model = made(row)
    found = ef.capture.verify(lambda x: model(x, training=training), [tensors(row.x)])
    assert found, found


@pytest.mark.sampled(8)
@by_row
def test_a_saved_one_predicts_and_trains_on_with_the_same_bits(row, tmp_path):
    model = made(row, run_eagerly=True)  # captured steps are those of test_it_learns
    model.train_on_batch(row.x, row.y)
    model.save(tmp_path / "model.ef")
    again = ef.nn.load_model(tmp_path / "model.ef")
    equal(again(tensors(row.x)), model(tensors(row.x)))
    found = []
    for each in (model, again):
        ef.random.seed(1)
        found.append([each.train_on_batch(row.x, row.y) for _ in range(2)])
    assert found[0] == found[1]
    for a, b in zip(model.weights, again.weights, strict=True):
        equal(a, b)


@pytest.mark.sampled(4)
@by_row
def test_one_graph_takes_batches_of_any_size(row):
    model = made(row)
    x = tensors(row.x)
    free = tree.map_leaves(lambda t: ef.TensorSpec(("batch", *t.shape[1:]), t.dtype), x)
    graph = ef.capture.trace(lambda x: model(x, training=False), free)
    for count in (1, 3):
        part = tree.map_leaves(lambda t, n=count: t[:n], x)
        found, wanted = np.asarray(graph(part)), np.asarray(model(part))
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


# Sizes -----------------------------------------------------------------------------------------

FIGURES = {  # all numbers, and those that are trained
    "lenet5": (networks.lenet5, 61_706, 61_706),
    "alexnet": (networks.alexnet, 60_965_224, 60_965_224),
    "alexnet of 2014": (
        partial(networks.alexnet, filters=(64, 192, 384, 256, 256), groups=1, normalized=False),
        61_100_840,
        61_100_840,
    ),
    "vgg11": (partial(vgg, 11), 132_863_336, 132_863_336),
    "vgg13": (partial(vgg, 13), 133_047_848, 133_047_848),
    "vgg16": (partial(vgg, 16), 138_357_544, 138_357_544),
    "vgg19": (partial(vgg, 19), 143_667_240, 143_667_240),
    "inception_v3": (networks.inception_v3, 23_851_784, 23_817_352),
    "resnet18": (partial(resnet, 18), 11_699_112, 11_689_512),
    "resnet34": (partial(resnet, 34), 21_814_696, 21_797_672),
    "resnet50": (partial(resnet, 50), 25_610_152, 25_557_032),
    "resnet101": (partial(resnet, 101), 44_654_504, 44_549_160),
    "resnet152": (partial(resnet, 152), 60_344_232, 60_192_808),
    "resnet20": (partial(resnet_cifar, 20), 271_098, 269_722),
    "resnet32": (partial(resnet_cifar, 32), 466_426, 464_154),
    "resnet44": (partial(resnet_cifar, 44), 661_754, 658_586),
    "resnet56": (partial(resnet_cifar, 56), 857_082, 853_018),
    "resnet110": (partial(resnet_cifar, 110), 1_736_058, 1_727_962),
    "mobilenet": (networks.mobilenet, 4_253_864, 4_231_976),
    "mobilenet_v2": (networks.mobilenet_v2, 3_538_984, 3_504_872),
    "unet": (networks.unet, 31_030_658, 31_030_658),
    "autoencoder": (networks.autoencoder, 2_837_314, 2_837_314),
    "lstm small": (partial(lstm_language_model, "small"), 4_651_600, 4_651_600),
    "lstm medium": (partial(lstm_language_model, "medium"), 19_775_200, 19_775_200),
    "lstm large": (partial(lstm_language_model, "large"), 66_022_000, 66_022_000),
    "bert base": (bert, 109_482_240, 109_482_240),
    "bert large": (partial(bert, width=1024, depth=24, heads=16), 335_141_888, 335_141_888),
    "gpt small": (GPT, 124_439_808, 124_439_808),
    "gpt medium": (partial(GPT, width=1024, depth=24, heads=16), 354_823_168, 354_823_168),
    "gpt large": (partial(GPT, width=1280, depth=36, heads=20), 774_030_080, 774_030_080),
}


@pytest.fixture
def zero_weights(monkeypatch):
    """Weights of zeros: untouched memory, which costs neither time nor space."""
    monkeypatch.setattr(initializers, "get", lambda _: lambda shape, dtype: ef.zeros(shape, dtype))


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("make", "whole", "trained"), FIGURES.values(), ids=FIGURES)
def test_numbers_of_parameters(make, whole, trained, zero_weights):
    model = make()
    assert model.count_params() == whole
    assert sum(weight.size for weight in model.trainable_weights) == trained


def test_numbers_by_hand():
    def gpt(width, depth):
        attention, inner, norms = 4 * width * (width + 1), 8 * width**2 + 5 * width, 4 * width
        return (50_257 + 1024 + 2) * width + depth * (attention + inner + norms)

    assert gpt(768, 12) == FIGURES["gpt small"][1]
    assert gpt(1600, 48) == 1_557_611_200  # as the docstring says of XL

    def lstm(units):
        return 10_000 * (2 * units + 1) + 2 * 4 * units * (2 * units + 1)

    assert [lstm(n) for n in (200, 650, 1500)] == [
        FIGURES[f"lstm {size}"][1] for size in ("small", "medium", "large")
    ]
    assert FIGURES["lenet5"][1] == 60_000 + 900 - 44 + 850  # the paper's, and what differs


# Against other implementations -----------------------------------------------------------------


def number(layer):
    """The place of a layer among those of its class, in the order in which they were made."""
    return int((re.search(r"_(\d+)$", layer.name) or [0, 0])[1])


def by_class(model):
    found: dict[str, list[Any]] = {}
    for layer in model.layers:
        if layer.weights:
            found.setdefault(type(layer).__name__, []).append(layer)
    return {name: sorted(found[name], key=number) for name in ("Conv2D", "BatchNormalization")}


def with_weights(model):
    return {"all": [layer for layer in model.layers if layer.weights]}


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("ours", "theirs", "options", "listed"),
    [
        (
            networks.mobilenet,
            "MobileNet",
            {"input_shape": (64, 64, 3), "alpha": 0.25},
            with_weights,
        ),
        (networks.mobilenet_v2, "MobileNetV2", {"input_shape": (64, 64, 3)}, with_weights),
        (networks.inception_v3, "InceptionV3", {"input_shape": (75, 75, 3)}, by_class),
        (partial(vgg, 19), "VGG19", {"input_shape": (32, 32, 3)}, with_weights),
    ],
)
def test_outputs_are_those_of_keras(ours, theirs, options, listed):
    keras = keras_on_torch()
    model = ours(classes=10, **options)
    other = getattr(keras.applications, theirs)(
        weights=None, classes=10, classifier_activation=None, **options
    )
    assert model.count_params() == other.count_params()
    model.layers[-1].set_weights([np.full_like(w, 0.01) for w in model.layers[-1].get_weights()])
    last = [layer for layer in other.layers if layer.weights][-1]
    last.set_weights([np.full_like(w, 0.01) for w in last.get_weights()])
    for a, b in zip(listed(model).values(), listed(other).values(), strict=True):
        for layer, peer in zip(a, b, strict=True):
            if peer is not last:
                values = [drawn(w.shape) for w in peer.get_weights()]
                peer.set_weights(values)
                layer.set_weights(values)
    x = RNG.normal(size=(2, *options["input_shape"])).astype("float32")
    np.testing.assert_allclose(
        np.asarray(model(x)), numbers(other(x)).reshape(2, 10), rtol=1e-4, atol=1e-4
    )


def drawn(shape):
    """Weights under which numbers stay as large as they are, through many layers."""
    if len(shape) == 1:
        return RNG.uniform(0.5, 1.5, shape).astype("float32")
    return (RNG.normal(size=shape) * np.sqrt(2 / np.prod(shape[:-1]))).astype("float32")


# Text, by NumPy ---------------------------------------------------------------------------------


def normal(x, gamma, beta, epsilon):
    spread = np.sqrt(x.var(-1, keepdims=True) + epsilon)
    return (x - x.mean(-1, keepdims=True)) / spread * gamma + beta


def attended(x, w, seen):
    """Attention of heads to what is ``seen``, (batch, queries, keys)."""
    q, k, v = (np.einsum("blw,whd->bhld", x, w[i]) + w[i + 1][:, None] for i in (0, 2, 4))
    scores = np.where(seen[:, None], q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1]), -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    return np.einsum("bhld,hdw->blw", weights @ v, w[6]) + w[7]


def test_gpt_is_its_formula():
    def gelu(x):
        return x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))

    model = ROWS["gpt"].make()
    w = [drawn(weight.shape).astype("float64") for weight in model.weights]
    model.set_weights([value.astype("float32") for value in w])
    length = WORDS.shape[1]
    seen = np.tril(np.ones((1, length, length), bool))
    x = w[0][WORDS] + w[1][:length]
    for at in range(2, len(w) - 2, 16):
        # Weights of a block: a normalization, attention, a normalization, two dense layers.
        block = w[at : at + 16]
        x = x + attended(normal(x, *block[:2], 1e-5), block[2:10], seen)
        inner = gelu(normal(x, *block[10:12], 1e-5) @ block[12] + block[13])
        x = x + inner @ block[14] + block[15]
    right = normal(x, *w[-2:], 1e-5) @ w[0].T
    np.testing.assert_allclose(np.asarray(model(WORDS)), right, rtol=1e-4, atol=1e-4)


def test_bert_matches_its_formula_and_ignores_padding():
    special = pytest.importorskip("scipy.special")
    model = bert(12, 8, 8, 2, 2)
    w = {weight.name: drawn(weight.shape).astype("float64") for weight in model.weights}
    assert len(w) == 5 + 16 * 2 + 2
    model.set_weights([value.astype("float32") for value in w.values()])
    w = list(w.values())
    tokens = np.array([[1, 2, 3, 0], [4, 5, 0, 0]])
    seen = np.repeat((tokens != 0)[:, None], 4, axis=1)
    x = normal(w[0][tokens] + w[1][:4] + w[2][tokens % 2], *w[3:5], 1e-12)
    for at in range(5, len(w) - 2, 16):
        block = w[at : at + 16]
        x = normal(x + attended(x, block[:8], seen), *block[8:10], 1e-12)
        inner = x @ block[10] + block[11]
        inner = inner * (1 + special.erf(inner / np.sqrt(2))) / 2
        x = normal(x + inner @ block[12] + block[13], *block[14:], 1e-12)
    found = model({"tokens": tokens, "segments": tokens % 2})
    np.testing.assert_allclose(np.asarray(found["sequence"]), x, rtol=1e-4, atol=1e-4)
    pooled = np.tanh(x[:, 0] @ w[-2] + w[-1])
    np.testing.assert_allclose(np.asarray(found["pooled"]), pooled, rtol=1e-4, atol=1e-4)


# Generation -------------------------------------------------------------------------------------


def test_a_cache_generates_what_the_whole_sequence_does():
    model = made(ROWS["gpt"])
    tokens = ef.tensor([[1, 2, 3], [4, 5, 6]])
    found = model.generate(tokens, 5, temperature=0)
    for _ in range(5):
        last = ef.argmax(model(tokens)[:, -1], axis=-1)
        tokens = ef.concat([tokens, last[:, None]], axis=1)
    assert found.tolist() == tokens.tolist()


def test_sampling_respects_top_k_temperature_and_seed():
    model = made(ROWS["gpt"])
    logits = np.asarray(model(np.array([[1, 2]])))[0, -1]
    prompt = np.tile([[1, 2]], (500, 1))
    found = np.asarray(model.generate(prompt, 1, top_k=3, seed=0))[:, -1]
    assert set(found) == set(np.argsort(-logits)[:3])
    assert (found == np.asarray(model.generate(prompt, 1, top_k=3, seed=0))[:, -1]).all()
    assert (found != np.asarray(model.generate(prompt, 1, top_k=3, seed=1))[:, -1]).any()
    cold = np.asarray(model.generate(prompt, 1, temperature=1e-4, seed=0))[:, -1]
    assert set(cold) == {logits.argmax()}
    assert len(set(np.asarray(model.generate(prompt, 1, seed=0))[:, -1])) > 6  # of 12
    ef.random.seed(0)
    first = model.generate(prompt, 1).tolist()
    ef.random.seed(0)
    assert model.generate(prompt, 1).tolist() == first


def test_a_trained_one_goes_on_as_it_has_learned():
    ef.random.seed(0)
    text = np.tile(np.arange(6), 40)
    windows = np.stack([text[i : i + 9] for i in range(48)])
    model = GPT(vocabulary=6, context=12, width=16, depth=1, heads=2, dropout=0.0)
    model.compile(ef.nn.optimizers.Adam(0.02), CROSSENTROPY)
    model.fit(windows[:, :-1], windows[:, 1:], epochs=20, verbose=0)
    assert model.generate([[4, 5, 0]], 6, top_k=1).tolist() == [[4, 5, 0, 1, 2, 3, 4, 5, 0]]


def test_it_computes_in_the_dtype_that_it_is_given():
    model = GPT(12, 8, 8, 2, 2, dtype="mixed_bfloat16")
    assert model(WORDS).dtype == "bfloat16" and model.weights[0].dtype == "float32"
    assert model.generate(WORDS[:, :3], 2, seed=0).shape == (4, 5)


def test_a_new_process_loads_it(tmp_path):
    path = tmp_path / "gpt.ef"
    model = made(ROWS["gpt"])
    model.save(path)
    program = (
        "import sys, eagerflow as ef; ef.nn; loaded = 'eagerflow.nn.networks' in sys.modules; "
        f"print(loaded, ef.nn.load_model({str(path)!r}).count_params())"
    )
    found = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert found.stdout.split() == ["False", str(model.count_params())]


def test_a_depth_is_not_made_before_its_weights_are_allowed():
    made = []

    def asked(shape, name):
        made.append(name)
        if len(made) > 100:
            raise MemoryError("enough")

    token = weights_asked.set(asked)
    try:
        with pytest.raises(MemoryError, match="enough"):
            GPT(12, 8, 8, depth=10**12, heads=2)
    finally:
        weights_asked.reset(token)


# Single ones ------------------------------------------------------------------------------------


def test_states_go_on_from_batch_to_batch():
    ef.random.seed(0)
    model = lstm_language_model("small", 12, 8, batch_size=4)
    whole = lstm_language_model("small", 12, 8)
    whole.set_weights(model.get_weights()[: len(whole.weights)])
    parts = [model(WORDS[:, :3]), model(WORDS[:, 3:])]
    right = np.asarray(whole(WORDS))
    np.testing.assert_allclose(np.asarray(ef.concat(parts, axis=1)), right, rtol=1e-5, atol=1e-6)


def test_parts_of_an_autoencoder():
    model = ROWS["autoencoder"].make()
    x = ROWS["autoencoder"].x
    code = model.get_layer("encoder")(x)
    assert code.shape == (4, 2)
    equal(model.get_layer("decoder")(code), model(x))


def test_a_border_is_cut_off():
    model = networks.unet(2, (572, 572, 1), width=1)
    assert model.output.shape[1:] == (388, 388, 2)  # the paper's figure 1


def gratings(count, seed, side=16):
    """Waves in ten directions, as bright as the noise over them, and the directions."""
    rng = np.random.default_rng(seed)
    directions = rng.integers(0, 10, count)
    angles = (np.pi * directions / 10)[:, None, None]
    phases, lengths = rng.uniform(0, 2 * np.pi, (count, 1, 1)), rng.uniform(0.8, 1.2, (count, 1, 1))
    rows, columns = np.mgrid[:side, :side]
    waves = np.sin((np.cos(angles) * columns + np.sin(angles) * rows) * lengths + phases)
    return (waves + rng.normal(size=waves.shape))[..., None].astype("float32"), directions


@pytest.mark.soak
def test_resnet20_learns_directions_of_gratings():
    ef.random.seed(0)
    x, y = gratings(1024, seed=0)
    model = resnet_cifar(20, 10, (16, 16, 1), width=8)
    rate = ef.nn.schedules.CosineDecay(3e-3, 5 * 32)
    model.compile(ef.nn.optimizers.Adam(rate), CROSSENTROPY, ["accuracy"])
    losses = model.fit(x, y, epochs=5, verbose=0).history["loss"]
    loss, accuracy = model.evaluate(*gratings(256, seed=1), verbose=0)
    print(losses, loss, accuracy)
    assert losses[-1] < 0.3  # log(10) = 2.3 without any knowledge
    assert accuracy > 0.85


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: vgg(12), ArgumentError, "11, 13, 16 or 19"),
        (lambda: resnet(20), ArgumentError, "18, 34, 50, 101, 152"),
        (lambda: resnet_cifar(18), ArgumentError, r"6n \+ 2"),
        (lambda: resnet_cifar(2), ArgumentError, r"6n \+ 2"),
        (lambda: lstm_language_model("tiny"), ArgumentError, "'small', 'medium', 'large'"),
        (lambda: bert(width=8, heads=3), ArgumentError, "heads"),
        (lambda: GPT(width=8, heads=3), ArgumentError, "heads"),
        (lambda: ROWS["gpt"].make()(np.zeros((1, 9), int)), ef.errors.IndexRangeError, "8"),
        (lambda: ROWS["gpt"].make().generate([[1, 2]], 7), ShapeError, "length from 1 to 1"),
        (lambda: ROWS["gpt"].make().generate([1, 2], 1), ShapeError, r"\(batch, length\)"),
        (lambda: ROWS["gpt"].make().generate([[0.5]], 1), ShapeError, "integers"),
        (lambda: ROWS["gpt"].make().generate([[1]], 0), ArgumentError, "count"),
        (lambda: ROWS["gpt"].make().generate([[1]], 1, -1.0), ArgumentError, "temperature"),
        (lambda: ROWS["gpt"].make().generate([[1]], 1, top_k=13), ArgumentError, "top_k"),
    ],
)
def test_errors(call, error, words):
    with pytest.raises(error, match=words):
        call()
