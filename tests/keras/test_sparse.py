"""Sparse tensors: results equal those of dense tensors."""

import doctest
import operator

import keras
import numpy as np
import pytest
import scipy.sparse
from keras import ops

import eagerflow as ef
from eagerflow.errors import CaptureError, DTypeError, IndexRangeError, ShapeError
from eagerflow.keras import SparseTensor
from eagerflow.keras import sparse as sparse_module
from eagerflow.keras.sparse import is_sparse

SHAPE = (4, 3, 5)


def stored(shape=SHAPE, seed=0, dtype="float32", repeated=True):
    """A sparse tensor, some of whose places are stored twice, and the array that it stands for."""
    random = np.random.default_rng(seed)
    size = int(np.prod(shape))
    places = random.choice(size, size // 3, replace=False)
    if repeated:
        places = np.concatenate([places, places[::2]])
    values = random.uniform(0.1, 0.4, len(places)).astype(dtype)
    if dtype.startswith("int"):
        values = random.integers(1, 9, len(places)).astype(dtype)
    indices = np.stack(np.unravel_index(places, shape), axis=1)
    whole = np.zeros(shape, dtype)
    np.add.at(whole, tuple(indices.T), values)
    return SparseTensor(values, indices, shape), whole


def slices(seed=0):
    """Two slices at one index of the first axis and one elsewhere, and their array."""
    values = np.random.default_rng(seed).uniform(0.1, 0.4, (3, *SHAPE[1:])).astype("float32")
    whole = np.zeros(SHAPE, "float32")
    np.add.at(whole, [2, 0, 2], values)
    return ef.IndexedSlices(values, [2, 0, 2], SHAPE), whole


def same(found, expected, rtol=2e-6):
    """Whether a result is that of whole arrays, in shape, dtype and values."""
    array = ops.convert_to_numpy(found)
    assert array.shape == expected.shape and tuple(found.shape) == expected.shape
    np.testing.assert_allclose(array, expected, rtol=rtol, atol=1e-6)


# The class ----------------------------------------------------------------------------------------


def test_sparse_values_indices_and_conversions():
    x = SparseTensor([1.0, 2.0, 3.0], [[0, 0], [1, 2], [1, 2]], (2, 3))
    assert x.dtype == "float32" and x.ndim == 2 and x.shape == (2, 3)
    assert x.indices.tolist() == [[0, 0], [1, 2], [1, 2]]
    assert x.coalesced().values.tolist() == [1.0, 5.0]
    assert repr(x) == "SparseTensor(3 values, shape=(2, 3), float32, cpu:0)"
    same(x, np.array([[1, 0, 0], [0, 0, 5]], "float32"))
    assert x[1, 1:].tolist() == [0.0, 5.0] and [row.tolist()[2] for row in x] == [0.0, 5.0]


def test_from_dense_and_scipy():
    _, whole = stored((6, 7))
    matrix = scipy.sparse.csr_array(whole)
    for x in (SparseTensor.from_dense(whole), SparseTensor.from_scipy(matrix)):
        assert x.values.shape == (np.count_nonzero(whole),)
        same(x, whole)
    same(ops.convert_to_tensor(scipy.sparse.csc_matrix(whole)), whole)


def test_slices_are_taken_apart_into_numbers():
    x, whole = slices()
    x = ops.convert_to_tensor(x)
    assert x.values.shape == (3, *SHAPE[1:]) and x.elements().values.ndim == 1
    same(x.elements(), whole)


@pytest.mark.parametrize(
    ("values", "indices", "error", "text"),
    [
        ([1.0], [[0.0, 1.0]], DTypeError, "float32 values cannot be indices"),
        ([1.0, 2.0], [[0, 1]], ShapeError, "values and indices"),
        ([1.0], [0, 1], ShapeError, "do not fit a tensor of shape"),
        ([1.0], [[0, 1, 2]], ShapeError, "do not fit a tensor of shape"),
        ([1.0], [[0, 3]], IndexRangeError, "index 3"),
        ([1.0], [[-3, 0]], IndexRangeError, "index -3"),
    ],
)
def test_values_and_indices_that_mismatch_are_refused(values, indices, error, text):
    with pytest.raises(error, match=text):
        SparseTensor(values, indices, (2, 3))


OPERATORS = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b,
}
BESIDE = [
    np.full(SHAPE, 2.0, "float32"), np.arange(1, 6, dtype="float32"), np.float32(3), 2.0,
    [[1.0], [2.0], [3.0]],
]  # fmt: skip


@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize("other", BESIDE, ids=["whole", "row", "scalar", "number", "list"])
def test_operators_with_dense_operands(name, other):
    x, whole = stored()
    with np.errstate(all="ignore"):
        same(OPERATORS[name](x, other), np.asarray(OPERATORS[name](whole, other)))
        found = OPERATORS[name](other, x)
        expected = np.asarray(OPERATORS[name](other, whole))
    same(found, expected)
    assert is_sparse(found) == (name == "*")


@pytest.mark.parametrize("name", OPERATORS)
def test_operators_of_two_sparse_tensors(name):
    x, whole = stored()
    y, other = stored(seed=1)
    with np.errstate(all="ignore"):
        same(OPERATORS[name](x, y), OPERATORS[name](whole, other))
    assert is_sparse(OPERATORS[name](x, y)) == (name != "/")
    same(-x, -whole)
    g, array = slices()
    same(x + g, whole + array)
    same(x * g, whole * array)
    same(x**2, whole**2)
    same(x**0, whole**0)
    for compare in (operator.gt, operator.ge, operator.lt, operator.le):
        same(compare(x, y), compare(whole, other))
        same(compare(0.3, x), compare(np.float32(0.3), whole))


# Keras's functions --------------------------------------------------------------------------------

KEEP = (
    "abs arcsin arcsinh arctan arctanh ceil conj copy deg2rad expm1 floor imag isinf isnan "
    "log1p negative real round sign signbit sin sinh sqrt square tan tanh trunc"
).split()
FILL = "arccos cos exp isfinite log10 reciprocal relu sigmoid softmax cumsum max argmax".split()


@pytest.mark.parametrize("make", [stored, slices])
@pytest.mark.parametrize("name", KEEP)
def test_functions_that_leave_zeros(name, make):
    x, whole = make()
    found = getattr(ops, name)(x)
    assert is_sparse(found)
    same(found, ops.convert_to_numpy(getattr(ops, name)(ops.convert_to_tensor(whole))))


@pytest.mark.parametrize("name", FILL)
def test_other_functions_densify_sparse_tensors(name):
    x, whole = stored()
    found = getattr(ops, name)(x)
    assert type(found) is ef.Tensor
    same(found, ops.convert_to_numpy(getattr(ops, name)(ops.convert_to_tensor(whole))))


@pytest.mark.parametrize("name", ["add", "subtract", "maximum", "minimum", "multiply", "divide"])
@pytest.mark.parametrize("other", ["sparse", "slices", "dense"])
@pytest.mark.parametrize("make", [stored, slices])
def test_functions_of_two(name, other, make):
    x, whole = make()
    dense = np.full(SHAPE, 0.25, "float32")
    dense[0, 0, :2] = 0, np.nan
    y, array = {"sparse": stored(seed=1), "slices": slices(1), "dense": (dense, dense)}[other]
    numpy = getattr(np, name)
    with np.errstate(all="ignore"):
        for a, b, p, q in ((x, y, whole, array), (y, x, array, whole)):
            found = getattr(ops, name)(a, b)
            same(found, numpy(p, q))
            both = is_sparse(a) and is_sparse(b)
            kept = {"multiply": True, "divide": is_sparse(a) and not is_sparse(b)}
            assert is_sparse(found) == kept.get(name, both)


def test_dtypes_are_those_of_dense_operands():
    for one in ("int8", "int32", "float16", "float32"):
        x, whole = stored(dtype=one)
        for function in (ops.sum, ops.mean, ops.sqrt, ops.negative):
            assert function(x).dtype == function(ops.convert_to_tensor(whole)).dtype
        for other in ("int8", "int32", "bfloat16"):
            y = ops.ones(SHAPE, other)
            for function in (ops.add, ops.multiply, ops.divide):
                assert function(x, y).dtype == function(ops.convert_to_tensor(whole), y).dtype
            y = ops.ones((5, 2), other)
            assert ops.matmul(x, y).dtype == ops.matmul(ops.convert_to_tensor(whole), y).dtype


@pytest.mark.parametrize("axis", [None, (), 0, -1, (0, 2), (0, 1, 2)])
@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("make", [stored, slices])
def test_sums_and_means(axis, keepdims, make):
    x, whole = make()
    for name in ("sum", "mean"):
        found = getattr(ops, name)(x, axis=axis, keepdims=keepdims)
        assert is_sparse(found)
        same(found, np.asarray(getattr(np, name)(whole, axis=axis, keepdims=keepdims)))


@pytest.mark.parametrize("make", [stored, slices])
@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("reshape", ((5, -1),)),
        ("reshape", ((4, 1, 15),)),
        ("expand_dims", (0,)),
        ("expand_dims", ((1, -1),)),
        ("transpose", ()),
        ("transpose", ((2, 0, -2),)),
    ],
)
def test_other_shapes(name, arguments, make):
    x, whole = make()
    found = getattr(ops, name)(x, *arguments)
    assert is_sparse(found)
    same(found, getattr(np, name)(whole, *arguments))
    if name == "expand_dims":
        same(ops.squeeze(found), whole)


def test_parts_are_joined():
    x, whole = stored()
    y, other = stored((4, 2, 5), 1)
    found = ops.concatenate([x, y, x], axis=-2)
    assert is_sparse(found)
    same(found, np.concatenate([whole, other, whole], axis=1))
    mixed = ops.concatenate([x, other], axis=1)
    assert not is_sparse(mixed)
    same(mixed, np.concatenate([whole, other], axis=1))
    with pytest.raises(ShapeError, match="differ in other axes than 2"):
        ops.concatenate([x, y], axis=2)


@pytest.mark.parametrize(
    ("left", "right"),
    [((4, 3), (3, 2)), ((2, 4, 3), (3, 2)), ((2, 4, 3), (2, 3, 5)), ((4, 3), (3,)), ((3,), (3, 2)),
     ((4, 3), (2, 3, 5)), ((1, 4, 3), (2, 3, 5)), ((2, 2, 4, 3), (2, 2, 3, 5))],
)  # fmt: skip
def test_matrix_products(left, right):
    x, a = stored(left)
    y, b = stored(right, 1)
    for first, second in ((x, b), (a, y), (x, y)):
        found = ops.matmul(first, second)
        assert is_sparse(found) == (is_sparse(first) and is_sparse(second))
        same(found, np.matmul(a, b))
    same(x @ ops.convert_to_tensor(b), np.matmul(a, b))
    same(ops.convert_to_tensor(a) @ y, np.matmul(a, b))


def test_products_of_matrices_that_do_not_fit_are_refused():
    with pytest.raises(ShapeError, match="matmul"):
        ops.matmul(stored((4, 3))[0], np.ones((4, 2), "float32"))


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("dtype", ["float32", "int32", "bool"])
def test_classes(axis, dtype):
    numbers = np.array([[1, 4, 1], [0, -1, 7]])
    for function in (ops.one_hot, ops.multi_hot):
        found = function(numbers, 5, axis=axis, dtype=dtype, sparse=True)
        assert is_sparse(found) and found.dtype == dtype
        same(found, ops.convert_to_numpy(function(numbers, 5, axis=axis, dtype=dtype)))


def test_counts():
    numbers, weights = np.array([[1, 4, 1], [0, 0, 2]]), np.array([[1.0, 2, 3], [4, 5, 6]])
    for row in (slice(None), 0):
        for w in (None, weights[row]):
            found = ops.bincount(numbers[row], weights=w, minlength=2, sparse=True)
            assert is_sparse(found)
            same(found, ops.convert_to_numpy(ops.bincount(numbers[row], weights=w, minlength=2)))
    x = SparseTensor([3, 1, 1, 0], [[0, 5], [0, 9], [1, 0], [1, 2]], (2, 10))
    same(ops.bincount(x), np.array([[0, 1, 0, 1], [1, 1, 0, 0]]))
    w = SparseTensor([1.0, 2.0, 3.0, 4.0], x.indices, (2, 10))
    same(ops.bincount(x, weights=w), np.array([[0, 2, 0, 1], [4, 3, 0, 0]], "float32"))
    with pytest.raises(ValueError, match="must both be sparse and have the same indices"):
        ops.bincount(x, weights=np.ones((2, 10)))


def test_conversions():
    x, whole = stored()
    assert ops.is_tensor(x) and is_sparse(ops.convert_to_tensor(x, sparse=True))
    assert type(ops.convert_to_tensor(x, sparse=False)) is ef.Tensor
    assert ops.cast(x, "float16").dtype == "float16" and is_sparse(ops.cast(x, "float16"))
    assert ops.shape(x) == SHAPE and is_sparse(ops.stop_gradient(x))
    same(ops.take(whole, SparseTensor([1, 2], [[0], [2]], (3,)), axis=1), whole[:, [1, 0, 2]])


# Gradients and graphs -----------------------------------------------------------------------------


def programs():
    """Functions of values, of a dense tensor and of how a tensor is made of values."""
    weights = np.random.default_rng(2).normal(size=(5, 2)).astype("float32")
    return {
        "products": lambda x, d: ops.matmul(x * d, weights),
        "sums": lambda x, d: ops.sum(ops.maximum(x, x * x), axis=1) * 2.0 + ops.sum(d),
        "functions": lambda x, d: ops.concatenate([ops.tanh(x), ops.sqrt(x)]) / ops.mean(d),
        "shapes": lambda x, d: ops.transpose(ops.reshape(ops.square(x), (3, 20))) - d[0, 0, 0],
        "both": lambda x, d: ops.matmul(x, ops.transpose(ops.sin(x / d), (0, 2, 1))),
    }


@pytest.mark.parametrize("name", programs())
@pytest.mark.parametrize("captured", [False, True])
def test_gradients_equal_those_of_the_dense_tensor(name, captured):
    program = programs()[name]
    x, _ = stored()
    dense = ef.tensor(np.random.default_rng(3).uniform(1, 2, SHAPE), dtype="float32")

    def loss(values, dense, whole):
        given = x.with_values(values)
        found = program(given.to_dense() if whole else given, dense)
        return ef.sum(ef.square(ops.convert_to_tensor(found, sparse=False)))

    function = ef.value_and_grad(loss, argnums=(0, 1))
    with np.errstate(all="ignore"):
        expected, wanted = function(x.values, dense, True)
        if captured:
            function = ef.function(function)
        found, gradients = function(x.values, dense, False)
    assert np.isclose(float(found), float(expected), rtol=1e-5)
    for one, other in zip(gradients, wanted, strict=True):
        if name == "functions":  # at 0 the root has no slope; the sparse one has no value there
            continue
        np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=1e-4, atol=1e-5)


def test_captured_functions_take_and_give_sparse_tensors():
    x, whole = stored()

    @ef.function
    def f(x):
        return ops.transpose(ops.tanh(x) * 2.0)

    found = f(x)
    assert is_sparse(found) and len(f.graphs) == 1
    same(found, (np.tanh(whole) * 2).T)


def test_counting_stored_values_is_refused_in_a_graph():
    x = SparseTensor([3, 1], [[0], [2]], (4,))
    with pytest.raises(CaptureError, match="bincount"):
        ef.function(lambda x: ops.bincount(x, minlength=4))(x)


# Models -------------------------------------------------------------------------------------------

ROWS, ANSWERS = stored((50, 12), 4)[1], np.random.default_rng(5).normal(size=(50, 1))


def fitted(x, y=ANSWERS, sparse=True, **options):
    keras.utils.set_random_seed(3)
    layers = [
        keras.Input((12,), sparse=sparse),
        keras.layers.Dense(6, "tanh"),
        keras.layers.Dense(1),
    ]
    model = keras.Sequential(layers)
    model.compile("adam", "mse", metrics=["mae"], run_eagerly=options.pop("run_eagerly", False))
    if y is None:
        return model, model.fit(x, epochs=2, verbose=0, **options).history
    return model, model.fit(x, y, batch_size=8, epochs=2, verbose=0, **options).history


@pytest.mark.parametrize("make", [SparseTensor.from_dense, scipy.sparse.coo_matrix])
@pytest.mark.parametrize("run_eagerly", [False, True])
def test_fit_on_sparse_rows_is_fit_on_their_array(make, run_eagerly):
    options = {"validation_split": 0.2, "run_eagerly": run_eagerly}
    model, history = fitted(make(ROWS), **options)
    other, expected = fitted(ROWS, sparse=False, **options)
    for name, values in expected.items():
        np.testing.assert_allclose(history[name], values, rtol=1e-5, err_msg=name)
    x = make(ROWS)
    whole = other.evaluate(ROWS, ANSWERS, verbose=0)
    np.testing.assert_allclose(model.evaluate(x, ANSWERS, verbose=0), whole, rtol=1e-5)
    wanted = other.predict(ROWS, verbose=0)
    np.testing.assert_allclose(model.predict(x, verbose=0), wanted, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(model.predict_on_batch(x), wanted, rtol=1e-4, atol=1e-6)
    assert np.isclose(*(m.train_on_batch(v, ANSWERS)[0] for m, v in ((model, x), (other, ROWS))))


def test_batches_from_a_generator():
    cuts = [slice(i, i + 10) for i in range(0, 50, 10)]
    for make in (scipy.sparse.csr_matrix, SparseTensor.from_dense):
        _, history = fitted(((make(ROWS[cut]), ANSWERS[cut]) for cut in cuts * 2), None,
                            steps_per_epoch=5)  # fmt: skip
        _, expected = fitted(((ROWS[cut], ANSWERS[cut]) for cut in cuts * 2), None, False,
                             steps_per_epoch=5)  # fmt: skip
        np.testing.assert_allclose(history["loss"], expected["loss"], rtol=1e-5)


def test_batches_of_other_numbers_of_values_share_graphs():
    rows = scipy.sparse.random(400, 100, 0.1, dtype="float32", random_state=0, format="csr")
    model = keras.Sequential([keras.Input((100,), sparse=True), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    step = model._step("train", model.train_step)
    for i in range(0, 400, 20):
        step((SparseTensor.from_scipy(rows[i : i + 20]), np.ones((20, 1), "float32")))
    assert len({rows[i : i + 20].nnz for i in range(0, 400, 20)}) > 12
    assert len(step.graphs) <= 5


def test_empty_rows_and_batches():
    x = SparseTensor(np.zeros(0, "float32"), np.zeros((0, 2), "int64"), (50, 12))
    model, history = fitted(x)
    assert np.isfinite(history["loss"]).all()
    same(ops.tanh(x) + x, np.zeros((50, 12), "float32"))
    assert model.predict(x, verbose=0).shape == (50, 1)


def test_layers_that_make_and_take_sparse_tensors():
    numbers = np.array([[0, 2], [3, 3], [1, 0]])
    for mode in ("multi_hot", "count"):
        layer = keras.layers.CategoryEncoding(4, mode, sparse=True)
        same(layer(numbers), keras.layers.CategoryEncoding(4, mode)(numbers).numpy())
        x = keras.Input((2,), dtype="int32")
        assert layer(x).sparse
        model = keras.Model(x, keras.layers.Dense(3)(layer(x)))
        wanted = keras.layers.CategoryEncoding(4, mode)(numbers).numpy() @ model.weights[0].numpy()
        np.testing.assert_allclose(model.predict(numbers, verbose=0), wanted, rtol=1e-5)
    layer = keras.layers.Discretization([0.0, 1.0], output_mode="one_hot", sparse=True)
    same(layer(np.array([-1.0, 0.5, 3.0])), np.eye(3, dtype="float32"))
    table = keras.layers.Embedding(5, 2)
    ids = SparseTensor([2, 1], [[0, 0], [1, 2]], (2, 3))
    same(table(ids), table(ids.to_dense()).numpy())


@pytest.mark.parametrize(
    "make",
    [
        lambda: keras.optimizers.SGD(0.1),
        lambda: keras.optimizers.SGD(0.1, momentum=0.9),
        lambda: keras.optimizers.Adam(0.1, clipnorm=0.5),
        lambda: keras.optimizers.Adagrad(0.1, weight_decay=0.01),
        lambda: keras.optimizers.RMSprop(0.1, global_clipnorm=0.3),
        lambda: keras.optimizers.Ftrl(0.1),
    ],
)
def test_optimizers_take_sparse_gradients(make):
    variables = []
    for sparse in (True, False):
        variable = keras.Variable(np.ones((4, 2), "float32"))
        optimizer = make()
        for i in range(3):
            gradient = ef.IndexedSlices([[1.0, 2.0], [3.0, 4.0], [0.5, i]], [3, 1, 3], (4, 2))
            optimizer.apply([gradient if sparse else gradient.to_dense()], [variable])
        variables.append(variable.numpy())
    np.testing.assert_allclose(*variables, rtol=1e-5)


def test_ops_of_eagerflow_refuse_them():
    with pytest.raises(DTypeError, match=r"sum: x: .* is not a tensor"):
        ef.sum(stored()[0])


def test_data_of_other_kinds_is_refused_as_ever():
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    with pytest.raises(ValueError, match="Unrecognized data type"):
        model.fit(object(), verbose=0)


def test_examples():
    options = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
    result = doctest.testmod(sparse_module, optionflags=options)
    assert result.attempted and not result.failed
