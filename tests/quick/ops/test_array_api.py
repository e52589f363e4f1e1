"""The Array API standard, 2025.12: its names, its questions, and NumPy's methods on tensors."""

import functools
import itertools

import array_api_strict
import ml_dtypes
import numpy as np
import pytest

import eagerflow as ef
from eagerflow.errors import ArgumentError, DeviceError, DTypeError, ShapeError

strict = array_api_strict

EXCEPTIONS = {
    "ArrayAPIStrictFlags": "array_api_strict's own",
    "get_array_api_strict_flags": "array_api_strict's own",
    "reset_array_api_strict_flags": "array_api_strict's own",
    "set_array_api_strict_flags": "array_api_strict's own",
}
NAMES = sorted(set(strict.__all__) - set(EXCEPTIONS))
NUMBERS = (
    "int8 int16 int32 int64 uint8 uint16 uint32 uint64 float32 float64 complex64 complex128"
).split()
DTYPES = ["bool", *NUMBERS]
ALL_DTYPES = [*DTYPES, "float16", "bfloat16"]
FLOAT8 = ["float8_e4m3fn", "float8_e5m2"]
KINDS = (
    "bool",
    "signed integer",
    "unsigned integer",
    "integral",
    "real floating",
    "complex floating",
    "numeric",
)


def same(found, expected, rtol=1e-6):
    """A tensor of NumPy's values; in the promotion table float32 and int64 are the defaults."""
    assert isinstance(found, ef.Tensor)
    assert found.shape == np.shape(expected)
    np.testing.assert_allclose(found.numpy(), expected, rtol=rtol)


# Names ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_the_name_is_there(name):
    assert hasattr(ef, name)


@pytest.mark.parametrize("extension", ["fft", "linalg"])
def test_the_names_of_extensions_are_there(extension):
    ours, theirs = getattr(ef, extension), getattr(strict, extension)
    assert [name for name in theirs.__all__ if not hasattr(ours, name)] == []


def test_exceptions_are_still_exceptions():
    assert [name for name in EXCEPTIONS if hasattr(ef, name)] == []


def test_tensors_have_all_attributes_of_the_standard():
    own = {name for name in dir(strict.asarray(1)) if not name.startswith("_")}
    special = {name for name in vars(type(strict.asarray(1))) if name.startswith("__")}
    # Python falls back on the operators that make a new tensor.
    changing = {name for name in special if f"__{name.removeprefix('__i')}" in special}
    assert "__iadd__" in changing and "__add__" not in changing
    missing = {name for name in own | special - changing if not hasattr(ef.Tensor, name)}
    assert missing <= {
        "__buffer__",
        "__annotations__",
        "__static_attributes__",
        "__firstlineno__",
        "__annotate_func__",
    }  # Python's own


def test_pow_is_power():
    assert ef.pow is ef.power
    assert ef.tensor(1.0).__array_namespace__().pow(2.0, 3.0).item() == 8.0


def test_version():
    assert ef.__array_api_version__ == "2025.12"
    assert ef.tensor(1.0).__array_namespace__(api_version=ef.__array_api_version__) is ef


def test_several_tensors_come_as_tuples():
    x, y = ef.arange(3), ef.ones((2, 1))
    assert isinstance(ef.broadcast_arrays(x, y), tuple)
    assert isinstance(ef.broadcast_arrays(), tuple)
    assert isinstance(ef.meshgrid(x, x), tuple)
    assert isinstance(ef.meshgrid(), tuple)
    assert isinstance(ef.unstack(y), tuple)


# dtypes -----------------------------------------------------------------------------------------


def name_of(dtype):
    """The name of a dtype of the strict library."""
    return str(dtype).rpartition(".")[2]


def standard_type(a, b):
    """The name of the dtype in which two meet, None where the standard leaves that open."""
    try:
        return name_of(strict.result_type(getattr(strict, a), getattr(strict, b)))
    except TypeError:
        return None


@pytest.mark.parametrize("a", DTYPES)
def test_result_type_where_the_standard_says_it(a):
    pairs = [(b, standard_type(a, b)) for b in DTYPES]
    assert any(expected for _, expected in pairs)
    for b, expected in pairs:
        if expected:
            assert ef.result_type(a, getattr(ef, b)).name == expected


@pytest.mark.parametrize("a", ALL_DTYPES)
def test_result_type_matches_the_dtype_of_ops(a):
    x = ef.ones((2,), a)
    others = [ef.ones((), b) for b in ALL_DTYPES]
    for other in [*others, True, 2, 2.5, 2j, np.float64(1), np.arange(2), ef.Variable(1.0)]:
        made = ef.where(ef.tensor(True), x, other).dtype
        assert ef.result_type(x, other) == ef.result_type(other, x) == made


def test_result_type_in_any_order():
    for three in itertools.combinations(ALL_DTYPES, 3):
        assert len({ef.result_type(*order) for order in itertools.permutations(three)}) == 1
    assert ef.result_type(1, 2.5) == ef.float32
    assert ef.result_type(2.5, 1, ef.float16) == ef.float16
    assert ef.result_type("float8_e5m2", "float8_e5m2") == ef.float8_e5m2
    assert np.result_type(ef.ones((1,)), np.float64) == ef.float64


def test_can_cast():
    for a, b in itertools.product(DTYPES, DTYPES):
        if standard_type(a, b):
            expected = strict.can_cast(getattr(strict, a), getattr(strict, b))
            assert ef.can_cast(a, b) == ef.can_cast(ef.zeros((1,), a), b) == expected
    assert ef.can_cast("bfloat16", "float32") and not ef.can_cast("bfloat16", "float16")
    assert ef.can_cast("float8_e5m2", "float8_e5m2")
    assert not any(ef.can_cast(a, b) or ef.can_cast(b, a) for a in FLOAT8 for b in ALL_DTYPES)


@pytest.mark.parametrize("name", DTYPES)
def test_isdtype(name):
    dtype, theirs = getattr(ef, name), getattr(strict, name)
    for kind in [*KINDS, *itertools.combinations(KINDS, 2)]:
        assert ef.isdtype(dtype, kind) is strict.isdtype(theirs, kind)
    for other in DTYPES:
        assert ef.isdtype(dtype, getattr(ef, other)) is (name == other)
    assert ef.isdtype(name, ("bool", dtype))
    assert not ef.isdtype(dtype, ())


def test_isdtype_of_other_floats():
    for name in ("float16", "bfloat16"):
        assert ef.isdtype(name, "real floating") and ef.isdtype(name, "numeric")
    for name in FLOAT8:
        assert not ef.isdtype(name, KINDS) and ef.isdtype(name, getattr(ef, name))


@pytest.mark.parametrize("name", ["float32", "float64", "complex64", "complex128"])
def test_finfo(name):
    found, expected = ef.finfo(getattr(ef, name)), strict.finfo(getattr(strict, name))
    for fact in ("bits", "eps", "max", "min", "smallest_normal"):
        assert getattr(found, fact) == getattr(expected, fact)
        assert type(getattr(found, fact)) is (int if fact == "bits" else float)
    assert found.dtype.name == name_of(expected.dtype)
    assert ef.finfo(name) == ef.finfo(ef.ones((2,), name)) == found


@pytest.mark.parametrize("name", ["float16", "bfloat16", *FLOAT8])
def test_finfo_of_small_floats(name):
    found, dtype = ef.finfo(name), getattr(ef, name)
    assert found.dtype == dtype and found.bits == dtype.itemsize * 8
    assert found.tiny == found.smallest_normal == float(ml_dtypes.finfo(dtype).smallest_normal)
    one, least = dtype.type(1), dtype.type(found.smallest_subnormal)
    assert float(one + dtype.type(found.eps)) - 1 == found.eps
    assert float(dtype.type(1 + found.eps / 4)) == 1
    assert float(least) > 0 and float(dtype.type(found.smallest_subnormal / 4)) == 0
    assert float(dtype.type(found.max)) == found.max == -found.min


@pytest.mark.parametrize("name", [name for name in NUMBERS if "int" in name])
def test_iinfo(name):
    found, expected = ef.iinfo(getattr(ef, name)), strict.iinfo(getattr(strict, name))
    for fact in ("bits", "max", "min"):
        assert getattr(found, fact) == getattr(expected, fact)
        assert type(getattr(found, fact)) is int
    assert ef.iinfo(ef.zeros((1,), name)) == found and found.dtype.name == name


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: ef.result_type(), ArgumentError, "nothing to find a dtype for"),
        (lambda: ef.result_type("float32", "words"), DTypeError, r"dtypes\[1\]: 'words' is not"),
        (lambda: ef.result_type([1, 2]), DTypeError, "is not a dtype"),
        (lambda: ef.result_type("float8_e5m2", "float32"), DTypeError, "no common dtype"),
        (lambda: ef.can_cast("float32", None), DTypeError, "can_cast: to: None is not"),
        (lambda: ef.can_cast(1.0, "float32"), DTypeError, "can_cast: from_"),
        (lambda: ef.isdtype("float32", "floating"), ArgumentError, "'floating' is not a kind"),
        (lambda: ef.isdtype("float32", ("bool", 3)), ArgumentError, "3 is not a kind"),
        (lambda: ef.isdtype(ef.ones((2,)), "bool"), DTypeError, "isdtype: dtype"),
        (lambda: ef.finfo("int8"), DTypeError, "ef.iinfo is for integers"),
        (lambda: ef.finfo(None), DTypeError, "finfo: type: None is not"),
        (lambda: ef.iinfo("bool"), DTypeError, "bool is not an integer dtype"),
    ],
)
def test_questions_that_cannot_be_answered(call, error, words):
    with pytest.raises(error, match=words):
        call()


# The library ------------------------------------------------------------------------------------


def test_namespace_info():
    info, theirs = ef.__array_namespace_info__(), strict.__array_namespace_info__()
    assert info.capabilities() == theirs.capabilities()
    assert list(info.dtypes()) == sorted(info.dtypes(), key=DTYPES.index)
    assert set(info.dtypes()) == set(theirs.dtypes())
    for kind in [*KINDS, ("bool", "integral")]:
        assert set(info.dtypes(kind=kind)) == set(theirs.dtypes(kind=kind))
    assert all(dtype == getattr(ef, name) for name, dtype in info.dtypes().items())
    assert info.devices() == ef.devices()
    assert info.default_device() == ef.zeros((1,)).device
    with pytest.raises(ArgumentError, match="not a kind"):
        info.dtypes(kind="words")
    with pytest.raises(DeviceError, match="no device type"):
        info.dtypes(device="moon")


def test_namespace_info_names_the_real_defaults():
    found = ef.__array_namespace_info__().default_dtypes(device="cpu:0")
    assert set(found) == set(strict.__array_namespace_info__().default_dtypes())
    assert found["real floating"] == ef.asarray(1.0).dtype == ef.zeros((1,)).dtype
    assert found["complex floating"] == ef.asarray(1j).dtype
    assert found["integral"] == ef.asarray(1).dtype == ef.arange(3).dtype
    assert found["indexing"] == ef.argmax(ef.zeros((3,))).dtype


def test_namespace_info_follows_the_device():
    with ef.device("cpu:0") as place:
        assert ef.__array_namespace_info__().default_device() is place


# diff -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [0, 1, 2, 3, 9])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_diff(axis, n):
    x = np.random.default_rng(0).standard_normal((4, 5))
    same(ef.diff(ef.tensor(x), axis=axis, n=n), np.diff(x, axis=axis, n=n))
    same(
        ef.diff(ef.tensor(x), axis=axis, n=n),
        np.asarray(strict.diff(strict.asarray(x), axis=axis, n=n)),
    )


def test_diff_with_ends():
    x = np.arange(12.0).reshape(3, 4) ** 2
    for first, last in itertools.product([None, 0.0, x[:, :2]], [None, 1.0, x[:, 1:2]]):
        ends = {"prepend": first, "append": last}
        given = {name: value for name, value in ends.items() if value is not None}
        for n in (1, 2):
            same(ef.diff(ef.tensor(x), n=n, **ends), np.diff(x, n=n, **given))
    assert ef.diff(ef.tensor([1, 2], dtype="int8"), prepend=0).dtype == ef.int8
    assert ef.diff(ef.tensor([1, 2], dtype="bfloat16"), append=0.5).dtype == ef.bfloat16
    assert ef.diff([1, 2], append=0.5).dtype == ef.float32


def test_diff_of_bools_and_nothing():
    x = np.array([True, True, False, True])
    assert ef.diff(ef.tensor(x), n=2).tolist() == np.diff(x, n=2).tolist()
    assert ef.diff(ef.zeros((0, 2)), axis=0).shape == (0, 2)
    assert ef.diff(ef.zeros((3,)), n=10**12).shape == (0,)


def test_diff_carries_gradients():
    x = ef.tensor(np.random.default_rng(1).standard_normal((3, 5)), "float64")
    rows = ef.stack([ef.diff(row, n=2, prepend=0.0) for row in x])
    same(ef.vmap(lambda row: ef.diff(row, n=2, prepend=0.0))(x), rows.numpy())
    ef.testing.check_gradients(lambda x: ef.diff(x, n=2, append=1.0), (x,))
    _, tangent = ef.jvp(ef.diff, (x,), (x * 2,))
    same(tangent, np.diff(x.numpy() * 2))


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"n": -1}, ArgumentError, "diff: n: -1 is not"),
        ({"n": True}, ArgumentError, "diff: n: True is not"),
        ({"axis": 2}, ShapeError, "diff: axis: axis 2 does not exist"),
        ({"prepend": np.ones((3, 1))}, ShapeError, "diff: prepend: the shapes differ"),
        ({"append": np.ones(2)}, ShapeError, "diff: append: the shapes differ"),
        ({"append": "words"}, DTypeError, "str"),
    ],
)
def test_diff_refuses(arguments, error, words):
    with pytest.raises(error, match=words):
        ef.diff(ef.ones((2, 3)), **arguments)


# Methods ----------------------------------------------------------------------------------------

CUBE = np.random.default_rng(2).standard_normal((3, 4, 5)).astype(np.float32)
WHOLE = np.array([[5, -3, 9], [2, 0, -7]])
METHODS = [
    ("ravel", CUBE, (), {}),
    ("ravel", CUBE[0, 0, 0], (), {}),
    ("clip", CUBE, (-0.5, 0.5), {}),
    ("clip", CUBE, (), {"min": 0.0}),
    ("clip", CUBE, (), {"max": 0.0}),
    ("round", CUBE * 100, (), {}),
    ("round", CUBE * 100, (2,), {}),
    ("round", CUBE * 100, (), {"decimals": -1}),
    ("round", WHOLE, (3,), {}),
    ("conj", CUBE * 1j, (), {}),
    ("conjugate", CUBE * (1 + 2j), (), {}),
    ("cumsum", CUBE, (), {}),
    ("cumsum", CUBE[0, 0, 0], (), {}),
    ("cumsum", CUBE, (1,), {}),
    ("cumsum", WHOLE, (), {"axis": -1, "dtype": "float64"}),
    ("cumprod", CUBE, (), {}),
    ("cumprod", CUBE, (-1,), {}),
    ("cumprod", WHOLE, (), {"axis": 0}),
    ("dot", CUBE, (np.float32(2.5),), {}),
    ("dot", CUBE, (np.arange(5.0, dtype=np.float32),), {}),
    ("dot", CUBE, (CUBE[0].T,), {}),
    ("dot", CUBE, (CUBE.transpose(0, 2, 1),), {}),
    ("dot", CUBE[0, 0], (CUBE[1, 1],), {}),
    ("dot", CUBE[0, 0], (CUBE.transpose(0, 2, 1),), {}),
    ("dot", CUBE[0, 0, 0], (CUBE,), {}),
    ("argsort", CUBE, (), {}),
    ("argsort", CUBE, (0,), {}),
    ("searchsorted", np.arange(5.0), (CUBE,), {}),
    ("searchsorted", np.arange(5.0), (np.arange(4.0),), {"side": "right"}),
    ("searchsorted", WHOLE[0], (WHOLE,), {"sorter": np.argsort(WHOLE[0])}),
    ("diagonal", CUBE, (), {}),
    ("diagonal", CUBE, (1,), {}),
    ("diagonal", CUBE, (), {"offset": -1, "axis1": 2, "axis2": 0}),
    ("trace", CUBE, (), {}),
    ("trace", WHOLE, (1,), {}),
    ("trace", CUBE, (), {"axis1": 1, "axis2": 2, "dtype": "float64"}),
    ("repeat", CUBE, (2,), {"axis": 1}),
    ("take", CUBE, (np.array([0, 2]),), {"axis": 1}),
    ("copy", CUBE, (), {}),
]


@pytest.mark.parametrize("make", [ef.tensor, ef.Variable])
@pytest.mark.parametrize(("name", "x", "args", "options"), METHODS)
def test_methods(make, name, x, args, options):
    found = getattr(make(x), name)(*args, **options)
    expected = getattr(np.asarray(x), name)(*args, **options)
    same(found, expected, rtol=2e-5)
    assert found.dtype == np.asarray(expected).dtype


@pytest.mark.parametrize("make", [ef.tensor, ef.Variable])
def test_methods_that_differ(make):
    x = make(CUBE)
    same(x.abs(), np.abs(CUBE))
    same(x.sort(), np.sort(CUBE))  # a new tensor: NumPy sorts in place
    same(x.sort(axis=0), np.sort(CUBE, axis=0))
    same(x.real(), CUBE)  # a method: NumPy has a property
    for found, expected in zip(make(WHOLE).nonzero(), WHOLE.nonzero(), strict=True):
        same(found, expected)
    assert x.itemsize == 4 and not hasattr(x, "fill") and not hasattr(x, "put")
    assert x.dot(2.5).dtype == ef.float32  # Python numbers do not widen a tensor
    assert type(x.copy()) is ef.Tensor


def test_methods_carry_gradients():
    x = ef.tensor(np.random.default_rng(3).standard_normal((3, 3)), "float64")
    for f in (
        lambda x: x.dot(x.T).trace(),
        lambda x: x.cumsum(axis=1).dot(x),
        lambda x: x.cumprod().sort(),
        lambda x: x.ravel().clip(-0.1, 0.1) + x.copy().abs().ravel(),
        lambda x: x.diagonal(1),
    ):
        ef.testing.check_gradients(f, (x,))


@pytest.mark.parametrize("decimals", [1.5, True, 400, -400])
def test_round_refuses(decimals):
    with pytest.raises(ArgumentError, match="not a number of decimals"):
        ef.ones((2,)).round(decimals)
    with pytest.raises(ArgumentError, match="from 0 on for int64"):
        ef.tensor([15]).round(-1)


@pytest.mark.parametrize("make", [ef.tensor, ef.Variable])
def test_moving(make):
    x = make([1.0, 2.0])
    for place in ("cpu", "cpu:0", x.device):
        for move in (x.to, x.to_device, functools.partial(x.to_device, stream=None)):
            same(move(place), [1.0, 2.0])
    with pytest.raises(DeviceError, match="no device type 'moon'"):
        x.to_device("moon")
    with pytest.raises(DeviceError, match="stream 1 cannot be chosen"):
        x.to_device("cpu", stream=1)
    same(ef.grad(lambda x: (x.to_device("cpu:0") ** 2).sum())(ef.tensor([1.0, 2.0])), [2.0, 4.0])


# Keywords ---------------------------------------------------------------------------------------


def test_keywords_of_data():
    assert ef.clip(ef.tensor([1, 5]), min=2, max=3).tolist() == [2, 3]
    x = ef.tensor([3, 1, 2])
    assert ef.searchsorted(x, ef.tensor([2]), sorter=ef.argsort(x)).tolist() == [1]


def test_copy_argument_gives_equal_results():
    x = ef.tensor([1.0, 2.0])
    for copy in (True, False, None):
        same(ef.reshape(x, (2, 1), copy=copy), [[1.0], [2.0]])
        same(ef.astype(x, "int32", copy=copy), [1, 2])


def test_devices_of_results():
    with ef.device("cpu:0"):
        x = ef.tensor([1.0, 2.0])
    calls = [
        lambda device: ef.zeros_like(x, device=device),
        lambda device: ef.ones_like(x, dtype="int8", device=device),
        lambda device: ef.empty_like(x, device=device),
        lambda device: ef.full_like(x, 3.0, device=device),
        lambda device: ef.astype(x, ef.float64, device=device),
    ]
    for call in calls:
        for device in ("cpu:0", x.device, None):
            assert call(device).device == x.device and call(device).shape == (2,)
        with pytest.raises(DeviceError, match="no device type 'moon'"):
            call("moon")
    gradient = ef.grad(lambda x: ef.astype(x, "float64", device="cpu:0").sum())(x)
    assert gradient.dtype == ef.float32
    same(gradient, [1.0, 1.0])
    graph = ef.capture.trace(
        lambda x: ef.zeros_like(x, device="cpu:0"), ef.TensorSpec(("n",), "float32")
    )
    assert graph(x).shape == (2,)


def test_keywords_that_mean_nothing_say_so():
    with pytest.raises(ArgumentError, match="reshape: order: 'F' is not taken"):
        ef.reshape(ef.ones((2, 3)), (6,), order="F")
    with pytest.raises(ArgumentError, match="astype: device_name: there is no such argument"):
        ef.astype(ef.ones(2), "int8", device_name="cpu")
    with pytest.raises(ArgumentError, match="squeeze: device"):
        ef.squeeze(ef.ones((1, 2)), 0, device="cpu:0")
