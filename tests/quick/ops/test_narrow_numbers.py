"""Counts, sums and differences that a narrow dtype does not hold are computed in a wider one."""

import numpy as np
import pytest

import eagerflow as ef
from tests.contract.cases import SOAK

MANY = 70_000  # float16 ends at 65,504, and bfloat16 has no odd numbers above 256


def column(x):
    return ef.reshape(x, (-1, 1))


IDS = ef.zeros(MANY, dtype="int64")
LOSS = ef.nn.losses.MeanSquaredError("mean_with_sample_weight")
POOL = ef.nn.GlobalAveragePooling1D()
OF_MANY = {
    "mean": ef.mean,
    "max with ties": lambda x: ef.max(ef.minimum(x, 0.25)),
    "mse_loss": lambda x: ef.mse_loss(x, x * 0.5),
    "l1_loss": lambda x: ef.l1_loss(x, x * 0.5),
    "huber_loss": lambda x: ef.huber_loss(x, x * 0.5),
    "kl_div": lambda x: ef.kl_div(ef.log(x), x),
    "average": lambda x: ef.average(x, x + 1.0),
    "nanmean": ef.nanmean,
    "var": ef.var,
    "segment_mean": lambda x: ef.sum(ef.segment_mean(x, IDS, 1)),
    "segment_max with ties": lambda x: ef.sum(ef.segment_max(ef.minimum(x, 0.25), IDS, 1)),
    "nll_loss": lambda x: ef.nll_loss(ef.stack([x, x * 2.0], axis=-1), IDS),
    "cross_entropy": lambda x: ef.cross_entropy(ef.stack([x, x * 2.0], axis=-1), IDS),
    "binary_cross_entropy_with_logits": lambda x: ef.binary_cross_entropy_with_logits(x, x),
    "loss with weights": lambda x: LOSS(column(x * 0.5), column(x), x),
    "pooling with a mask": lambda x: ef.sum(
        POOL(ef.reshape(x, (1, -1, 1)), mask=ef.ones((1, MANY), "bool"))
    ),
    "np.mean where": lambda x: np.mean(x, where=x > 0.0),
    "sparsemax": lambda x: ef.sum(ef.sparsemax(x) * x),
    "smoothed targets": lambda x: ef.cross_entropy(
        ef.reshape(x, (1, -1)), ef.tensor([3]), label_smoothing=0.5
    ),
    "regularizer": lambda x: ef.nn.regularizers.L1L2(0.05, 0.05)(x * 4.0),
    "mean of rows": lambda x: ef.mean(ef.reshape(x, (-1, 2)), axis=0)[0],
}


def value_and_gradient(f, x):
    with ef.GradientTape() as tape:
        tape.watch(x)
        y = f(x)
    gradient = tape.gradient(y, x)
    return [np.asarray(z.numpy(), np.float64) for z in (y, gradient)]


@pytest.mark.parametrize("dtype", ["float16", *["bfloat16"] * SOAK])
@pytest.mark.parametrize("name", OF_MANY)
def test_means_of_many_narrow_floats(name, dtype):
    values = np.random.default_rng(3).uniform(0.25, 1, MANY)
    x = ef.tensor(values).astype(dtype)
    f = OF_MANY[name]
    wanted = value_and_gradient(f, x.astype("float64"))
    rtol = 0.02 if dtype == "float16" else 0.1
    for how in (f, ef.function(lambda *x: f(*x))):
        for y, z in zip(value_and_gradient(how, x), wanted, strict=True):
            np.testing.assert_allclose(y, z, rtol=rtol, atol=rtol * np.abs(z).max())
            assert np.any(y) == np.any(z)


def trained(optimizer, dtype, captured):
    """What two steps with a large gradient add to a matrix."""
    rng = np.random.default_rng(7)
    values, slope = rng.uniform(0.25, 1, (2, MANY // 2, 2))
    v = ef.Variable(ef.tensor(values).astype(dtype))
    before = v.numpy().astype(np.float64)
    optimizer = optimizer()

    def step(g):
        optimizer.apply([g], [v])

    step = ef.function(step) if captured else step
    for _ in range(2):
        step(ef.tensor(slope * 4.0).astype(dtype))
    return v.numpy().astype(np.float64) - before


OF_NORMS = {
    "Lamb": lambda: ef.nn.optimizers.Lamb(0.05),
    "Muon": lambda: ef.nn.optimizers.Muon(0.05),
    "Adafactor": lambda: ef.nn.optimizers.Adafactor(0.05),
    "clipnorm": lambda: ef.nn.optimizers.SGD(5.0, clipnorm=50.0),
    "global_clipnorm": lambda: ef.nn.optimizers.SGD(5.0, global_clipnorm=50.0),
}


@pytest.mark.parametrize("captured", [False, True])
@pytest.mark.parametrize("name", OF_NORMS)
def test_steps_that_depend_on_norms_of_many_narrow_floats(name, captured):
    wanted = np.abs(trained(OF_NORMS[name], "float64", False)).mean()
    found = np.abs(trained(OF_NORMS[name], "float16", captured)).mean()
    np.testing.assert_allclose(found, wanted, rtol=0.05)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_statistics_of_many_masked_narrow_floats(dtype):
    rng = np.random.default_rng(9)
    x = ef.tensor(rng.uniform(20, 24, (MANY, 2))).astype(dtype)
    mask = rng.random(MANY) < 0.95
    wide = x.numpy().astype(np.float64)[mask]
    layer = ef.nn.BatchNormalization(dtype=dtype, momentum=0.0)
    for how in (layer, ef.function(lambda x, mask: layer(x, training=True, mask=mask))):
        y = how(x, training=True, mask=mask) if how is layer else how(x, ef.tensor(mask))
        found = y.numpy().astype(np.float64)[mask]
        np.testing.assert_allclose(found, (wide - wide.mean(0)) / wide.std(0), atol=0.15)
        mean = layer.moving_mean.numpy().astype(np.float64)
        np.testing.assert_allclose(mean, wide.mean(0), rtol=0.01)


def integers(dtype, *shape):
    """Numbers of all of a dtype's range, with its ends among them."""
    rng = np.random.default_rng(5)
    if dtype == "bool":
        return rng.random(shape) < 0.5
    ends = np.iinfo(dtype)
    x = rng.integers(ends.min, ends.max, shape, dtype, endpoint=True)
    x.flat[0], x.flat[-1] = ends.min, ends.max
    return x


def row(*shape):
    return lambda f, n=1: (f, [shape] * n)


ROWS, IMAGE = row(4, 6), row(1, 6, 6, 3)
AVERAGE = ef.nn.Average()
BATCH, RESPONSE = ef.nn.BatchNormalization(), ef.nn.LocalResponseNormalization(2)
CONCAT, ADDITIVE = ef.nn.Attention(score_mode="concat"), ef.nn.AdditiveAttention()
SINES = ef.nn.SinePositionEncoding()
WIDE = {
    "pairwise_distance": ROWS(ef.pairwise_distance, 2),
    "cosine_similarity": ROWS(ef.cosine_similarity, 2),
    "cdist": ROWS(ef.cdist, 2),
    "triplet_margin_loss": ROWS(lambda *x: ef.triplet_margin_loss(*x, swap=True), 3),
    "margin_ranking_loss": ROWS(ef.margin_ranking_loss, 3),
    "hinge_loss": ROWS(ef.hinge_loss, 2),
    "l1_loss": ROWS(ef.l1_loss, 2),
    "mse_loss": ROWS(ef.mse_loss, 2),
    "huber_loss": ROWS(ef.huber_loss, 2),
    "soft_margin_loss": ROWS(ef.soft_margin_loss, 2),
    "sobel_edges": IMAGE(ef.sobel_edges),
    "gaussian_blur": IMAGE(ef.gaussian_blur),
    "lp_pool": IMAGE(lambda x: ef.lp_pool(x, 2, 2)),
    "avg_pool": IMAGE(lambda x: ef.avg_pool(x, 2)),
    "adaptive_avg_pool": IMAGE(lambda x: ef.adaptive_avg_pool(x, 2)),
    "rgb_to_grayscale": IMAGE(ef.rgb_to_grayscale),
    "local_response_norm": IMAGE(ef.local_response_norm),
    "norm": ROWS(ef.norm),
    "mean": ROWS(ef.mean),
    "var": ROWS(ef.var),
    "nn.Average": ROWS(lambda *x: AVERAGE(list(x)), 3),
    "nn.BatchNormalization": ROWS(BATCH),
    "nn.BatchNormalization in training": ROWS(lambda x: BATCH(x, training=True)),
    "batch_norm": row(6)(lambda x, y: ef.batch_norm(x, None, None, y, ef.ones(6))[0], 2),
    "nn.LocalResponseNormalization": ROWS(RESPONSE),
    "nn.Attention of sums": row(2, 3, 4)(lambda *x: CONCAT(list(x)), 2),
    "nn.AdditiveAttention": row(2, 3, 4)(lambda *x: ADDITIVE(list(x)), 2),
    "nn.SinePositionEncoding": row(2, 3, 4)(SINES),
    "regularizers.L1L2": ROWS(ef.nn.regularizers.L1L2(0.5, 0.25)),
    "mean_absolute_error": ROWS(ef.nn.losses.mean_absolute_error, 2),
    "mean_squared_error": ROWS(ef.nn.losses.mean_squared_error, 2),
    "trapezoid": ROWS(ef.trapezoid),
    "hard_shrink": ROWS(ef.hard_shrink),
}


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16", "bool"])
@pytest.mark.parametrize("name", WIDE)
def test_small_integers_do_not_wrap_on_the_way(name, dtype):
    f, shapes = WIDE[name]
    arrays = [integers(dtype, *shape) for shape in shapes]
    wanted = f(*[ef.tensor(x.astype(np.float64)) for x in arrays]).numpy()
    for how in (f, ef.function(lambda *x: f(*x))):
        found = how(*map(ef.tensor, arrays))
        assert found.dtype == "float32"
        scale = np.abs(wanted).max()
        np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-3, atol=1e-5 * scale)


MERGES = {
    "Add": lambda a, b: a + b,
    "Subtract": lambda a, b: a - b,
    "Multiply": lambda a, b: a * b,
    "Dot": lambda a, b: (a * b).sum(1, keepdims=True),
}


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16", "uint16"])
@pytest.mark.parametrize("name", MERGES)
def test_layers_that_merge_small_integers_do_not_wrap(name, dtype):
    rng = np.random.default_rng(11)
    ends = np.iinfo(dtype)
    pair = [rng.integers(ends.min, min(ends.max, 2**31), (4, 6)).astype(dtype) for _ in "ab"]
    layer = ef.nn.Dot(axes=1) if name == "Dot" else getattr(ef.nn, name)()
    for how in (layer, ef.function(lambda x: layer(x))):
        found = how(list(map(ef.tensor, pair)))
        assert found.dtype == "int64"
        np.testing.assert_array_equal(found.numpy(), MERGES[name](*(x.astype("i8") for x in pair)))


def test_circle_loss_of_small_integers():
    labels, x = np.array([0, 0, 1]), np.array([[100, 2], [-3, 90], [50, 50]], np.int8)
    circle = ef.nn.losses.circle
    np.testing.assert_array_equal(circle(labels, x).numpy(), circle(labels, x.astype("f4")).numpy())


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64", "uint8", "uint64"])
def test_bits_of_the_least_numbers(dtype):
    x = integers(dtype, 50)
    wanted = [abs(int(value)).bit_count() for value in x]
    assert ef.bitwise_count(ef.tensor(x)).tolist() == wanted
    assert ef.function(lambda x: ef.bitwise_count(x))(ef.tensor(x)).tolist() == wanted


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("extreme", [ef.max, ef.min])
def test_gradients_of_min_and_max_of_fused_values(extreme, dtype):
    rng = np.random.default_rng(0)
    drawn = [rng.standard_normal(shape).astype("f4") for shape in ((32, 128, 64), (1, 1, 64))]
    w, s = (ef.astype(ef.tensor(x), dtype) for x in drawn)
    gradient = ef.grad(lambda w, s: ef.sum(extreme(s * w, axis=0) * 2.0))
    step = ef.function(gradient)
    step(w, s)
    np.testing.assert_array_equal(step(w, s).numpy(), gradient(w, s).numpy())


POINTS = {
    "trapezoid along points": lambda y, x: ef.trapezoid(y, x),
    "trapezoid along an axis": lambda y, x: ef.trapezoid(ef.stack([y, y]), ef.stack([x, x])),
    "gradient along points": lambda y, x: ef.gradient(y, x),
    "rotary_embedding": lambda y, x: ef.nn.rotary_embedding(ef.stack([y, x])),
}


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16"])
@pytest.mark.parametrize("name", POINTS)
def test_points_in_small_integers_have_their_distances(name, dtype):
    ends = np.iinfo(dtype)
    y = np.array([1, 2, 4, 7]).astype(dtype)
    x = np.array([ends.max, ends.max - 1, ends.max - 3, ends.min]).astype(dtype)
    wanted = POINTS[name](*(ef.tensor(v.astype("f8")) for v in (y, x))).numpy()
    for way in (POINTS[name], ef.function(POINTS[name])):
        found = way(ef.tensor(y), ef.tensor(x)).numpy()
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint8", "int32"])
def test_powers_of_small_integers_in_a_vandermonde_matrix(dtype):
    x = np.array([0, 1, 100]).astype(dtype)
    found = ef.vander(ef.tensor(x), 4)
    assert found.dtype == "int64"
    np.testing.assert_array_equal(found.numpy(), np.vander(x.astype("i8"), 4))


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16", "uint16", "float16"])
def test_means_at_places_are_those_of_sums_that_do_not_fit(dtype):
    if dtype == "float16":
        x, more = np.full(3, 60_000, "f2"), np.full(3, 64_000, "f2")
    else:
        x, more = np.full(3, np.iinfo(dtype).max, dtype), np.full(3, np.iinfo(dtype).max - 2, dtype)
    places = np.array([0, 0, 2])
    wanted = x.astype("f8")
    wanted[0] = (wanted[0] + 2 * float(more[0])) / 3
    wanted[2] = (wanted[2] + float(more[2])) / 2
    ways = {
        "scatter_reduce": lambda x, more: ef.scatter_reduce(x, places, more, reduce="mean"),
        "index_reduce": lambda x, more: ef.index_reduce(x, places, more, reduce="mean"),
        "at": lambda x, more: x.at[places].mean(more),
    }
    for f in ways.values():
        for way in (f, ef.function(f)):
            found = way(ef.tensor(x), ef.tensor(more))
            assert found.dtype == dtype
            rounded = wanted if dtype == "float16" else np.floor(wanted)
            np.testing.assert_allclose(found.numpy().astype("f8"), rounded, rtol=1e-3)


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16", "bool"])
def test_counts_with_small_integers_as_weights(dtype):
    weights = integers(dtype, 50)
    x = np.arange(50) % 3
    wanted = np.bincount(x, weights)
    for f in (
        lambda x, w: ef.bincount(x, w, length=3),
        lambda x, w: ef.histogram(x, w, bins=3)[0],
        lambda x, w: ef.histogramdd([x], bins=3, weights=w)[0],
    ):
        for way in (f, ef.function(f)):
            found = way(ef.tensor(x), ef.tensor(weights))
            assert found.dtype == "int64"
            np.testing.assert_array_equal(found.numpy(), wanted)
