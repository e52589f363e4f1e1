"""Attention in machine code and in NumPy's tiles: shapes, masks, bits, infinities, CPUs."""

import os
import subprocess
import sys
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import eagerflow as ef
from eagerflow.codegen import generated
from eagerflow.ops.nn.attention import attention_with_log_sums
from eagerflow.ops.nn.attention_gradient import dot_product_attention_gradient
from eagerflow.primitives import attention, compiled_attention
from eagerflow.primitives.compiled_attention import Options
from eagerflow.primitives.llvm.attention_forward import AttentionForwardWriter
from eagerflow.primitives.llvm.attention_gradient import AttentionGradientWriter
from eagerflow.runtime import threads

WAYS = [
    pytest.param(
        compiled_attention,
        marks=pytest.mark.skipif(not generated.enabled(), reason="needs llvmlite"),
        id="machine code",
    ),
    pytest.param("numpy", id="numpy"),
]


@pytest.fixture(name="way", params=WAYS)
def fixture_way(request, monkeypatch):
    """The module whose kernels are called."""
    if request.param != "numpy":
        return request.param
    monkeypatch.setattr(compiled_attention, "takes", lambda *_: False)
    return attention


class Case:
    """Arrays of attention: queries, keys, values, a weight of each result, and a mask."""

    def __init__(
        self,
        sizes,  # batch, heads of keys, heads of queries that share one, queries, keys
        widths=(8, 8),
        dtype="float32",
        is_causal=False,
        mask="",
        whole=(True, True, True, True),  # axes along which the mask differs
        packed=False,
        seed=0,
    ):
        batch, shared, group, length, keys = sizes
        width, value_width = widths
        rng = np.random.default_rng(seed)
        heads, self.is_causal = shared * group, is_causal

        def draw(heads, length, width):
            if packed:  # (batch, length, heads, width), seen otherwise, among other elements
                x = rng.standard_normal((batch, length, heads + 1, width + 3))
                return x.astype(dtype)[:, :, 1:, 2:-1].transpose(0, 2, 1, 3)
            return rng.standard_normal((batch, heads, length, width)).astype(dtype)

        self.q, self.k = draw(heads, length, width), draw(shared, keys, width)
        self.v, self.g = draw(shared, keys, value_width), draw(heads, length, value_width)
        self.of_log_sums = rng.standard_normal((batch, heads, length)).astype(dtype)
        shape = [
            n if own else 1 for n, own in zip((batch, heads, length, keys), whole, strict=True)
        ]
        self.mask = None
        if mask:
            self.mask = rng.random(shape) < 0.6
        if mask == "float":
            self.mask = np.where(self.mask, rng.standard_normal(shape), -np.inf).astype(dtype)

    @property
    def options(self):
        return Options(self.mask, self.is_causal, 0.3)

    def results(self, way):
        """Averages, logarithms, and the gradients by q, k and v."""
        own = self.q, self.k, self.v, self.options
        with np.errstate(all="ignore"):
            found = way.forward(*own)
            return [*found, *way.gradient((self.g, self.of_log_sums), found, *own)]

    def expected(self):
        """The same in more digits, by the kernels for any library, which hold all scores."""
        wide = [x.astype(np.longdouble) for x in (self.q, self.k, self.v, self.g, self.of_log_sums)]
        q, k, v, g, of_log_sums = wide
        more = {"is_causal": self.is_causal, "scale": self.options.scale}
        with np.errstate(all="ignore"):
            found = attention_with_log_sums.op.kernel(np, q, k, v, self.mask, **more)
            rest = dot_product_attention_gradient.op.kernel(
                np, q, k, v, g, *found, self.mask, of_log_sums, **more
            )
        return [*found, *rest]


def check(found, wanted):
    for name, x, exact in zip(
        ("y", "log_sums", "of q", "of k", "of v"), found, wanted, strict=True
    ):
        assert x.shape == exact.shape, name
        with np.errstate(all="ignore"):
            wrong = np.where((x == exact) | (np.isnan(x) & np.isnan(exact)), 0, np.abs(x - exact))
        scale = np.abs(exact[np.isfinite(exact)]).max(initial=1)
        assert wrong.max(initial=0) < 100 * scale * np.finfo(x.dtype).eps, name


# Sizes that are whole tiles and vectors, and odd ones; several chunks, pieces, parts.
CASES = (
    {"sizes": (2, 3, 1, 64, 64), "widths": (16, 16), "is_causal": True},
    {"sizes": (1, 2, 2, 33, 70), "widths": (20, 7), "packed": True},
    {"sizes": (1, 1, 3, 130, 45), "widths": (3, 40), "is_causal": True, "packed": True},
    {"sizes": (3, 1, 1, 8, 300), "widths": (1, 1), "mask": "bool"},
    {"sizes": (2, 2, 1, 47, 90), "widths": (32, 17), "mask": "float", "is_causal": True},
    {"sizes": (1, 1, 1, 700, 900), "widths": (100, 130), "is_causal": True},
    {"sizes": (1, 1, 1, 300, 520), "widths": (256, 256), "mask": "bool"},
    {"sizes": (4, 8, 2, 70, 66), "widths": (64, 64), "mask": "float"},
)


@pytest.mark.sampled(12)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case["sizes"]))
def test_results_and_gradients(case, dtype, way):
    case = Case(**case, dtype=dtype)
    check(case.results(way), case.expected())


@settings(max_examples=20, deadline=None)
@given(data=st.data())
@pytest.mark.skipif(not generated.enabled(), reason="needs llvmlite")
def test_any_shapes_and_masks(data):
    count = st.integers(1, 3)
    case = Case(
        data.draw(st.tuples(count, count, count, st.integers(1, 100), st.integers(1, 150))),
        data.draw(st.sampled_from([(8, 8), (5, 33)])),  # few: each makes kernels
        dtype=data.draw(st.sampled_from(["float32", "float64"])),
        is_causal=data.draw(st.booleans()),
        mask=data.draw(st.sampled_from(["", "bool", "float"])),
        whole=data.draw(st.tuples(*[st.booleans()] * 4)),
        packed=data.draw(st.booleans()),
        seed=data.draw(st.integers(0, 99)),
    )
    check(case.results(compiled_attention), case.expected())


def test_masks_of_fewer_axes_and_other_orders(way):
    case = Case((2, 2, 1, 20, 30), mask="bool")
    for mask in (
        case.mask[0, 0],
        case.mask[0, 0, 0],
        case.mask[0, 0, 0, 0],
        np.asfortranarray(case.mask),
        case.mask[..., ::-1],
        np.linspace(-1, 1, 30),  # of another type
    ):
        case.mask = mask
        check(case.results(way), case.expected())


@pytest.mark.skipif(not generated.enabled(), reason="needs llvmlite")
def test_results_have_the_memory_layout_of_their_operands():
    case = Case((2, 3, 1, 16, 24), packed=True)
    for result in case.results(compiled_attention)[0::2]:
        assert result.transpose(0, 2, 1, 3).flags.c_contiguous
    case = Case((2, 3, 1, 16, 24))
    for result in case.results(compiled_attention):
        assert result.flags.c_contiguous


def test_queries_that_see_no_key_give_zeros(way):
    case = Case((1, 2, 1, 40, 50), mask="bool")
    case.mask[0, 1, 7] = case.mask[0, 0, 32:] = False
    y, log_sums, of_q, *others = case.results(way)
    check([y, log_sums, of_q, *others], case.expected())
    for x in (y, of_q):
        assert not x[0, 1, 7].any() and not x[0, 0, 32:].any() and x[0, 1, 8].all()
    assert not log_sums[0, 0, 32:].any()


def test_masks_hiding_first_tiles_and_large_negative_masks(way):
    case = Case((1, 2, 1, 40, 200), mask="float")
    case.mask[:] = 0
    case.mask[0, 0, :, :150] = -np.inf
    case.mask[0, 1, :, :150] = np.finfo(np.float32).min
    check(case.results(way), case.expected())
    case.mask[0, 1] = np.finfo(np.float32).min  # all alike: nothing is hidden
    y = way.forward(case.q, case.k, case.v, case.options)[0]
    np.testing.assert_allclose(y[0, 1], np.tile(case.v[0, 1].mean(0), (40, 1)), atol=1e-6)


@pytest.mark.parametrize("is_causal", [False, True])
def test_large_scores_choose_one_key(is_causal, way):
    """Weights are 0 and 1, and the scores of the gradient are those of the logarithms."""
    case = Case((1, 2, 1, 60, 60), (16, 16), is_causal=is_causal)
    case.q *= 3e4
    y, _, of_q, of_k, of_v = case.results(way)
    scores = np.einsum("bhqd,bhkd->bhqk", case.q, case.k)
    if is_causal:
        scores = np.where(np.tri(60, dtype=bool), scores, -np.inf)
    chosen = scores.argmax(-1)
    weights = np.eye(60)[chosen]
    np.testing.assert_allclose(y, weights @ case.v, atol=1e-6)
    np.testing.assert_allclose(of_v, weights.swapaxes(2, 3) @ case.g, atol=1e-5)
    # With one weight of 1, the gradient of that score is of_log_sums alone.
    slopes = weights * case.of_log_sums[..., None] * 0.3
    np.testing.assert_allclose(of_q, slopes @ case.k, atol=1e-4)
    np.testing.assert_allclose(of_k / 3e4, slopes.swapaxes(2, 3) @ case.q / 3e4, atol=1e-4)


def test_infinities_and_nan(way):
    """They reach the queries that see them, and no others."""
    for value in (np.nan, np.inf, -np.inf):
        case = Case((1, 2, 1, 20, 40))
        case.q[0, 0, 3, 1] = value
        y, log_sums, *_ = case.results(way)
        bad = np.zeros((1, 2, 20), bool)
        bad[0, 0, 3] = True
        assert (np.isnan(y).all(-1) == bad).all() and (np.isnan(y).any(-1) == bad).all()
        assert (np.isfinite(log_sums) == ~bad).all()
        case = Case((1, 2, 1, 20, 40))
        case.v[0, 1, 30, 2] = value
        y, log_sums, *_ = case.results(way)
        assert np.isfinite(log_sums).all() and np.isfinite(y[0, 0]).all()
        assert (~np.isfinite(y[0, 1])).sum(0).tolist() == [0, 0, 20, 0, 0, 0, 0, 0]
    case = Case((1, 1, 1, 80, 80), is_causal=True)
    case.k[0, 0, 64:, 0] = case.v[0, 0, 64:, 0] = np.nan
    y = case.results(way)[0]
    assert np.isnan(y[0, 0, 64:, 0]).all()
    if way is compiled_attention:  # tiles that no query sees are not looked at
        assert np.isfinite(y[0, 0, :64]).all()


def test_few_queries_or_zero_width_values_use_the_fallback():
    case = Case((4, 4, 1, 4, 512), (32, 32))
    assert not compiled_attention.takes(case.q, case.v)
    check(case.results(attention), case.expected())
    case = Case((4, 4, 1, 64, 64), (32, 0))
    assert not compiled_attention.takes(case.q, case.v)
    assert [x.shape for x in case.results(attention)][::4] == [(4, 4, 64, 0), (4, 4, 64, 0)]


# Work and memory ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "case",
    [
        {"sizes": (2, 3, 2, 70, 80), "is_causal": True},
        {"sizes": (1, 1, 1, 400, 300), "mask": "float"},
        {"sizes": (1, 1, 4, 100, 90), "is_causal": True, "mask": "bool"},
    ],
    ids=["heads", "parts of a head", "parts of a group"],
)
def test_any_number_of_threads_gives_the_same_bits(case, way, monkeypatch):
    monkeypatch.setattr(compiled_attention, "MIN_SHARED_PRODUCTS", 0)
    case, found = Case(**case), []
    try:
        for count in (1, 2, 3):
            threads.set_thread_count(count)
            found.append(case.results(way))
    finally:
        threads.set_thread_count(None)
    for other in found[1:]:
        assert all(a.tobytes() == b.tobytes() for a, b in zip(found[0], other, strict=True))


@pytest.mark.skipif(not generated.enabled(), reason="needs llvmlite")
def test_bits_do_not_depend_on_where_arrays_lie():
    plain, packed = Case((2, 2, 1, 50, 60), mask="bool"), Case((2, 2, 1, 50, 60), mask="bool")
    for name in "qkvg":
        moved = getattr(plain, name).transpose(2, 1, 0, 3).copy().transpose(2, 1, 0, 3)
        setattr(packed, name, moved)
    pairs = zip(plain.results(compiled_attention), packed.results(compiled_attention), strict=True)
    assert all((a == b).all() for a, b in pairs)


def test_scores_are_never_in_memory_together(way):
    case = Case((1, 2, 1, 1500, 1500), (16, 16))
    case.results(way)
    tracemalloc.start()
    case.results(way)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2 * 1500 * 1500 * 4 / 4


# Checks that would be blind ----------------------------------------------------------------------


class _SeesAll(AttentionForwardWriter):
    def _adjust(self, *given):
        pass


class _ForgetsChanges(AttentionForwardWriter):
    """Earlier sums stay as they are when the largest score grows."""

    def _average(self, inside, count):
        self.v.store(
            self.s.splat(self.s.constant(1, "float32"), self.lanes), self.own(self.at_changes)
        )
        super()._average(inside, count)


class _JoinsNothing(AttentionGradientWriter):
    def _join(self):
        pass


class _ForgetsMeans(AttentionGradientWriter):
    def _measure(self, own, first, count, g, y):
        return super()._measure(own, first, count, y, y)


@pytest.mark.skipif(not generated.enabled(), reason="needs llvmlite")
@pytest.mark.parametrize(
    ("broken", "case"),
    [
        (_SeesAll, {"sizes": (1, 1, 1, 64, 64), "is_causal": True}),
        (_SeesAll, {"sizes": (1, 1, 1, 64, 61)}),
        (_SeesAll, {"sizes": (1, 1, 1, 64, 64), "mask": "bool"}),
        (_ForgetsChanges, {"sizes": (1, 1, 1, 64, 200)}),
        (_JoinsNothing, {"sizes": (1, 1, 1, 300, 64)}),
        (_ForgetsMeans, {"sizes": (1, 1, 1, 64, 64)}),
    ],
)
def test_errors_in_kernels_are_found(broken, case, monkeypatch):
    (whole,) = broken.__bases__
    monkeypatch.setattr(compiled_attention, whole.__name__, broken)
    case = Case(**case)
    with pytest.raises(AssertionError):
        check(case.results(compiled_attention), case.expected())


# Through the op ----------------------------------------------------------------------------------


@pytest.mark.soak
@pytest.mark.skipif(not generated.enabled(), reason="needs llvmlite")
@pytest.mark.parametrize("mask", ["", "bool", "float"])
def test_derivatives_of_machine_code(mask):
    """First and second ones, forward mode, and examples side by side."""
    case = Case((2, 1, 2, 9, 10), (3, 2), "float64", is_causal=True, mask=mask)
    if mask == "float":
        case.mask = np.where(np.isfinite(case.mask), case.mask, 0)
    case.mask = (
        None if case.mask is None else ef.tensor(case.mask | True if mask == "bool" else case.mask)
    )

    def attend(q, k, v, more=case.mask):
        return ef.dot_product_attention(q, k, v, more, is_causal=True, scale=0.4)

    own = tuple(map(ef.tensor, (case.q, case.k, case.v)))
    with generated.watching():  # arrays of all sizes
        ef.testing.check_gradients(attend, own, order=2)
        if mask == "float":
            ef.testing.check_gradients(lambda m: attend(*own, m), (case.mask,))
        whole = ef.vmap(lambda q: attend(q, *own[1:]))(ef.tensor(np.stack([case.q, -case.q])))
        np.testing.assert_allclose(whole[1], attend(-own[0], *own[1:]), atol=1e-12)


def test_mask_gradients_are_computed_only_on_request():
    arrays = [np.random.default_rng(i).standard_normal((1, 2, 8, 4)) for i in range(3)]
    q, k, v = (ef.tensor(x, dtype="float32") for x in arrays)
    bias = ef.zeros((8, 8))

    def ops_of(function, *given):
        graph = ef.capture.trace(function, *(ef.TensorSpec(x.shape, x.dtype) for x in given))
        return [node.op.name for node in graph.nodes]

    loss = lambda q, bias: ef.dot_product_attention(q, k, v, bias).sum()
    assert "exp" not in ops_of(ef.grad(loss), q, bias)
    assert "exp" in ops_of(ef.grad(loss, argnums=1), q, bias)
    np.testing.assert_allclose(
        ef.grad(loss, argnums=1)(q, bias),
        ef.vjp(lambda b: ef.dot_product_attention(q, k, v, b), bias)[1](ef.ones((1, 2, 8, 4)))[0],
        atol=1e-6,
    )


@pytest.mark.parametrize("numerics", ["exact", "fast"])
def test_captured_steps_equal_eager_calls_bitwise(numerics):
    case = Case((2, 4, 1, 64, 64), (16, 16), is_causal=True, packed=True)
    own = [ef.tensor(x) for x in (case.q, case.k, case.v)]

    def gradients(q, k, v):
        loss = lambda *own: (ef.dot_product_attention(*own, is_causal=True) * 2.0).sum()
        return ef.grad(loss, argnums=(0, 1, 2))(q, k, v)

    captured = ef.function(gradients, numerics=numerics)
    for _ in range(2):
        for a, b in zip(captured(*own), gradients(*own), strict=True):
            np.testing.assert_array_equal(a.numpy(), b.numpy())


# Other processors --------------------------------------------------------------------------------

CHECKS = """
from tests.primitives import test_attention as own
for dtype in ("float32", "float64"):
    for case in own.CASES[:5]:
        case = own.Case(**case, dtype=dtype)
        own.check(case.results(own.compiled_attention), case.expected())
print(*own.compiled_attention.processor("float32"))
"""


@pytest.mark.soak
@pytest.mark.skipif(not generated.enabled(), reason="needs llvmlite")
@pytest.mark.parametrize(
    ("features", "shape"), [("-avx512*", "8 16"), ("-avx* -fma", "4 16")], ids=["avx2", "sse"]
)
def test_code_for_processors_with_shorter_vectors(features, shape):
    environment = os.environ | {"EAGERFLOW_LLVM_FEATURES": features, "PYTHONPATH": os.getcwd()}
    done = subprocess.run(
        [sys.executable, "-c", CHECKS], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    if os.uname().machine == "x86_64":
        assert done.stdout.split() == shape.split()
