"""Arrays of PyTorch and JAX in and out: addresses, dtypes, gradients, what cannot be written."""

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.errors import CaptureError, DTypeError, GradientError

DTYPES = (
    "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 bfloat16 float32 float64"
    " complex64 complex128"
).split()
SMALL = ["float8_e4m3fn", "float8_e5m2"]


@pytest.fixture
def torch():
    return pytest.importorskip("torch")


@pytest.fixture
def jax():
    return pytest.importorskip("jax")


def address(tensor):
    return tensor.numpy().ctypes.data


@pytest.mark.parametrize("dtype", DTYPES + SMALL)
def test_tensors_of_torch(dtype, torch):
    theirs = torch.tensor([[1, 0, 1], [0, 1, 1]]).to(getattr(torch, dtype))
    for obj in (theirs, theirs.T, theirs[:, 1:], theirs[:, ::2], theirs[0, 0], theirs[:0]):
        expected = obj.to(torch.float32 if theirs.is_floating_point() else obj.dtype).tolist()
        for make in (ef.asarray, ef.from_dlpack, ef.tensor):
            ours = make(obj)
            assert ours.dtype.name == dtype and ours.shape == tuple(obj.shape)
            assert ours.numpy().tolist() == expected
            if obj.numel():
                assert (address(ours) == obj.data_ptr()) is (make is not ef.tensor)


@pytest.mark.parametrize("dtype", DTYPES + SMALL)
def test_tensors_for_torch(dtype, torch):
    ours = ef.tensor(np.array([[1, 0, 1], [0, 1, 1]])).astype(dtype)
    for obj in (ours, ours.T, ours[:, 1:], ours[:0], ours[0, 0]):
        for make in (torch.from_dlpack, torch.as_tensor, torch.asarray):
            theirs = make(obj)
            assert theirs.dtype == getattr(torch, dtype)
            assert theirs.to(torch.complex128).tolist() == obj.astype("complex128").tolist()
            if obj.size and make is torch.from_dlpack:
                assert theirs.data_ptr() == address(obj)
    again = ef.from_dlpack(torch.from_dlpack(ours))
    assert again.dtype == ours.dtype and address(again) == address(ours)


def test_copies_that_are_asked_for(torch):
    theirs = torch.ones(3, dtype=torch.bfloat16)
    assert address(ef.from_dlpack(theirs, copy=True)) != theirs.data_ptr()
    assert address(ef.asarray(theirs, copy=False)) == theirs.data_ptr()
    ours = ef.ones(3, "bfloat16")
    assert torch.from_dlpack(ours, copy=True).data_ptr() != address(ours)
    kept = ef.tensor(theirs)
    seen = ef.asarray(theirs)
    theirs[0] = 5
    assert kept[0] == 1 and seen[0] == 5


@pytest.mark.parametrize("dtype", DTYPES)
def test_arrays_of_jax(dtype, jax):
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)
    try:
        theirs = jax.numpy.array([[1, 0, 1], [0, 1, 1]], dtype)
        for make in (ef.asarray, ef.from_dlpack):
            ours = make(theirs)
            assert ours.dtype.name == dtype
            assert address(ours) == theirs.unsafe_buffer_pointer()
        # JAX does not say that it keeps to read-only memory: it gets a copy.
        for make in (jax.numpy.from_dlpack, jax.dlpack.from_dlpack, jax.numpy.asarray):
            again = make(ours)
            assert again.dtype.name == dtype and again.tolist() == theirs.tolist()
    finally:
        jax.config.update("jax_enable_x64", before)


def test_tensors_that_require_gradients(torch):
    theirs = torch.ones(3, requires_grad=True)
    calls = (ef.tensor, ef.asarray, ef.from_dlpack, ef.Variable, ef.sum, ef.function(lambda x: x))
    for obj in (theirs, theirs * 2, torch.nn.Parameter(torch.ones(2)), theirs.bfloat16()):
        for call in calls:
            with pytest.raises(DTypeError, match=r"try: x\.detach\(\)"):
                call(obj)
        assert address(ef.asarray(obj.detach())) == obj.data_ptr()
    with torch.no_grad():
        assert ef.asarray(theirs * 2).tolist() == [2.0, 2.0, 2.0]
    with pytest.raises(DTypeError) as caught:
        ef.asarray(torch.eye(2).to_sparse())
    assert "try: x.detach" not in str(caught.value)


def test_gradients_and_traces_do_not_leave(torch):
    def through_torch(x):
        return ef.asarray(torch.from_dlpack(x)).sum()

    with pytest.raises(GradientError, match="__dlpack"):
        ef.grad(through_torch)(ef.ones(3))
    with pytest.raises(CaptureError, match="__dlpack"):
        ef.function(through_torch)(ef.ones(3))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_arrays_that_cannot_be_written(dtype, torch):
    array = ef.ones(3, dtype).numpy()
    assert not array.flags.writeable and not np.asarray(ef.ones(3, dtype)).flags.writeable
    assert address(ef.asarray(array)) == array.ctypes.data
    if dtype != "bfloat16":
        assert not np.from_dlpack(ef.asarray(array)).flags.writeable
    variable = ef.Variable(ef.zeros(3, dtype))
    theirs = torch.from_dlpack(variable.value)
    variable.assign_add(ef.ones(3, dtype))
    assert theirs.tolist() == [0, 0, 0] and variable.numpy().tolist() == [1, 1, 1]


def test_memory_outlives_its_first_owner(torch):
    theirs = torch.from_dlpack(ef.arange(1000, dtype="float32").astype("bfloat16"))
    ours = ef.asarray(torch.arange(256).to(torch.bfloat16))
    for _ in range(50):
        ef.zeros(1000).astype("bfloat16")
        torch.zeros(256, dtype=torch.bfloat16)
    assert theirs[:3].tolist() == [0, 1, 2] and ours[:3].tolist() == [0, 1, 2]


def test_functions_with_arguments_of_others(torch, jax):
    double = ef.function(lambda x: x * 2)
    for make in (torch.ones, jax.numpy.ones):
        assert double(make(3)).tolist() == [2.0, 2.0, 2.0]
    assert double(torch.ones(3, dtype=torch.bfloat16)).dtype == ef.bfloat16
    assert (ef.ones(3, "bfloat16") + torch.ones(3, dtype=torch.bfloat16)).dtype == ef.bfloat16
