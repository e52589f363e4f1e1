"""Variables: cells that hold a Tensor and stand wherever one can."""

import copy
import pickle
import signal

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.errors import DTypeError, EagerflowError, ShapeError


@pytest.fixture
def w():
    return ef.Variable([[1.0, 2.0], [3.0, 4.0]], name="w")


def test_facts(w):
    assert (w.shape, w.dtype, w.ndim, w.size, w.nbytes) == ((2, 2), ef.float32, 2, 4, 16)
    assert (w.name, w.trainable, str(w.device)) == ("w", True, "cpu:0")
    assert isinstance(w.value, ef.Tensor)
    assert w.numpy().tolist() == w.tolist() == w.value.tolist()


def test_names_are_given_where_none_is():
    a, b = ef.Variable(1.0), ef.Variable(1.0)
    assert a.name.startswith("variable_")
    assert a.name != b.name


def test_only_differentiable_dtypes_are_trainable():
    assert not ef.Variable(3).trainable
    assert not ef.Variable([True]).trainable
    assert not ef.Variable(1.0, trainable=False).trainable
    assert ef.Variable(1j).trainable
    assert ef.Variable(3, dtype="float64").dtype == ef.float64


def test_it_stands_wherever_a_tensor_can(w):
    x = np.array([[1.0], [1.0]], np.float32)
    for found, expected in (
        (w @ x, [[3.0], [7.0]]),
        (x.T @ w, [[4.0, 6.0]]),
        (w + w, [[2.0, 4.0], [6.0, 8.0]]),
        (1 - w, [[0.0, -1.0], [-2.0, -3.0]]),
        (w[0], [1.0, 2.0]),
        (w.T, [[1.0, 3.0], [2.0, 4.0]]),
        (w.sum(axis=0), [4.0, 6.0]),
        (ef.sqrt(w * w), [[1.0, 2.0], [3.0, 4.0]]),
        (np.add(w, 1), [[2.0, 3.0], [4.0, 5.0]]),
        (ef.tensor(w), [[1.0, 2.0], [3.0, 4.0]]),
        (ef.concat([w, w.value])[2:], [[1.0, 2.0], [3.0, 4.0]]),
        (w == 2, [[False, True], [False, False]]),
        (w.at[0, 0].set(9), [[9.0, 2.0], [3.0, 4.0]]),
        (w.astype("int8"), [[1, 2], [3, 4]]),
    ):
        assert isinstance(found, ef.Tensor)
        assert found.tolist() == expected
    assert len(w) == 2
    assert [row.tolist() for row in w] == [[1.0, 2.0], [3.0, 4.0]]
    assert 4.0 in w
    assert np.asarray(w).tolist() == w.tolist()
    s = ef.Variable(2.5)
    assert (float(s), int(s), bool(s), f"{s:.1f}", s.item()) == (2.5, 2, True, "2.5", 2.5)
    assert (w == None) is False  # noqa: E711


def test_assignments(w):
    before = w.value
    assert w.assign([[0.0, 0.0], [0.0, 0.0]]) is w
    assert w.tolist() == [[0.0, 0.0], [0.0, 0.0]]
    assert before.tolist() == [[1.0, 2.0], [3.0, 4.0]]
    w.assign_add(np.ones((2, 2)))
    w.assign_sub(0.5)
    assert w.tolist() == [[0.5, 0.5], [0.5, 0.5]]
    assert w.dtype == ef.float32
    w.assign(w * 2)
    w.assign(ef.Variable(np.eye(2)))
    assert w.tolist() == [[1.0, 0.0], [0.0, 1.0]]


def test_assigned_arrays_are_copied(w):
    x = np.ones((2, 2), np.float32)
    w.assign(x)
    x[:] = 0
    assert w.tolist() == [[1.0, 1.0], [1.0, 1.0]]


@pytest.mark.parametrize(
    ("value", "error", "words"),
    [
        ([1.0, 2.0], ShapeError, "another shape"),
        (1.0, ShapeError, "another shape"),
        ([[1j, 0], [0, 0]], DTypeError, "imaginary"),
        ("abc", DTypeError, "a str"),
        (None, DTypeError, "None"),
    ],
)
def test_assignments_that_are_refused(w, value, error, words):
    before = w.value
    with pytest.raises(error, match=words) as caught:
        w.assign(value)
    assert isinstance(caught.value, EagerflowError)
    assert w.value is before or w.tolist() == before.tolist()
    if error is ShapeError:
        assert caught.value.op == "assign"
        assert caught.value.argument == "w"
        assert caught.value.expected == "float32(2, 2) on cpu:0"


def test_an_integer_variable_takes_no_fractions():
    n = ef.Variable([1, 2], name="n")
    with pytest.raises(DTypeError, match="lose its fraction"):
        n.assign([1.5, 2.0])
    n.assign_add(1)
    assert n.tolist() == [2, 3]
    with pytest.raises(DTypeError, match="lose its fraction"):
        n.assign_add(0.5)
    assert n.tolist() == [2, 3]


def test_augmented_assignment_does_not_assign(w):
    v = w
    v += 1
    assert isinstance(v, ef.Tensor)
    assert w.tolist() == [[1.0, 2.0], [3.0, 4.0]]


def test_items_are_not_assigned(w):
    with pytest.raises(DTypeError, match="cannot be changed in place"):
        w[0] = 1


def test_gradients_see_the_value_at_the_time_of_reading(w):
    with ef.GradientTape() as tape:
        y = (w * w).sum()
        w.assign([[0.0, 0.0], [0.0, 0.0]])
        z = (w * w).sum()
        loss = y + z
    assert tape.gradient(loss, w).tolist() == [[2.0, 4.0], [6.0, 8.0]]
    with ef.GradientTape() as tape:
        w.assign([[1.0, 1.0], [1.0, 1.0]])
        y = (w * w * w).sum()
    assert tape.gradient(y, w).tolist() == [[3.0, 3.0], [3.0, 3.0]]


def test_copies_are_cells_of_their_own(w):
    again = copy.deepcopy(w)
    again.assign(again * 0)
    assert w.tolist() == [[1.0, 2.0], [3.0, 4.0]]
    assert (again.name, again.trainable) == ("w", True)
    pickled = pickle.loads(pickle.dumps(ef.Variable(w, "v", trainable=False)))
    assert (pickled.name, pickled.trainable, pickled.tolist()) == ("v", False, w.tolist())


def test_variables_are_keys_by_identity(w):
    assert {w: 1}[w] == 1
    assert len({w, ef.Variable(w.value)}) == 2


def test_additions_of_handlers_and_threads_are_not_lost():
    count, nested = ef.Variable(0, trainable=False), []

    class Slow:
        """A summand that lets a handler come between the read and the assignment."""

        def __array__(self, dtype=None, copy=None):
            if len(nested) < 3:
                nested.append(1)
                signal.raise_signal(signal.SIGALRM)
            return np.asarray(1)

    before = signal.signal(signal.SIGALRM, lambda *_: count.assign_add(10))
    try:
        count.assign_add(Slow())
        count.assign_sub(Slow())
    finally:
        signal.signal(signal.SIGALRM, before)
    assert len(nested) == 3 and int(count.value) == 30
