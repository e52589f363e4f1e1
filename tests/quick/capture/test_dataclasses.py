"""Dataclasses and attrs classes are nests: one trace for all objects of a kind."""

import dataclasses
import enum
import pickle
from typing import Any, ClassVar

import attrs
import numpy as np
import pytest

import eagerflow as ef
from eagerflow import tree
from eagerflow.errors import CaptureError


@dataclasses.dataclass
class Batch:
    x: Any
    rows: Any = None
    name: str = "batch"
    scale: float = 1.0

    @property
    def total(self):
        return ef.sum(self.x) * self.scale

    def times(self, factor):
        return dataclasses.replace(self, x=self.x * factor)


@dataclasses.dataclass(frozen=True, slots=True)
class Frozen:
    a: Any
    b: Any
    kind: ClassVar[str] = "pair"
    given: dataclasses.InitVar[int] = 0


@attrs.define
class Slotted:
    a: Any
    b: Any


@attrs.define(slots=False)
class Plain:
    a: Any
    b: Any


PAIRS = [Frozen, Slotted, Plain]


@pytest.mark.parametrize("cls", PAIRS)
def test_objects_of_a_kind_share_a_trace(cls):
    @ef.function
    def f(pair, parts):
        return cls(pair.a * parts[0].a, {"b": pair.b - parts[0].b})

    for i in range(4):
        one, two = cls(ef.ones(3) * i, i), cls(ef.tensor([1.0, 2.0, 3.0]), ef.tensor(0.5))
        found = f(one, [two])
        assert type(found) is cls
        np.testing.assert_array_equal(found.a.numpy(), i * np.float32([1, 2, 3]))
        assert float(found.b["b"]) == i - 0.5
    assert len(f.graphs) == 1, f.explain()


def test_methods_properties_and_plain_fields():
    @ef.function
    def f(batch):
        return batch.times(2.0).total, batch.name

    for scale in (0.5, 3.0):
        found, name = f(Batch(ef.ones((2, 3)), scale=scale))
        assert (float(found), name) == (12 * scale, "batch")
    assert len(f.graphs) == 1, f.explain()
    assert f(Batch(ef.ones((2, 3)), name="other"))[1] == "other"
    assert len(f.graphs) == 2, f.explain()


def test_other_attributes_are_part_of_the_signature():
    f = ef.function(lambda batch: batch.x * getattr(batch, "more", 1.0))
    batch = Batch(ef.ones(2))
    assert f(batch).tolist() == [1.0, 1.0]
    batch.more = 3.0
    assert f(batch).tolist() == [3.0, 3.0]


def test_changes_of_arguments_are_refused():
    @ef.function
    def f(batch):
        batch.x = batch.x + 1.0
        return batch.x

    given = Batch(ef.ones(2))
    with pytest.raises(CaptureError, match="changes a list, dict or dataclass"):
        f(given)
    assert given.x.tolist() == [1.0, 1.0]


def test_settings_and_state_without_tensors_are_told_apart_by_identity():
    state = Batch(None, 0, scale=2.0)

    @ef.function
    def f(x, state):
        for _ in range(int(state.scale)):  # not an input, so its value is known
            x = x + 1.0
        return x

    assert f(ef.ones(1), state).tolist() == f(ef.ones(1), state).tolist() == [3.0]
    assert len(f.graphs) == 1
    state.scale = 3.0
    assert f(ef.ones(1), state).tolist() == [4.0]
    held = Slotted(ef.Variable(1.0), [state])  # Variables are state as well
    assert tree.flatten([held, state])[0] == [held, state]


def test_objects_from_outside_are_guarded():
    rates = Batch(ef.ones(2), scale=2.0)
    f = ef.function(lambda x: x * rates.scale)
    assert f(ef.ones(2)).tolist() == [2.0, 2.0]
    rates.scale = 3.0
    assert f(ef.ones(2)).tolist() == [3.0, 3.0]


@pytest.mark.parametrize("cls", PAIRS)
def test_transforms(cls):
    loss = lambda pair: (pair.a**2 * pair.b).sum()
    pair = cls(ef.tensor([1.0, 2.0]), ef.tensor([3.0, 4.0]))
    for grad in (ef.grad(loss), ef.function(ef.grad(loss))):
        found = grad(pair)
        assert type(found) is cls
        assert (found.a.tolist(), found.b.tolist()) == ([6.0, 16.0], [1.0, 4.0])
    assert ef.vmap(lambda pair: pair.a - pair.b)(pair).tolist() == [-2.0, -2.0]
    start = cls(ef.tensor(0.0), ef.tensor(1.0))
    last, _ = ef.scan(lambda c, x: (cls(c.a + x, c.b * x), x), start, ef.tensor([2.0, 3.0]))
    assert (float(last.a), float(last.b)) == (5.0, 6.0)
    assert ef.cond(ef.tensor(True), lambda p: cls(p.b, p.a), lambda p: p, pair).a.tolist() == [3, 4]


def test_saved_graphs_return_dicts(tmp_path):
    graph = ef.capture.trace(lambda x: Frozen(x + 1.0, [x]), ef.TensorSpec((2,), "float32"))
    graph.save(tmp_path / "g.ef")
    found = ef.capture.load(tmp_path / "g.ef")(ef.ones(2))
    assert found["a"].tolist() == [2.0, 2.0] and found["b"][0].tolist() == [1.0, 1.0]


def test_what_is_not_rebuilt_from_its_fields_stays_a_leaf():
    @dataclasses.dataclass(eq=False)
    class Net(ef.nn.Layer):
        units: int

        def __post_init__(self):
            super().__init__()
            self.dense = ef.nn.Dense(self.units)

        def call(self, x):
            return self.dense(x)

    @dataclasses.dataclass
    class Number:
        n: int

    class Color(Number, enum.Enum):
        RED = 1

    @dataclasses.dataclass
    class Problem(Exception):
        text: str

    for leaf in (Net(3), Color.RED, Problem("text"), Batch, Frozen):
        assert tree.flatten(leaf)[0] == [leaf]
    net, call = Net(3), ef.function(lambda net, x: net(x))
    x = ef.ones((1, 2))
    np.testing.assert_array_equal(call(net, x).numpy(), net(x).numpy())


def test_nests_are_rebuilt_without_the_constructor():
    calls = []

    @dataclasses.dataclass
    class Counted:
        x: Any
        later: Any = dataclasses.field(init=False)

        def __post_init__(self):
            calls.append(self)

    one, two = np.ones(1), np.ones(2)
    leaves, structure = tree.flatten({"k": [Counted(one), Frozen([two], None)]})
    assert leaves == [one, two, None]
    made = tree.unflatten(structure, [5.0, 6.0, 7.0])["k"]
    assert (made[0].x, made[1]) == (5.0, Frozen([6.0], 7.0)) and len(calls) == 1
    assert not hasattr(made[0], "later")
    assert tree.paths(structure) == ["['k'][0].x", "['k'][1].a[0]", "['k'][1].b"]
    assert pickle.loads(pickle.dumps(made[1])) == made[1]
