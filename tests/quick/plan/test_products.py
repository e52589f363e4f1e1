"""Products in plans: what multiplies, what ``explain`` says of it, and the bits that come of it."""

import ml_dtypes
import numpy as np
import pytest

import eagerflow as ef
from eagerflow.codegen import generated
from eagerflow.codegen.kernel import has_segments
from eagerflow.fusion.groups import fuse_for_device
from eagerflow.plan.epilogues import FusedProduct, with_epilogues
from eagerflow.runtime import threads

native = pytest.mark.skipif(not has_segments(), reason="there are no segments")


def plan_of(function, *specs, **more):
    return ef.capture.trace(function, *[ef.TensorSpec(*s) for s in specs]).plan(**more)


def ways(plan):
    """For each product in its order what ``explain`` says of it."""
    return [line.split("  ", 2)[-1].strip() for line in plan.explain().splitlines()]


@native
def test_explain_lists_products_with_operands_kernel_and_line():
    def function(x, w):
        return ef.tanh(x @ w) @ ef.ones((64,))

    plan = plan_of(function, ((32, 256), "float32"), ((256, 64), "float32"))
    first, second = plan.explain().splitlines()
    assert first.startswith("matmul ")
    assert "float32(32, 256) · float32(256, 64)" in first
    assert "generated kernel: 1,048,576 operations" in first
    assert "test_products.py" in first
    assert "NumPy: a factor is a vector" in second


@native
@pytest.mark.parametrize(("dtype", "size", "more", "reason"), [
    ("float32", 64, {}, "generated kernel: 524,288 operations"),
    ("bfloat16", 64, {}, "generated kernel: 524,288 operations"),
    ("int8", 64, {}, "generated kernel: 524,288 operations"),
    ("float32", 4, {}, "NumPy: 128 operations are few"),
    ("complex64", 64, {}, "NumPy: no kernel multiplies complex64"),
    ("int32", 64, {}, "NumPy: no kernel multiplies int32"),
    ("float32", 64, {"numerics": "exact"}, "NumPy: the plan is exact"),
])  # fmt: skip
def test_reasons(dtype, size, more, reason):
    spec = (size, size), dtype
    plan = plan_of(lambda x, y: x @ y, spec, spec, **more)
    assert reason in plan.explain()
    assert ("_segment(" in plan.source()) == reason.startswith("generated")


def test_a_plan_without_products():
    assert plan_of(lambda x: x + 1.0, ((3,), "float32")).explain() == "no products"


@pytest.mark.parametrize(("function", "names"), [
    (lambda x, w, v: x @ w + v, ["bias"]),
    (lambda x, w, v: ef.relu(x @ w), ["relu"]),
    (lambda x, w, v: ef.relu(x @ w + v), ["relu_bias"]),
    (lambda x, w, v: ef.gelu(x @ w), ["gelu"]),
    (lambda x, w, v: ef.gelu(v + x @ w), ["gelu_bias"]),
    (lambda x, w, v: (ef.gelu(y := x @ w + v), y), ["gelu_aux_bias"]),
    (lambda x, w, v: ef.relu(x @ w + v) * 2.0, []),
    (lambda x, w, v: ef.gelu(x @ w + v, approximate=False), []),
    (lambda x, w, v: x @ w + v[0], []),
])  # fmt: skip
def test_epilogues_of_products_on_devices(function, names):
    specs = [ef.TensorSpec(shape, "float32") for shape in ((6, 5), (5, 8), (8,))]
    graph = ef.capture.trace(function, *specs)
    steps = with_epilogues(graph, fuse_for_device(graph))
    assert [step.epilogue.name for step in steps if isinstance(step, FusedProduct)] == names


def test_explain_lists_einsum():
    spec = (8, 8), "float32"
    plan = plan_of(lambda x, y: ef.einsum("ij,kj->ik", x, y), spec, spec)
    assert "einsum" in plan.explain() or "matmul" in plan.explain()


@pytest.mark.parametrize("name", ["float16", "bfloat16", "int8", "uint8"])
def test_small_types_agree_with_numpy_and_keep_their_bits(name):
    kind = np.dtype(getattr(ml_dtypes, name, name))
    rng = np.random.default_rng(0)
    if kind.kind in "iu":
        x, y = (rng.integers(0, 100, (96, 96)).astype(kind) for _ in range(2))
    else:
        x, y = (rng.standard_normal((96, 96)).astype(kind) for _ in range(2))
    spec = (96, 96), name
    found = []
    try:
        for count in (1, 2):
            threads.set_thread_count(count)
            plan = plan_of(lambda x, y: (x @ y) @ y.mT, spec, spec)
            (out,) = plan.run([x, y])
            found.append(out.copy())
    finally:
        threads.set_thread_count(None)
    assert found[0].dtype == kind
    assert found[0].tobytes() == found[1].tobytes()
    wide = np.int64 if kind.kind in "iu" else np.float64
    first = (x.astype(wide) @ y.astype(wide)).astype(kind)
    exact = first.astype(wide) @ y.T.astype(wide)
    if kind.kind in "iu":
        np.testing.assert_array_equal(found[0], exact.astype(kind))
    else:
        error = float(ml_dtypes.finfo(kind).eps) * (abs(first.astype(wide)) @ abs(y.T.astype(wide)))
        assert (abs(found[0].astype(wide) - exact) <= error).all()


@pytest.mark.parametrize("name", ["float32", "float16", "bfloat16", "int8"])
def test_exact_plans_equal_eager_products_bitwise(name):
    rng = np.random.default_rng(0)
    kind = np.dtype(getattr(ml_dtypes, name, name))
    x, y = ((3 * rng.standard_normal((130, 130))).astype(kind) for _ in range(2))
    for shape in ((130, 130), (12, 12), (3, 3)):
        a, b = (np.ascontiguousarray(z[: shape[0], : shape[1]]) for z in (x, y))
        plan = plan_of(lambda x, y: x @ y, (shape, name), (shape, name), numerics="exact")
        (out,) = plan.run([a, b])
        eager = np.asarray(ef.matmul(ef.tensor(a), ef.tensor(b)))
        assert out.tobytes() == eager.tobytes()


@pytest.mark.skipif(not generated.enabled(), reason="there is no llvmlite")
@pytest.mark.parametrize("name", ["float16", "bfloat16", "int8"])
@pytest.mark.parametrize("shapes", [
    ((300, 500), (500,)), ((500,), (500, 300)), ((3, 50, 40), (40, 60)),
    ((3, 50, 40), (3, 40, 60)), ((2, 1, 70, 200), (3, 200, 60)), ((3, 4), (4, 2)),
    ((5000,), (5000,)),
])  # fmt: skip
def test_eager_products_of_small_types(name, shapes):
    rng = np.random.default_rng(0)
    kind = np.dtype(getattr(ml_dtypes, name, name))
    scale = 30 if name == "int8" else 1
    a, b = ((scale * rng.standard_normal(shape)).clip(-128, 127).astype(kind) for shape in shapes)
    out = np.asarray(ef.matmul(ef.tensor(a), ef.tensor(b)))
    exact = a.astype("float64") @ b.astype("float64")
    assert out.shape == exact.shape
    assert out.dtype == kind
    if kind.kind == "i":
        np.testing.assert_array_equal(out, exact.astype("int64").astype("int8"))
    else:
        size = abs(a.astype("float64")) @ abs(b.astype("float64"))
        assert (abs(out.astype("float64") - exact) <= float(ml_dtypes.finfo(kind).eps) * size).all()
