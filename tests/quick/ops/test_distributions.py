"""Distributions with parameters: the right ones, the same bits each time, and gradients."""

import mpmath
import numpy as np
import pytest
from scipy import special, stats

import eagerflow as ef
from eagerflow.op import ops
from eagerflow.ops.creation import parametric_draws

COUNT = 40_000
LEVEL = 1e-3  # of a test's p-value; the seeds are fixed, so the suite does not flicker


def generator(seed=0):
    return ef.random.Generator(seed)


# Samples -----------------------------------------------------------------------------------------

CONTINUOUS = {
    "gamma-0.1": (lambda g, n: g.gamma(0.1, n, dtype="float64"), stats.gamma(0.1)),
    "gamma-1": (lambda g, n: g.gamma(1.0, n, 2.0), stats.gamma(1, scale=2)),
    "gamma-40": (lambda g, n: g.gamma(40.0, n), stats.gamma(40)),
    "gamma-1e8": (lambda g, n: g.gamma(1e8, n, dtype="float64"), stats.gamma(1e8)),
    "beta": (lambda g, n: g.beta(2.0, 0.5, n, dtype="float64"), stats.beta(2, 0.5)),
    "beta-small": (lambda g, n: g.beta(0.05, 0.1, n, dtype="float64"), stats.beta(0.05, 0.1)),
    "chi-square": (lambda g, n: g.chi_square(3, n), stats.chi2(3)),
    "dirichlet": (lambda g, n: g.dirichlet([1.0, 2.0, 4.0], n)[:, 1], stats.beta(2, 5)),
    "student-1": (lambda g, n: g.student_t(1.0, n), stats.t(1)),
    "student-30": (lambda g, n: g.student_t(30.0, n), stats.t(30)),
    "gumbel": (lambda g, n: g.gumbel(n, 1.0, 2.0), stats.gumbel_r(1, 2)),
    "laplace": (lambda g, n: g.laplace(n, 1.0, 2.0), stats.laplace(1, 2)),
    "logistic": (lambda g, n: g.logistic(n, 1.0, 2.0), stats.logistic(1, 2)),
    "cauchy": (lambda g, n: g.cauchy(n, 1.0, 2.0), stats.cauchy(1, 2)),
    "lognormal": (lambda g, n: g.lognormal(n, 1.0, 0.5), stats.lognorm(0.5, scale=np.e)),
    "von-mises-0": (lambda g, n: g.von_mises(0.0, 0.0, n), stats.uniform(-np.pi, 2 * np.pi)),
    "von-mises-2": (lambda g, n: g.von_mises(0.0, 2.0, n), stats.vonmises(2)),
    "von-mises-1e4": (lambda g, n: g.von_mises(1.0, 1e4, n), stats.norm(1, 0.01)),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", CONTINUOUS)
def test_continuous_distribution(name):
    draw, distribution = CONTINUOUS[name]
    x = draw(generator(7), (COUNT,)).numpy().astype(float)
    assert stats.kstest(x, distribution.cdf).pvalue > LEVEL
    for lag in (1, 2, 3):
        ranks = distribution.cdf(x)
        assert abs(np.corrcoef(ranks[:-lag], ranks[lag:])[0, 1]) < 5 / np.sqrt(COUNT)


COUNTS = {
    "poisson-0.1": (lambda g, n: g.poisson(0.1, n), stats.poisson(0.1)),
    "poisson-9.9": (lambda g, n: g.poisson(9.9, n), stats.poisson(9.9)),
    "poisson-10": (lambda g, n: g.poisson(10.0, n), stats.poisson(10)),
    "poisson-1e6": (lambda g, n: g.poisson(1e6, n), stats.poisson(1e6)),
    "binomial-few": (lambda g, n: g.binomial(20, 0.3, n), stats.binom(20, 0.3)),
    "binomial-often": (lambda g, n: g.binomial(20, 0.9, n), stats.binom(20, 0.9)),
    "binomial-many": (lambda g, n: g.binomial(1000, 0.02, n), stats.binom(1000, 0.02)),
    "binomial-half": (lambda g, n: g.binomial(101, 0.6, n), stats.binom(101, 0.6)),
    "binomial-1e9": (lambda g, n: g.binomial(10**9, 0.25, n), stats.binom(10**9, 0.25)),
    "geometric": (lambda g, n: g.geometric(0.2, n), stats.geom(0.2)),
    "multinomial": (lambda g, n: g.multinomial(9, [2.0, 3.0, 5.0], n)[:, 1], stats.binom(9, 0.3)),
}


@pytest.mark.parametrize("name", COUNTS)
def test_counts(name):
    draw, distribution = COUNTS[name]
    x = draw(generator(5), (COUNT,)).numpy()
    assert x.dtype == np.int64
    edges = np.unique(distribution.ppf(np.linspace(0, 1, 25)[1:-1]))
    edges = edges[edges < distribution.support()[1]]
    chances = np.diff([0, *distribution.cdf(edges), 1])
    found = np.bincount(np.searchsorted(edges, x), minlength=len(chances))
    assert stats.chisquare(found, chances * COUNT).pvalue > LEVEL
    deviation = distribution.std() / np.sqrt(COUNT)
    assert abs(x.mean() - distribution.mean()) < 4 * deviation


def test_counts_at_the_ends():
    g = generator()
    assert g.poisson(0.0, (3,)).tolist() == [0, 0, 0]
    assert g.binomial([0, 7, 7], [0.5, 0.0, 1.0]).tolist() == [0, 0, 7]
    assert g.binomial(2**53, 0.5, dtype="float64").item() == pytest.approx(2**52, rel=1e-6)
    assert g.multinomial(5, [0.0, 1.0, 0.0]).tolist() == [0, 5, 0]
    assert g.multinomial([3, 4], [1.0]).tolist() == [[3], [4]]
    assert g.gamma(0.0).item() == 0


def test_multinomial_counts_are_those_of_their_covariance():
    p = np.array([0.1, 0.4, 0.2, 0.25, 0.05])
    x = generator(3).multinomial(50, p, (COUNT,)).numpy()
    assert (x.sum(1) == 50).all()
    expected = 50 * (np.diag(p) - np.outer(p, p))
    np.testing.assert_allclose(np.cov(x.T), expected, atol=0.2)


def test_logarithms_of_gamma_numbers_do_not_underflow():
    state = generator().state.value
    logs = ops["random_gamma"].call(state, 1e-3, shape=(2000,), log=True).numpy()
    assert np.isfinite(logs).all()
    # log x is about the logarithm of a uniform number over the shape.
    assert stats.kstest(np.exp(logs * 1e-3), stats.uniform().cdf).pvalue > LEVEL
    rows = generator().dirichlet(np.full(4, 1e-3), 500, dtype="float64").numpy()
    np.testing.assert_allclose(rows.sum(1), 1, rtol=1e-12)


# The same bits -----------------------------------------------------------------------------------

DRAWS = {
    "gamma": lambda g: g.gamma(ef.tensor([0.3, 2.0, 50.0])),
    "beta": lambda g: g.beta(2.0, ef.tensor([0.3, 2.0, 50.0])),
    "dirichlet": lambda g: g.dirichlet(ef.tensor([0.3, 2.0, 50.0]), (2,)),
    "student_t": lambda g: g.student_t(ef.tensor([0.3, 2.0])),
    "laplace": lambda g: g.laplace((3,), ef.tensor(1.0)),
    "poisson": lambda g: g.poisson(ef.tensor([0.3, 9.0, 50.0])),
    "binomial": lambda g: g.binomial(40, ef.tensor([0.3, 0.9])),
    "multinomial": lambda g: g.multinomial(40, ef.tensor([0.3, 0.9, 1.0])),
    "von_mises": lambda g: g.von_mises(ef.tensor([0.0, 3.0]), 2.0),
    "shuffle": lambda g: g.shuffle(ef.arange(9)),
    "randint": lambda g: g.randint(0, 9, (4,)),
}


@pytest.mark.parametrize("name", DRAWS)
def test_each_call_draws_once_and_captured_equals_eager(name):
    draw, eager, captured = DRAWS[name], generator(4), generator(4)
    f = ef.function(lambda: draw(captured))
    for number in (1, 2, 3):
        assert f().numpy().tobytes() == draw(eager).numpy().tobytes()
        assert eager.state.value.tolist()[2] == captured.state.value.tolist()[2] == number


@pytest.mark.parametrize("name", ["gamma", "poisson", "binomial", "von_mises"])
def test_vmap_over_states_is_a_loop_over_generators(name):
    draw, states = DRAWS[name], generator(1).states(4)
    whole = ef.vmap(lambda s: draw(ef.random.Generator(s)))(states).numpy()
    for row, state in zip(whole, states, strict=True):
        assert draw(ef.random.Generator(state)).tolist() == row.tolist()


def test_a_shared_generator_gives_each_example_numbers_of_its_own():
    g, shapes = generator(), ef.full((40,), 2.0)
    assert len(set(ef.vmap(lambda a: g.gamma(a))(shapes).tolist())) == 40
    assert len(set(ef.vmap(lambda x: x + g.gamma(2.0))(shapes).tolist())) == 40
    rows = ef.vmap(lambda a: g.gamma(a, (3,)))(ef.tensor([1e-6, 1e6])).numpy()
    assert (rows[0] < 10).all()
    assert (rows[1] > 1e5).all()
    states = g.states(3)
    many = ef.vmap(lambda a: ops["random_gamma"].call(states, a, shape=(2,)))(shapes)
    assert many.shape == (40, 3, 2)
    assert len(set(many.numpy().ravel().tolist())) == 240
    bits = ef.vmap(lambda x: x + ops["random_uniform"].call(states, (2,)))(shapes)
    assert bits.shape == (40, 3, 2)


def test_longer_draws_extend_shorter_ones_and_free_sizes_work():
    short = ef.random.Generator(2).poisson(3.0, (1,)).item()
    assert ef.random.Generator(2).poisson(3.0, (9,)).tolist()[0] == short
    g = generator(2)
    f = ef.function(
        lambda x: g.gamma(2.0, x.shape), input_signature=[ef.TensorSpec((None,), "float32")]
    )
    assert f(ef.zeros((3,))).tolist() == generator(2).gamma(2.0, (3,)).tolist()
    assert f(ef.zeros((5,))).shape == (5,)


def test_a_captured_draw_is_saved_and_loaded(tmp_path):
    graph = ef.capture.trace(
        lambda s, a: ef.random.Generator(s).gamma(a, (3,)),
        ef.TensorSpec((3,), "uint64"),
        ef.TensorSpec((), "float32"),
    )
    graph.save(tmp_path / "gamma.ef")
    loaded = ef.capture.load(tmp_path / "gamma.ef")
    state = generator(6).state.value
    wanted = ef.random.Generator(state).gamma(ef.tensor(1.5), (3,))
    assert loaded(state, ef.tensor(1.5)).tolist() == wanted.tolist()


# Gradients ---------------------------------------------------------------------------------------


def moved_gamma(shape, x):
    """How fast ``x`` moves with the shape while its probability stays."""
    with mpmath.workdps(30):
        cdf = mpmath.diff(lambda a: mpmath.gammainc(a, 0, x, regularized=True), shape)
        density = mpmath.mpf(x) ** (shape - 1) * mpmath.exp(-x) / mpmath.gamma(shape)
        return float(-cdf / density)


@pytest.mark.parametrize("shape", [1e-3, 0.4, 1.0, 1.4, 7.0, 300.0])
def test_gamma_numbers_move_at_fixed_probability(shape):
    for chance in (1e-9, 0.1, 0.5, 0.7, 0.999, 1 - 1e-8):
        x = float(special.gammaincinv(shape, chance))
        if x < 1e-280:
            continue
        wanted = moved_gamma(shape, x)
        found, logs = (
            parametric_draws.gamma_slope(
                ef.tensor(shape, "float64"), ef.tensor(y, "float64"), log
            ).item()
            for y, log in ((x, False), (np.log(x), True))
        )
        assert found == pytest.approx(wanted, rel=1e-10)
        assert logs * x == pytest.approx(wanted, rel=1e-9)


@pytest.mark.parametrize("scale", [0.99e9, 1.01e9])
def test_two_ways_for_large_shapes_agree(scale):
    off = np.array([-5.0, -1.0, 0.0, 2.0, 5.0])
    found = parametric_draws.gamma_slope(np.full(5, scale), scale + off * np.sqrt(scale), False)
    # The normal distribution's limit, with a term more than the deviation needs.
    wanted = 1 + off / (2 * np.sqrt(scale)) - (off**2 - 1) / (6 * scale)
    np.testing.assert_allclose(found.numpy() - 1, wanted - 1, rtol=1e-4, atol=1e-9)


def moved_angle(concentration, angle):
    """How fast an angle moves with the concentration while its probability stays."""

    def part(k, x):
        whole = 2 * mpmath.pi * mpmath.besseli(0, k) * mpmath.exp(-k)
        return mpmath.quad(lambda t: mpmath.exp(k * (mpmath.cos(t) - 1)), [0, x]) / whole

    with mpmath.workdps(25):
        density = mpmath.diff(lambda x: part(concentration, x), angle)
        return float(-mpmath.diff(lambda k: part(k, angle), concentration) / density)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("concentration", [1e-3, 0.7, 4.0, 200.0])
def test_von_mises_numbers_move_at_fixed_probability(concentration):
    for whole in (-3.0, -0.5, -0.01, 0.3, 2.0):
        angle = whole / max(1.0, np.sqrt(concentration))
        op = ops["von_mises_sample_slope"]
        found = op.call(np.float64(concentration), np.float64(angle)).item()
        assert found == pytest.approx(moved_angle(concentration, angle), rel=1e-9)


MEANS = {
    "gamma": (lambda g, a: g.gamma(a, COUNT).mean(), 0.6, 1.0),
    "gamma-log": (
        lambda g, a: ef.log(g.gamma(a, COUNT)).mean(),
        2.0,
        float(special.polygamma(1, 2)),
    ),
    "beta": (lambda g, a: g.beta(a, 3.0, COUNT).mean(), 2.0, 3 / 25),
    "dirichlet": (
        lambda g, a: g.dirichlet(ef.stack([a, a * 0 + 3]), COUNT)[:, 0].mean(),
        2.0,
        3 / 25,
    ),
    "student": (lambda g, a: (g.student_t(a, COUNT) ** 2).mean(), 9.0, -2 / 49),
    "von-mises": (
        lambda g, k: ef.cos(g.von_mises(0.0, k, COUNT)).mean(),
        2.0,
        1 - 0.697774657964008 / 2 - 0.697774657964008**2,
    ),
    "laplace": (lambda g, a: (g.laplace(COUNT, 1.0, a) ** 2).mean(), 1.5, 6.0),
}


@pytest.mark.parametrize("name", MEANS)
def test_gradients_of_means_are_unbiased(name):
    f, at, wanted = MEANS[name]
    found = ef.grad(lambda a: f(generator(11), a))(ef.tensor(at, dtype="float64"))
    assert float(found) == pytest.approx(wanted, rel=0.05)
    tangent = ef.jvp(lambda a: f(generator(11), a), (np.float64(at),), (np.float64(1),))[1]
    assert float(tangent) == pytest.approx(float(found), rel=1e-9)


def test_gradients_through_counts_and_second_ones_say_so():
    with pytest.raises(ef.errors.GradientError, match="whole numbers"):
        ef.grad(lambda r: generator().poisson(r, dtype="float32"))(3.0)
    second = ef.grad(ef.grad(lambda a: generator().gamma(a)))
    with pytest.raises(ef.errors.GradientError, match="first derivatives"):
        second(3.0)


# Arguments ---------------------------------------------------------------------------------------


def test_dtypes():
    g = generator()
    for dtype in ("float16", "bfloat16", "float32", "float64"):
        for name in ("gamma", "chi_square", "student_t"):
            assert getattr(g, name)(2.0, (3,), dtype=dtype).dtype.name == dtype
        assert g.beta(1.0, 2.0, dtype=dtype).dtype.name == dtype
        assert g.gumbel((3,), dtype=dtype).dtype.name == dtype
        assert g.poisson(3.0, dtype=dtype).dtype.name == dtype
    assert g.gamma(ef.tensor([1.0, 2.0], dtype="float64")).dtype == "float64"
    assert g.beta(ef.tensor(1.0, dtype="float64"), 2.0).dtype == "float64"
    assert g.binomial(ef.tensor(5), 0.5, dtype="int8").dtype == "int8"
    # 2^24 + 1 is not lost in float32.
    assert g.binomial(ef.tensor(2**24 + 1), 1.0).item() == 2**24 + 1


def test_functions_are_methods_of_the_global_generator():
    ef.random.seed(3)
    first = ef.random.gamma(2.0, (3,)).tolist()
    assert first == generator(3).gamma(2.0, (3,)).tolist()
    assert set(parametric_draws.__all__).isdisjoint(ef.random.__all__)
    assert "gamma" in dir(generator())
    with pytest.raises(AttributeError, match="no attribute 'gama'"):
        _ = generator().gama


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda g: g.gamma(-1.0), ef.errors.ArgumentError, "no such parameter"),
        (lambda g: g.gamma([1.0, 2.0], (3,)), ef.errors.ShapeError, "broadcast"),
        (lambda g: g.gamma(1.0, dtype="int32"), ef.errors.DTypeError, "cannot be drawn"),
        (lambda g: g.beta(1.0, "a"), ef.errors.DTypeError, "str"),
        (lambda g: g.poisson(float("nan")), ef.errors.ArgumentError, "no such parameter"),
        (lambda g: g.poisson(1e300), ef.errors.ArgumentError, "2\\*\\*62"),
        (lambda g: g.binomial(2.5, 0.5), ef.errors.ArgumentError, "whole numbers"),
        (lambda g: g.binomial(2, 1.5), ef.errors.ArgumentError, "from 0 to 1"),
        (lambda g: g.multinomial(2, [-1.0, 2.0]), ef.errors.ArgumentError, "from 0 to 1"),
        (lambda g: g.multinomial(2, []), ef.errors.ShapeError, "no outcomes"),
        (lambda g: g.dirichlet(1.0), ef.errors.ShapeError, "no parameters"),
        (lambda g: g.student_t(ef.ones((3,)), (2,)), ef.errors.ShapeError, "broadcast"),
        (lambda g: g.cauchy((2,), dtype="int8"), ef.errors.DTypeError, "cannot be drawn"),
        (lambda g: g.student_t(0.0), ef.errors.ArgumentError, "a positive number"),
        (lambda g: g.geometric(0.0), ef.errors.ArgumentError, "a probability above 0"),
        (lambda g: g.geometric(1.5), ef.errors.ArgumentError, "a probability above 0"),
        (lambda g: g.shuffle(3), ef.errors.ShapeError, "axis"),
        (lambda g: g.bernoulli(1.5), ef.errors.ArgumentError, "from 0 to 1"),
        (lambda g: g.normal((2,), stddev=-1), ef.errors.ArgumentError, "stddev"),
        (lambda g: g.normal((2,), stddev=np.float32("nan")), ef.errors.ArgumentError, "stddev"),
        (lambda g: g.truncated_normal((2,), stddev=-1), ef.errors.ArgumentError, "stddev"),
        (lambda g: g.lognormal((2,), sigma=-1), ef.errors.ArgumentError, "sigma"),
        *(
            (
                lambda g, name=name: getattr(g, name)((2,), scale=-1),
                ef.errors.ArgumentError,
                "scale",
            )
            for name in ("exponential", "gumbel", "laplace", "logistic", "cauchy")
        ),
    ],
)
def test_errors_state_the_expected_argument(call, error, words):
    with pytest.raises(error, match=words):
        call(generator())
