"""An op states its formula once; which ops have another form, and why."""

import contextlib
import inspect
from functools import partial

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.capture.op_bodies import consists_of
from eagerflow.codegen import generated
from eagerflow.codegen.builder import Builder
from eagerflow.codegen.numpy.pointwise import UpdateKernel, on_numpy, whole
from eagerflow.codegen.numpy.rows import RowKernel
from eagerflow.graph.run import interpret
from eagerflow.op import ops
from eagerflow.ops.family import Rows
from eagerflow.ops.formula import Formula
from tests.contract.cases import main_dtype, samples, shipped

# Beside the body for regions, these have a kernel that is another algorithm, or NumPy's own.
TWICE = {
    "NumPy has it in one step": "all any fmax fmin logaddexp max min prod sum",
    "NumPy has it in two steps": "count_nonzero mean",
    "along any axes at once, as NumPy reduces": "logsumexp std var",
    "either bound may be left out": "clip",
    "NumPy has it in one step but for infinities, which are hardly ever there": "floor_divide",
    "NumPy's way looks for NaN first, which is hardly ever there": "multiply_no_nan",
    "the argument itself": "positive",
}

# Of operands of one dtype.
POINTWISE = [op for op in shipped() if op.scalar is op.kernel and op.uniform]
DERIVED = RowKernel, UpdateKernel


def reached(function):
    """All of ours that a function's code names or has taken with it, and what that reaches."""
    waiting = [function]
    for value in waiting:  # which grows meanwhile
        if isinstance(value, partial):
            waiting += [value.func, *value.args]
        code = getattr(value, "__code__", None)
        own = getattr(value, "__module__", None) or ""
        more = [getattr(value, "__self__", None), getattr(value, "__wrapped__", None)]
        if code is not None and own.startswith(("eagerflow.ops", "eagerflow.primitives")):
            more += [cell.cell_contents for cell in value.__closure__ or ()]
            more += [value.__globals__.get(name) for name in code.co_names]
            modules = filter(inspect.ismodule, more)
            more += [getattr(v, name, None) for v in list(modules) for name in code.co_names]
        elif type(value).__module__.startswith("eagerflow.ops") and hasattr(value, "__dict__"):
            more += vars(value).values()
        waiting += [v for v in more if not any(v is w for w in waiting)]
    return waiting


def is_derived(op):
    """Whether NumPy's form is made of the body."""
    if op.scalar is op.kernel:
        return True
    found = reached(op.overrides.get("numpy", op.kernel))
    return any(isinstance(v, DERIVED) or v is generated.program for v in found)


def test_formulas_stand_once():
    bodies = {op.name: op for op in shipped() if callable(op.scalar) or isinstance(op.scalar, Rows)}
    twice = {name for name, op in bodies.items() if not is_derived(op)}
    assert twice == set(" ".join(TWICE.values()).split())
    assert len(POINTWISE) >= 26


def test_a_kernel_by_hand_is_found():
    assert not is_derived(ops["var"])
    assert is_derived(ops["softmax"])


def arguments(op):
    """Arrays for each sample of one shape, and its attributes."""
    for sample in samples(op, main_dtype(op)):
        arrays = np.broadcast_arrays(*(np.asarray(a, main_dtype(op)) for a in sample.args))
        yield arrays, dict(op.attributes, **sample.attributes)


@pytest.mark.parametrize("op", POINTWISE, ids=lambda op: op.name)
def test_generated_programs_match_the_kernel_body(op):
    for arrays, attributes in arguments(op):
        with np.errstate(all="ignore"):
            wanted = whole(op.kernel)(np, *arrays, **attributes)
            flat = [np.ascontiguousarray(a).reshape(-1) for a in arrays]
            before = [a.copy() for a in flat]
            out = np.full(flat[0].shape, np.nan, flat[0].dtype)
            operands = tuple((a.dtype.name, "n") for a in flat)
            region = generated.region(op.kernel, "n", operands, tuple(attributes.items()))
            generated.program(region)(*flat, out)
        near = 4 * np.finfo(out.dtype).eps
        np.testing.assert_allclose(out.reshape(wanted.shape), wanted, rtol=near, atol=near)
        assert all(map(np.array_equal, flat, before))


@pytest.mark.parametrize("size", [0, 1, 1_000, 5_000, 70_000])
def test_all_sizes_and_layouts(size):
    op = ops["silu_gradient"]
    kernel, general = on_numpy(op.kernel), whole(op.kernel)
    x, g = np.random.default_rng(0).standard_normal((2, 2 * size)).astype("float32")
    for a, b in ((x, g), (x[::2], g[::2]), (x[::-1], g), (x.reshape(2, -1).T, g.reshape(2, -1).T)):
        with np.errstate(all="ignore"):
            np.testing.assert_allclose(kernel(np, a, b), general(np, a, b), rtol=1e-5, atol=1e-6)


FORMULAS = [
    op
    for op in shipped()
    if type(getattr(op.scalar, "body", op.scalar)) is Formula and main_dtype(op).kind == "f"
]


@pytest.mark.parametrize("op", FORMULAS, ids=lambda op: op.name)
def test_formulas_are_graphs_of_other_ops(op):
    """Exports take the body of an op where nothing else is known."""
    sample = next(s for s in samples(op, main_dtype(op)) if getattr(s.args[0], "size", 0))
    specs = [ef.TensorSpec(x.shape, x.dtype.name) for x in sample.args]
    graph = ef.capture.trace(lambda *xs: op.call(*xs, **sample.attributes), *specs)
    (node,) = (n for n in graph.nodes if n.op is op)
    body = consists_of(node)
    assert op not in [n.op for n in body.nodes]
    wanted = op.call(*sample.args, **sample.attributes)
    found = interpret(body, [ef.tensor(x) for x in sample.args])
    for y, z in zip(found, wanted if isinstance(wanted, tuple) else (wanted,), strict=True):
        np.testing.assert_allclose(y.numpy(), z.numpy(), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("taped", [False, True])
def test_a_signal_handler_that_computes_inside_a_formula_gets_numbers(taped):
    met = []

    def formula(x, /):
        met.append(ef.exp(ef.tensor([0.0, 1.0])).numpy())  # what a handler would do here
        return x * 2

    b = Builder("double", "n")
    with ef.GradientTape() if taped else contextlib.nullcontext():
        b.output("y", Formula(formula)(b, b.input("x", "float32", "n")))
    assert np.array_equal(met[0], np.exp(np.array([0, 1], "float32")))
    assert [s.instruction for s in b.region().body] == ["multiply"]
