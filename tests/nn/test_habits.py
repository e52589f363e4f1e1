"""Habits from PyTorch, Keras and NumPy in own training loops: they work, or the error says how."""

import numpy as np
import pytest

import eagerflow as ef

nn, losses = ef.nn, ef.nn.losses
X = np.linspace(-1, 1, 32, dtype="float32").reshape(8, 4)
Y = np.arange(8) % 3
TEXTS = ["cat", "dog"]
MODEL = nn.Sequential([nn.Input((4,)), nn.Dense(3)])
W = MODEL.trainable_weights
LOSS = losses.SparseCategoricalCrossentropy(from_logits=True)
ORDER, PAIRS = (
    "apply(gradients, variables), two lists",
    "apply_gradients(zip(gradients, variables))",
)
FIRST = "targets come first: loss(y_true, y_pred)"
LOOKUP = "ef.nn.StringLookup"


def adam():
    return nn.optimizers.Adam()


def gradients(loss=lambda: LOSS(Y, MODEL(X)), sources=W):
    with ef.GradientTape() as tape:
        value = loss()
    return tape.gradient(value, sources)


def after_the_tape():
    with ef.GradientTape() as tape:
        pass
    return tape.gradient(LOSS(Y, MODEL(X)), W)


def swapped_gradient():
    with ef.GradientTape() as tape:
        loss = LOSS(Y, MODEL(X))
    return tape.gradient(W, loss)


def changed_item():
    w = ef.Variable([1.0, 2.0])
    w[0] += 1


def requires_grad():
    ef.ones(2).requires_grad = True


SCALE = ef.Variable(2.0, name="scale")


@ef.custom_gradient
def scaled(x):
    return x * SCALE, lambda g: g * SCALE


class Scaler:
    def __init__(self):
        self.model = MODEL

    def call(self, x):
        return self.model(x), lambda g: g @ W[0].value.mT


def of_custom(f, source, x=None):
    x = ef.Variable(X) if x is None else x
    return gradients(lambda: f(x).sum(), [source])


def fit(x, y):
    model = nn.Sequential([nn.Dense(3)])
    model.compile("sgd", "sparse_categorical_crossentropy")
    model.fit(x, y, verbose=0)


CASES = {
    "loss after the tape": (after_the_tape, "compute the loss inside of 'with ef.GradientTape()"),
    "loss as a number": (lambda: gradients(lambda: LOSS(Y, MODEL(X)).item()), "without item()"),
    "loss in NumPy": (lambda: gradients(lambda: LOSS(Y, MODEL(X)).numpy()), "and numpy()"),
    "gradient by a model": (lambda: gradients(sources=MODEL), "try: model.trainable_weights"),
    "gradient by names": (lambda: gradients(sources=["a"]), "[0]: a str has no gradient"),
    "gradient swapped": (swapped_gradient, "the loss comes first, tape.gradient(loss, variables)"),
    "grad without arguments": (lambda: ef.grad(lambda: 1.0)(), "ef.GradientTape() for Variables"),
    "apply swapped": (lambda: adam().apply(W, gradients()), ORDER),
    "apply pairs": (lambda: adam().apply(list(zip(gradients(), W, strict=True))), PAIRS),
    "apply zip": (lambda: adam().apply(zip(gradients(), W, strict=True), W), PAIRS),
    "apply a dict": (lambda: adam().apply({"a": 1, "b": 2}, W), ORDER),
    "apply gradients alone": (lambda: adam().apply(gradients()), ORDER),
    "apply to names": (lambda: adam().apply(gradients(), ["a", "b"]), ORDER),
    "weights as rate": (lambda: nn.optimizers.Adam(W), "a list is not a learning rate"),
    "model as rate": (lambda: nn.optimizers.SGD(MODEL), "apply(gradients, variables)"),
    "minimize a value": (lambda: adam().minimize(ef.tensor(1.0), W), "minimize(lambda: "),
    "item of a Variable": (changed_item, "variable.assign(y)"),
    "requires_grad": (requires_grad, "here it is ef.grad(f)"),
    "sizes of view": (lambda: ef.ones(4).view(2, -1), "x.reshape(shape)"),
    "step of a schedule": (lambda: nn.schedules.CosineDecay(0.1, 5).step(), "the optimizer counts"),
    "update of a metric": (lambda: nn.metrics.Mean().update(1.0), "metric.update_state"),
    "layers beside each other": (lambda: nn.Sequential(nn.Dense(2), nn.Dense(3)), "([layer, ...])"),
    "two sizes": (lambda: nn.Dense(4, 3), "its first input shows it"),
    "in_features": (lambda: nn.Dense(in_features=4), "nothing: the first input shows it"),
    "p of Dropout": (lambda: nn.Dropout(p=0.5), "try: rate"),
    "eps": (lambda: nn.optimizers.Adam(1e-3, eps=1e-8), "try: epsilon"),
    "one image": (lambda: nn.Conv2D(2, 3)(ef.ones((8, 8, 3))), "x[None] for one example"),
    "param_groups": (lambda: adam().param_groups, "optimizer.add_group(layer, multiplier=0.1"),
    "forward hook": (lambda: MODEL.register_forward_hook(print), "layer.add_hook(after=f)"),
    "functional_call": (lambda: ef.func, "ef.nn.functional_call(model, values, x)"),
    "named_parameters": (lambda: MODEL.named_parameters(), "model.named_weights()"),
    "clipping": (lambda: nn.utils, "ef.clip_by_global_norm(gradients, limit)"),
    "labels second": (lambda: LOSS(MODEL(X), Y), FIRST),
    "labels in a column second": (lambda: LOSS(MODEL(X), Y[:, None]), FIRST),
    "labels second, function": (
        lambda: losses.sparse_categorical_crossentropy(MODEL(X), ef.tensor(Y)),
        FIRST,
    ),
    "labels of pixels second": (lambda: LOSS(ef.ones((2, 4, 3)), ef.ones((2, 4), "int32")), FIRST),
    "metric": (lambda: nn.metrics.SparseCategoricalAccuracy()(MODEL(X), Y), FIRST),
    "squares": (lambda: losses.MeanSquaredError()(MODEL(X), Y), FIRST),
    "op of logits": (lambda: ef.cross_entropy(Y, MODEL(X)), "logits come first"),
    "list of texts": (lambda: ef.tensor(TEXTS), LOOKUP),
    "array of texts": (lambda: ef.tensor(np.array(TEXTS)), LOOKUP),
    "objects": (lambda: ef.tensor(np.array(["a", 1], object)), LOOKUP),
    "numbers as objects": (lambda: ef.tensor(np.array([1, 2], object)), "array.astype('float32')"),
    "None among numbers": (lambda: ef.tensor([1.0, None]), "has nan in place of None"),
    "dates": (lambda: ef.tensor(np.array(["2020-01-01"], "M8[D]")), "array.astype('int64')"),
    "targets of texts": (lambda: fit(X[:2], TEXTS), LOOKUP),
    "loader of texts": (lambda: nn.Loader((TEXTS, [0, 1]), 2), LOOKUP),
    "batches of texts": (
        lambda: [MODEL(x) for x, _ in nn.Loader((np.array(TEXTS), Y[:2]), 2)],
        LOOKUP,
    ),
    "inputs of texts": (lambda: fit(TEXTS, Y[:2]), LOOKUP),
    "layer on texts": (lambda: nn.Dense(2)(np.array(TEXTS)), LOOKUP),
    "integers in a dict": (lambda: ef.grad(len)({"w": ef.tensor([1, 2])}), "['w']: there is no "),
    "dtype of a key": (lambda: ef.grad(len)({"w": np.ones(2, "int8")}), "respect to int8 values"),
    "unused key": (
        lambda: ef.grad(lambda p: p["w"] * 2)({"w": 1.0, "b": 2.0}),
        "['b']: tensor of shape (): the target does not depend",
    ),
    "text in a dict": (lambda: ef.grad(len)({"act": "relu"}), "['act']: a str is not a tensor"),
    "Variable in a custom gradient": (lambda: of_custom(scaled, SCALE), "is read inside of scaled"),
    "only there": (lambda: of_custom(scaled, SCALE, X), "custom gradients need it as an argument"),
    "weight in one": (lambda: of_custom(ef.custom_gradient(Scaler().call), W[0]), "read inside of"),
}


@pytest.mark.parametrize("name", CASES)
def test_errors_say_what_to_do(name):
    attempt, words = CASES[name]
    with pytest.raises((ef.errors.EagerflowError, AttributeError)) as raised:
        attempt()
    assert words in str(raised.value)


@pytest.mark.parametrize("captured", [False, True])
@pytest.mark.parametrize(
    "loss",
    [
        losses.BinaryCrossentropy(from_logits=True),
        losses.CategoricalCrossentropy(),
        losses.BinaryFocalCrossentropy(),
        losses.CategoricalFocalCrossentropy(),
        losses.binary_crossentropy,
        losses.categorical_crossentropy,
    ],
)
def test_integers_as_predictions_are_the_wrong_order(loss, captured):
    loss = ef.function(loss) if captured else loss
    p = ef.softmax(MODEL(X))
    hot = ef.one_hot(ef.tensor(Y), 3)
    for kind in ("int32", "bool", "uint8"):
        assert np.isfinite(loss(hot.astype(kind), p)).all()
        with pytest.raises(ef.errors.DTypeError, match="targets come first"):
            loss(p, hot.astype(kind))
    expected = loss(hot.astype("float32"), p).numpy()
    np.testing.assert_array_equal(loss(hot.astype("int32"), p), expected)
    loss(hot.astype("int32"), hot.astype("int32"))
    loss([[0.0, 1.0]], [[0, 1]])  # numbers of Python's have no dtype


def test_functions_of_scipy_are_named_with_ours():
    special = pytest.importorskip("scipy.special")
    x = ef.tensor([0.25, 0.5])
    for name, ours in {
        "expit": "ef.sigmoid(x)",
        "gammaln": "ef.lgamma(x)",
        "psi": "ef.digamma(x)",
        "erf": "ef.erf(x)",
        "ndtri": "ef.ndtri(x)",
        "log_expit": "ef.log_sigmoid(x)",
        "logit": "ef.logit(x)",
        "i0e": "ef.i0e(x)",
        "ellipk": "np.asarray(x)",
        "loggamma": "np.asarray(x)",
    }.items():
        with pytest.raises(ef.errors.DTypeError) as raised:
            getattr(special, name)(x)
        assert str(raised.value).startswith(f"scipy.special.{name} does not take tensors")
        assert ours in str(raised.value)
        if ours.startswith("ef."):
            found = eval(ours, {"ef": ef, "x": x})
            np.testing.assert_allclose(found, getattr(special, name)(x.numpy()), rtol=1e-5)
    with pytest.raises(ef.errors.DTypeError, match=r"ef\.xlogy\(x1?, (y|x2)\)"):
        special.xlogy(np.ones(2), x)
    with pytest.raises(ef.errors.DTypeError, match=r"numpy\.divmod|does not take tensors"):
        np.frompyfunc(abs, 1, 1)(x)


OPERATORS = {
    "+=": lambda a, x: a.__iadd__(x),
    "-=": lambda a, x: a.__isub__(x),
    "*=": lambda a, x: a.__imul__(x),
    "/=": lambda a, x: a.__itruediv__(x),
    "out": lambda a, x: np.add(x, x, out=a),
    "[:]": lambda a, x: (a.__setitem__(slice(None), x), a)[1],
}


@pytest.mark.parametrize("form", [ef.tensor, ef.Variable])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", OPERATORS)
def test_arrays_are_changed_in_place_by_tensors(name, dtype, form):
    x = np.array([1.0, 2.0, 4.0], "float32")
    array, expected = np.ones(3, dtype), np.ones(3, dtype)
    found = OPERATORS[name](array, form(x))
    assert found is array and array.dtype == dtype
    np.testing.assert_array_equal(array, OPERATORS[name](expected, x))


def test_arrays_of_another_kind_are_refused_as_by_numpy():
    array = np.ones(2, "int32")
    with pytest.raises(TypeError, match="same_kind"):
        array += ef.tensor([1.5, 2.5])
    assert array.tolist() == [1, 1]


def test_gradients_and_traces_end_at_arrays_that_are_changed():
    def f(x):
        array = np.ones(2, "float32")
        array += x
        return ef.tensor(array).sum()

    for transform in (ef.grad, ef.function):
        with pytest.raises(ef.errors.KeywordError, match="tensors do not change"):
            transform(f)(ef.ones(2))


def test_extra_weights_of_pytorch_are_named():
    arrays = {"fc.weight": np.ones((3, 4)), "fc.bias": np.ones(3)}
    before = MODEL.get_weights()
    with pytest.raises(ef.errors.ArgumentError) as raised:
        nn.from_torch(MODEL, arrays | {"ema.decay": np.ones(()), "steps": np.ones(())})
    assert "weights without a layer: ema.decay, steps" in str(raised.value)
    assert "weights that no layer needs out of source" in str(raised.value)
    np.testing.assert_array_equal(MODEL.get_weights()[0], before[0])
