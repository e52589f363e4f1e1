"""Names typed from habit: the error says what they are called here, and completion is tidy."""

import copy
import importlib
import inspect
import pickle
import re
import rlcompleter
import types

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.errors import ArgumentError, DTypeError
from eagerflow.ops import other_names

X = ef.tensor([[1.0, 2.0], [3.0, 4.0]])
MODEL = ef.nn.Sequential([ef.nn.Input((2,)), ef.nn.Dense(1)])
MODEL.compile("adam", "mse")
PLACES = {
    "At": X.at,
    "Place": X.at[0],
    "eagerflow": ef,
    "eagerflow.nn": ef.nn,
    "eagerflow.nn.callbacks": ef.nn.callbacks,
    "eagerflow.nn.losses": ef.nn.losses,
    "eagerflow.nn.metrics": ef.nn.metrics,
    "eagerflow.nn.optimizers": ef.nn.optimizers,
    "eagerflow.ops.linalg": ef.linalg,
    "eagerflow.ops.random": ef.random,
    "Metric": ef.nn.metrics.Mean(),
    "Module": MODEL,
    "Optimizer": MODEL.optimizer,
    "Schedule": ef.nn.schedules.CosineDecay(0.1, 10),
    "Tensor": X,
}
ENTRIES = [(where, name) for where in PLACES for name in other_names.table(where)]


def resolved(path, root):
    for part in path.split("."):
        root = getattr(root, part)
    return root


@pytest.mark.parametrize("where", PLACES)
def test_every_name_is_answered_with_names_that_exist(where):
    assert len(ENTRIES) > 1000
    graph = ef.capture.trace(ef.sin, ef.TensorSpec((2,), "float32"))
    for name, answer in other_names.table(where).items():
        with pytest.raises(AttributeError, match=re.escape(f"here it is {answer}")) as caught:
            getattr(PLACES[where], name)
        assert caught.value.name == name
        for pattern, root in (
            (r"\bef\.([A-Za-z_][\w.]*\w)", ef),
            (r"\bx\.([a-zA-Z_][\w.]*\w|T)", X),
            (r"\bnp\.([a-z_][\w.]*)", np),
            (r"\bgraph\.(\w+)", graph),
            (r"\bmodel\.([\w.]*\w)", MODEL),
            (r"\blayer\.(\w+)", MODEL.layers[0]),
            (r"\boptimizer\.(\w+)", MODEL.optimizer),
            (r"\bmetric\.(\w+)", PLACES["Metric"]),
            (r"\bschedule\.(\w+)", PLACES["Schedule"]),
            (r"\btape\.(\w+)", ef.GradientTape()),
            (r"\bself\.(add_weight)", MODEL),
            (r"\bvariable\.(\w+)", ef.Variable(1.0)),
        ):
            for path in re.findall(pattern, answer):
                assert resolved(path, root) is not None, (name, path)


def test_no_name_in_a_table_exists():
    for where, name in ENTRIES:
        known = getattr(PLACES[where], "__all__", None) or dir(PLACES[where])
        assert name not in known, (where, name)


@pytest.mark.parametrize(
    "name",
    "concatenate transpose cast array cumsum no_grad jit constant reduce_sum convert_to_tensor "
    "Linear cat clamp unsqueeze permute amax mm arctan2 placeholder topk".split(),
)
def test_names_of_others(name):
    place = ef.nn if name == "Linear" else ef
    with pytest.raises(AttributeError, match=f"has no attribute '{name}'; here it is "):
        getattr(place, name)


def test_functions_that_are_no_methods():
    with pytest.raises(AttributeError, match=r"here it is ef\.exp\(x, \.\.\.\)"):
        X.exp()
    with pytest.raises(AttributeError, match="Variable has no attribute 'relu'; here it is"):
        ef.Variable(1.0).relu()


def test_unknown_names_and_protocols_are_plain_attribute_errors():
    with pytest.raises(AttributeError, match=r"has no attribute 'foo'$"):
        X.foo()
    with pytest.raises(AttributeError, match=r"here it is ef\.expand_dims"):
        _ = ef.Tensor.unsqueeze
    assert getattr(X, "unsqueeze", None) is None
    with pytest.raises(AttributeError, match=r"^module 'eagerflow.random' has no attribute 'foo'$"):
        ef.random.foo()
    assert not hasattr(X, "_ipython_display_")
    assert not hasattr(X, "__array_interface__")
    assert pickle.loads(pickle.dumps(X)).tolist() == copy.copy(X).tolist() == X.tolist()
    with pytest.raises(ImportError):
        from eagerflow import nothing_of_that_name  # noqa: F401


def test_backward_shows_a_tape_in_the_names_of_the_user():
    net, adam = MODEL, MODEL.optimizer
    error = ef.mean(net(X))
    with pytest.raises(AttributeError) as caught:
        error.backward()
    assert str(caught.value).splitlines()[1:] == [
        "  with ef.GradientTape() as tape: error = ...",
        "  gradients = tape.gradient(error, net.trainable_weights)",
        "  adam.apply(gradients, net.trainable_weights)",
    ]
    assert adam.iterations is not None and not hasattr(X, "backward")


def test_names_that_are_elsewhere_in_the_package():
    for place, name, where in (
        (ef, "MeanSquaredError", "ef.nn.losses.MeanSquaredError"),
        (ef.nn, "relu", "ef.relu"),
        (ef.linalg, "trace_of", None),
        (ef.random, "svdvals", "ef.svdvals"),
        (ef.nn.losses, "Lion", "ef.nn.optimizers.Lion"),
        (ef, "Cluster", "ef.cluster.Cluster"),
    ):
        with pytest.raises(AttributeError) as caught:
            getattr(place, name)
        assert str(caught.value).endswith(f"here it is {where}" if where else f"'{name}'")
    for place in other_names.PLACES:
        assert importlib.import_module(place).__all__


@pytest.mark.parametrize("base", ["Layer", "Model", "Module"])
def test_networks_with_forward_say_how_it_is_called(base):
    class Net(getattr(ef.nn, base)):
        def forward(self, x):
            return x

    net = Net()
    assert net.forward(3) == 3
    with pytest.raises(ArgumentError, match="rename forward to call"):
        net(X)

    class Right(Net):
        def __call__(self, x):
            return self.forward(x)

    assert Right()(3) == 3


class Net(ef.nn.Module):
    step = 1

    def __init__(self):
        self.train, self.to = "yes", [ef.Variable(1.0)]

    def parameters(self):
        return self.weights


def test_attributes_of_the_same_names_are_the_users():
    net = pickle.loads(pickle.dumps(Net()))
    assert (net.step, net.train, len(net.parameters())) == (1, "yes", 1)
    assert {"step", "train", "parameters"} <= set(dir(net)) and "zero_grad" not in dir(net)
    assert not hasattr(net, "zero_grad") and copy.deepcopy(net).train == "yes"


@pytest.mark.parametrize("value", [X, ef.Variable(X), MODEL, MODEL.optimizer, ef.Tensor])
def test_completion_lists_what_exists(value):
    for name in dir(value):
        assert name == "__signature__" or hasattr(value, name), name
    assert {"shape", "ndim", "size"} <= set(dir(X))


def test_sizes_beside_each_other_are_one_tuple():
    for call in (
        lambda: ef.ones(3, 4),
        lambda: ef.zeros(3, 4),
        lambda: X.view(4),
        lambda: X.view(2, -1),
    ):
        with pytest.raises(DTypeError, match=r"several sizes are one tuple, \(3, 4\); x\.reshape"):
            call()


def test_places_cannot_be_assigned_to():
    with pytest.raises(DTypeError, match=r"y = x\.at\[index\]\.set\(value\)"):
        X.at[0] = 5.0
    with pytest.raises(AttributeError, match=r"^At has no attribute 'set'; here it is x\.at"):
        X.at.set(0, 5.0)


# Completion --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value",
    [X, ef.Variable(X), X.at[0], ef, ef.linalg, ef.random, ef.nn],
    ids=lambda v: str(v)[:25],
)
def test_every_callable_has_a_signature(value):
    count = 0
    for name in dir(value):
        found = getattr(value, name)
        if callable(found) and not name.startswith("_"):
            signature = inspect.signature(found)
            assert str(signature).startswith("(")
            own = {"xp"} if name == "interp" else set()  # its points have NumPy's name
            assert not {"self", "xp"} & set(signature.parameters) - own, name
            count += 1
    assert count > 5


@pytest.mark.parametrize("module", [ef.fft, ef.linalg, ef.random, ef.signal, ef.nn])
def test_missing_module_attribute_raises(module):
    with pytest.raises(AttributeError, match="has no attribute '__warningregistry__'"):
        getattr(module, "__warningregistry__")  # noqa: B009, which unittest's assertWarns asks of all modules


def test_the_signature_of_a_method_lacks_its_tensor():
    names = ["axis", "keepdims", "dtype"]
    assert list(inspect.signature(X.sum).parameters) == names
    assert list(inspect.signature(ef.sum).parameters) == ["x", *names]
    assert inspect.signature(ef.sum).replace(parameters=[]) == inspect.Signature()


@pytest.mark.parametrize("text", ["x.su", "v.su", "ef.su", "ef.linalg.so", "ef.random.no"])
def test_the_interpreter_completes(text):
    completer = rlcompleter.Completer({"x": X, "v": ef.Variable(X), "ef": ef})
    assert completer.complete(text, 0).startswith(text)


def test_internals_stay_out_of_completion():
    for module in (ef, ef.fft, ef.linalg, ef.random, ef.signal, ef.nn):
        assert set(dir(module)) == set(module.__all__)
        hidden = {"annotations", "Any", "np", "members", "dispatch", "layer", "table"}
        assert not hidden & set(dir(module))
    for value in (X, ef.Variable(X), ef.Tensor, ef.Variable):
        assert not {"unsqueeze", "exp", "concatenate"} & set(dir(value))
        assert {"sum", "reshape", "numpy"} <= set(dir(value))
    modules = {n for n in dir(ef) if isinstance(getattr(ef, n), types.ModuleType)}
    own = "capture cluster errors fft kernels linalg nn random serving signal summary testing"
    assert modules == set(own.split())
