"""Nests: they are rebuilt as they were, and their structures compare what they hold."""

from collections import OrderedDict, defaultdict
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import eagerflow as ef
from eagerflow import tree


class Pair(NamedTuple):
    left: object
    right: object


class Noted(dict):
    """A dict with an attribute."""

    def __init__(self, note=None, **items):
        super().__init__(**items)
        self.note = note


def grown(part):
    items = st.dictionaries(st.sampled_from("abc"), part, max_size=3)
    return (
        st.lists(part, max_size=3)
        | st.lists(part, max_size=3).map(tuple)
        | items
        | items.map(OrderedDict)
        | items.map(lambda found: defaultdict(list, found))
        | items.map(lambda found: Noted("n", **found))
        | st.builds(Pair, part, part)
    )


NESTS = st.recursive(st.integers(0, 9) | st.none() | st.just("text"), grown, max_leaves=10)


def at(nest, path):
    return eval(f"nest{path}", {"nest": nest})


@given(NESTS)
@settings(max_examples=20)
def test_nests_are_rebuilt_and_their_leaves_found(nest):
    leaves, structure = tree.flatten(nest)
    again = tree.unflatten(structure, leaves)
    assert repr(again) == repr(nest) and type(again) is type(nest)
    assert tree.flatten(again) == (leaves, structure)
    assert tree.flatten_up_to(structure, nest) == leaves
    paths = tree.paths(structure)
    assert [at(nest, path) for path in paths] == leaves and len({*paths}) == len(paths)
    twice = tree.map_leaves(lambda x, y: (x, y), nest, again)
    assert tree.flatten_up_to(structure, twice) == [(x, x) for x in leaves]


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (int("1" * 20), int("1" * 20), True),
        ("".join(["a", "b"]), "ab", True),
        (float("nan"), float("nan"), True),
        (1, True, False),
        (1, 1.0, False),
        (1, 2, False),
        ([1], [1], False),
        (len, len, True),
    ],
)
def test_attributes_compare_by_value_if_they_are_plain(one, other, same):
    first, second = (tree.flatten(Noted(note, a=1))[1] for note in (one, other))
    assert (first == second) is same
    assert tree.unflatten(first, [2]).note is one


def test_other_nests_do_not_fit_a_structure():
    structure = tree.flatten({"a": [1, 2], "b": 3})[1]
    assert tree.flatten_up_to(structure, {"a": [1, (2,)], "b": {}}) == [1, (2,), {}]
    for wrong in ({"a": [1], "b": 3}, {"a": (1, 2), "b": 3}, {"b": 3, "a": [1, 2]}, 5):
        with pytest.raises(ValueError, match="in place of"):
            tree.flatten_up_to(structure, wrong)


def test_instances_are_found_once():
    shared, cycle = ef.tensor(1.0), []
    cycle += [cycle, shared, {"a": (shared, 2, "b")}, Noted("c", d=2.5)]
    assert tree.instances(cycle, (ef.Tensor, str)) == [shared, "b"]
    assert tree.instances(cycle, (int, float)) == [2, 2.5]
