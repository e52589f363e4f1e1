"""Names typed from habit: the error says what they are called here, and completion is tidy."""

import copy
import inspect
import pickle
import re
import rlcompleter
import types

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.ops import other_names

X = ef.tensor([[1.0, 2.0], [3.0, 4.0]])
PLACES = {
    "eagerflow": ef,
    "eagerflow.nn": ef.nn,
    "eagerflow.ops.linalg": ef.linalg,
    "eagerflow.ops.random": ef.random,
    "Tensor": X,
}
ENTRIES = [(where, name) for where in PLACES for name in other_names.table(where)]


def resolved(path, root):
    for part in path.split("."):
        root = getattr(root, part)
    return root


@pytest.mark.parametrize("where", PLACES)
def test_every_name_is_answered_with_names_that_exist(where):
    assert len(ENTRIES) > 350
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
        ):
            for path in re.findall(pattern, answer):
                assert resolved(path, root) is not None, (name, path)


def test_no_name_in_a_table_exists():
    for where, name in ENTRIES:
        known = PLACES[where].__all__ if where != "Tensor" else dir(X)
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
