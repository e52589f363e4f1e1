"""Nests: flattening, rebuilding, and names of leaves."""

import collections
import time
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

import eagerflow as ef
from eagerflow import tree


class Pair(NamedTuple):
    left: object
    right: object


leaves = st.integers() | st.none() | st.text(max_size=2) | st.floats(allow_nan=False)
nests = st.recursive(
    leaves,
    lambda part: (
        st.lists(part, max_size=3)
        | st.lists(part, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=2), part, max_size=3)
        | st.tuples(part, part).map(lambda pair: Pair(*pair))
    ),
    max_leaves=12,
)


@given(nests)
def test_round_trip(nest):
    found, structure = tree.flatten(nest)
    again = tree.unflatten(structure, found)
    assert again == nest
    assert type(again) is type(nest)
    assert len(tree.paths(structure)) == len(found)
    assert len(set(tree.paths(structure))) == len(found)


@given(nests)
def test_structure_does_not_depend_on_the_leaves(nest):
    found, structure = tree.flatten(nest)
    other = tree.map_leaves(lambda leaf: 0, nest)
    assert tree.flatten(other)[1] == structure
    assert tree.flatten(other)[0] == [0] * len(found)


def test_none_is_a_leaf_and_order_is_kept():
    assert tree.flatten({"b": 1, "a": None})[0] == [1, None]
    assert tree.flatten({"a": 1, "b": 2})[1] != tree.flatten({"b": 1, "a": 2})[1]
    assert tree.flatten(None) == ([None], tree.Structure(None, (), ()))


def test_map_of_several_nests():
    assert tree.map_leaves(lambda a, b: a + b, {"x": [1, 2]}, {"x": [10, 20]}) == {"x": [11, 22]}
    with pytest.raises(ValueError):
        tree.map_leaves(lambda a, b: a, [1, 2], [1])


def test_paths_read_like_python():
    _, structure = tree.flatten({"encoder": [1, Pair(2, 3)], "b": 4})
    assert tree.paths(structure) == [
        "['encoder'][0]",
        "['encoder'][1].left",
        "['encoder'][1].right",
        "['b']",
    ]


def test_relatives_of_dict():
    nest = collections.OrderedDict(b=1, a=[2])
    again = tree.map_leaves(lambda x: x, nest)
    assert again == nest
    assert type(again) is collections.OrderedDict
    counts = collections.defaultdict(int, a=1)
    assert tree.map_leaves(lambda x: x + 1, counts) == {"a": 2}


def test_registered_classes():
    class Box:
        def __init__(self, content):
            self.content = content

    assert tree.flatten(Box(1))[0][0].content == 1
    tree.register(Box, lambda box: (("content",), [box.content]), lambda keys, items: Box(*items))
    found, structure = tree.flatten([Box((1, 2)), 3])
    assert found == [1, 2, 3]
    assert tree.unflatten(structure, [4, 5, 6])[0].content == (4, 5)
    assert tree.paths(structure, "x") == ["x[0]['content'][0]", "x[0]['content'][1]", "x[1]"]


def test_keys_may_hold_more_than_those_of_the_children():
    slices = ef.IndexedSlices([1.0, 2.0], [0, 3], (4,))
    found, structure = tree.flatten([slices, 3])
    assert tree.paths(structure, "x") == ["x[0]['values']", "x[0]['indices']", "x[1]"]
    assert tree.unflatten(structure, found)[0].dense_shape == (4,)


def test_tensors_and_arrays_are_leaves():
    x = ef.ones((2,))
    assert tree.flatten([x, x.numpy()])[0][0] is x
    assert len(tree.flatten([x, x.numpy()])[0]) == 2


def test_gradients_come_in_the_nest_of_the_sources():
    params = {"w": [ef.tensor(2.0), Pair(ef.tensor(3.0), ef.tensor(4.0))], "b": (ef.tensor(1.0),)}

    def loss(p):
        return p["w"][0] * p["w"][1].left * p["w"][1].right + p["b"][0]

    g = ef.grad(loss)(params)
    assert tree.map_leaves(float, g) == {"w": [12.0, Pair(8.0, 6.0)], "b": (1.0,)}


# Classes made from lists, tuples and dicts --------------------------------------------------------


class Batch(dict):
    def __init__(self, source, **parts):
        super().__init__(**parts)
        self.source = source

    def __setitem__(self, key, value):
        raise TypeError("a batch does not change")


class Ordered(collections.OrderedDict):
    pass


class Rows(list):
    __slots__ = ("unit",)


class Point(Pair):
    def __new__(cls, left):
        return super().__new__(cls, left, left)


class Shape(tuple):
    def __new__(cls, *sizes):
        return super().__new__(cls, sizes)


def rows(*items):
    made = Rows(items)
    made.unit = "m"
    return made


def made_objects():
    found = [
        collections.defaultdict(list, a=1.0, b=2.0),
        collections.Counter(a=1, b=2),
        collections.OrderedDict(b=1.0, a=2.0),
        Ordered(b=1.0, a=2.0),
        Batch("disk", x=1.0, y=2.0),
        rows(1.0, 2.0),
        Pair(1.0, 2.0),
        Point(1.0),
        Shape(1.0, 2.0),
        Shape(),
        rows(),
    ]
    found[3].origin = ["kept", "by identity"]
    return found


NAMES = [type(nest).__name__ for nest in made_objects()]


def check_remade(again, nest, scaled=1):
    assert type(again) is type(nest)
    values = list(again.values()) if isinstance(nest, dict) else list(again)
    wanted = nest.values() if isinstance(nest, dict) else nest
    assert [float(x) for x in values] == [scaled * x for x in wanted]
    if isinstance(nest, dict):
        assert list(again) == list(nest)
    assert getattr(again, "__dict__", None) == getattr(nest, "__dict__", None)
    for name in ("default_factory", "unit"):
        assert getattr(again, name, None) is getattr(nest, name, None)


@pytest.mark.parametrize("nest", made_objects(), ids=NAMES)
def test_containers_keep_their_types_when_rebuilt(nest):
    found, structure = tree.flatten(nest)
    check_remade(tree.unflatten(structure, found), nest)
    check_remade(tree.map_leaves(lambda x: 3 * x, [nest])[0], nest, 3)
    assert tree.flatten(nest)[1] == structure
    assert hash(tree.flatten(nest)[1]) == hash(structure)
    assert tree.flatten_up_to(structure, nest) == found


@pytest.mark.parametrize("nest", made_objects(), ids=NAMES)
def test_captured_functions_take_and_return_them(nest):
    seen = []

    @ef.function
    def f(given):
        seen.append((type(given), getattr(given, "__dict__", None)))
        return tree.map_leaves(lambda x: x * 2, given)

    for _ in range(2):
        check_remade(f(nest), nest, 2)
    check_remade(f.python(nest), nest, 2)
    assert seen[0] == (type(nest), getattr(nest, "__dict__", None))
    assert len(f.graphs) == 1


def test_captured_code_uses_container_attributes():
    @ef.function
    def total(given):
        return given["a"] + given.default_factory()

    ones = collections.defaultdict(lambda: 1.0, a=ef.tensor(2.0))
    fives = collections.defaultdict(lambda: 5.0, a=ef.tensor(2.0))
    assert float(total(ones)) == 3.0
    assert float(total(fives)) == 7.0

    scale = ef.function(lambda batch: batch["x"] * (2 if batch.source == "disk" else 1))
    x = ef.tensor(1.0)
    assert float(scale(Batch("disk", x=x))) == 2.0
    assert float(scale(Batch("net", x=x))) == 1.0
    assert len(scale.graphs) == 2


@pytest.mark.parametrize("nest", made_objects()[:9], ids=NAMES[:9])
def test_transforms_and_loops_keep_them(nest):
    def total(given):
        return sum(x**2 for x in tree.flatten(given)[0])

    floats = tree.map_leaves(float, nest)
    check_remade(ef.grad(total)(floats), floats, 2)
    doubled = ef.fori_loop(0, 1, lambda i, s: tree.map_leaves(lambda x: x * 2, s), floats)
    check_remade(doubled, floats, 2)
    if isinstance(nest, dict):  # in another order of keys, and with other attributes

        def turned(i, state):
            structure = tree.flatten(state)[1]
            keys = structure.keys[::-1]
            return tree.unflatten(
                structure._replace(keys=keys, state=()), [state[key] for key in keys]
            )

        check_remade(ef.fori_loop(0, 2, turned, floats), floats)


def test_struct_time_is_a_leaf():
    now = time.gmtime(0)
    assert tree.flatten([now])[0] == [now]
