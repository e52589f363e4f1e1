"""Nests: flattening, rebuilding, and names of leaves."""

import collections
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
