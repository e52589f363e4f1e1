"""Every op's samples on a third-party device, compared with NumPy.

Kernels that pass lean on nothing but the Array API standard and the few extras that stand in
``tests/backends/strict.py``, so they run on CuPy, too.
"""

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.op import ops
from tests.contract.cases import CLOSE, about, dtypes_of, main_dtype, samples, shipped, spread
from tests.contract.composed import ALL
from tests.internals import array_of

# Ops that cannot run on array-api-strict although they do on NumPy and CuPy, and why.
CANNOT = dict.fromkeys(
    ("view", "complex", "polar", "sph_harm_y"), "the standard has no views of bits"
)
STRICT_DTYPES = [np.dtype(name) for name in ("float64", "float32", "int32", "complex128")]
PER_DTYPE = 12


def on(device, x):
    if isinstance(x, np.ndarray | np.generic):
        return ef.asarray(x, device=device)
    return [on(device, part) for part in x] if isinstance(x, list | tuple) else x


def in_standard(sample):
    """Whether the sample asks for no dtype that array-api-strict lacks."""
    given = [sample.attributes.get("dtype"), *(getattr(x, "dtype", None) for x in sample.args)]
    return not any(dtype in ("bfloat16", "float16") for dtype in given)


def called(op, sample, device):
    attributes = dict(sample.attributes)
    if "device" in op.attributes and op.name != "to_device":
        attributes["device"] = device
    out = op.call(*(on(device, x) for x in sample.args), **attributes)
    return out if isinstance(out, tuple) else (out,)


def compare(op, sample, device):
    with about(op, sample):
        expected = called(op, sample, "cpu:0")
        found = called(op, sample, device)
        for want, got in zip(expected, found, strict=True):
            assert (got.dtype, got.shape) == (want.dtype, want.shape)
            if op.name != "to_device":
                assert str(got.device) == device
            tolerance = CLOSE.get(ef.dtypes.real_dtype(want.dtype).name, 0)
            np.testing.assert_allclose(
                got.numpy(), want.numpy(), rtol=tolerance, atol=tolerance, equal_nan=True
            )


@pytest.mark.sampled(6)
@pytest.mark.parametrize("op", shipped(), ids=lambda op: op.name)
def test_op_needs_only_the_standard(op):
    if op.name in CANNOT:
        pytest.skip(CANNOT[op.name])
    # Arithmetic of bools is not in the standard, so these only stand for ops of nothing else.
    for dtype in dtypes_of(op, STRICT_DTYPES) or [main_dtype(op)]:
        for sample in spread(filter(in_standard, samples(op, dtype)), PER_DTYPE):
            compare(op, sample, "strict:0")


@pytest.mark.sampled(3)
@pytest.mark.parametrize("op", shipped(), ids=lambda op: op.name)
def test_result_stays_on_the_operands_device(op):
    if op.name in CANNOT:
        pytest.skip(CANNOT[op.name])
    (dtype, *_) = dtypes_of(op, STRICT_DTYPES) or [main_dtype(op)]
    compare(op, samples(op, dtype)[0], "strict:2")


def gradients(function, sample, device):
    """The results for a sample on a device, and the gradients of their sum."""
    args = [on(device, x) for x in sample.args]
    given = [x for x in ef.tree.flatten(args)[0] if isinstance(x, ef.Tensor)]
    tensors = [x for x in given if ef.dtypes.is_inexact(x.dtype)]
    with ef.GradientTape() as tape:
        tape.watch(tensors)
        found = [
            y
            for y in ef.tree.flatten(function.call(*args, **sample.attributes))[0]
            if isinstance(y, ef.Tensor)
        ]
        loss = sum(ef.sum(ef.real(y)) for y in found if ef.dtypes.is_inexact(y.dtype))
    if not function.differentiable or not isinstance(loss, ef.Tensor):
        return found
    return [*found, *tape.gradient(loss, tensors, unconnected="zero")]


@pytest.mark.sampled(9)
@pytest.mark.parametrize(
    "function", ALL, ids=lambda f: f"{f.call.__module__.split('.')[-1]}.{f.name}"
)
def test_composed_function_stays_on_the_operands_device(function):
    if function.name in CANNOT:
        pytest.skip(CANNOT[function.name])
    (dtype, *_) = dtypes_of(function, STRICT_DTYPES) or [main_dtype(function)]
    for sample in spread(filter(in_standard, samples(function, dtype)), 8):
        with about(function, sample):
            expected, found = (gradients(function, sample, d) for d in ("cpu:0", "strict:2"))
            for want, got in zip(expected, found, strict=True):
                assert str(got.device) == "strict:2" or not any(map(np.ndim, sample.args))
                np.testing.assert_allclose(
                    got.numpy(), want.numpy(), rtol=1e-4, atol=1e-5, equal_nan=True
                )


def test_the_list_of_exceptions_names_ops():
    assert set(CANNOT) <= {*ops, *(function.name for function in ALL)}


def test_gradient_on_a_third_party_device():
    x = ef.tensor([1.0, -2.0, 3.0], device="strict:1")
    with ef.GradientTape() as tape:
        tape.watch(x)
        loss = (x * x * 2 + x).sum()
    g = tape.gradient(loss, x)
    assert str(g.device) == "strict:1"
    np.testing.assert_array_equal(g.numpy(), [5, -7, 13])


def test_gradient_crosses_devices():
    x = ef.tensor([1.0, 2.0], device="strict:1")
    with ef.GradientTape() as tape:
        tape.watch(x)
        y = (x * 3).to("cpu:0")
        loss = (y * y).sum()
    g = tape.gradient(loss, x)
    assert str(loss.device) == "cpu:0"
    assert str(g.device) == "strict:1"
    np.testing.assert_array_equal(g.numpy(), [18, 36])


def test_variable_lives_on_its_device():
    w = ef.Variable([1.0, 2.0], device="strict:1", name="w")
    w.assign([3.0, 4.0])
    assert str(w.device) == str(w.value.device) == "strict:1"
    assert repr(w) == "Variable([3., 4.], name='w', float32, strict:1)"


def test_numbers_and_arrays_join_a_tensor_on_its_device():
    x = ef.tensor([1.0, 2.0], device="strict:1")
    assert str((x + 1).device) == str((2 * x).device) == "strict:1"
    y = x + np.array([1, 2], np.float32)
    assert str(y.device) == "strict:1"
    np.testing.assert_array_equal(y.numpy(), [2, 4])


def test_foreign_array_stays_where_it_is():
    x = ef.tensor([1.0, 2.0], device="strict:1")
    again = ef.asarray(array_of(x))
    assert str(again.device) == "strict:1"
    assert array_of(again) is array_of(x)
    assert array_of(ef.tensor(array_of(x))) is not array_of(x)


def test_copies_and_pickles_stay_on_the_device():
    import pickle

    x = ef.tensor([1.0, 2.0], device="strict:1")
    again = pickle.loads(pickle.dumps(x))
    assert str(again.device) == "strict:1"
    np.testing.assert_array_equal(again.numpy(), x.numpy())


def test_numpy_sees_a_read_only_copy():
    x = ef.tensor([1.0, 2.0], device="strict:1")
    view = np.asarray(x)
    with pytest.raises(ValueError, match="read-only"):
        view[0] = 9
    assert x.tolist() == [1.0, 2.0]
