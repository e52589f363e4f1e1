"""Containers that change in place."""

import collections
import enum
import json

import numpy as np

import eagerflow as ef
from tests.capture.guards.changes import ignore, notice


def changing(value, read, change):
    """A function that reads a container, which ``change`` changes in place."""
    return (lambda x: read(value, x)), lambda: change(value)


@notice
def an_item_of_a_dict():
    return changing({"lr": 0.1}, lambda c, x: x * c["lr"], lambda c: c.update(lr=0.2))


@notice
def an_item_of_a_mode():
    mode = enum.Enum("Mode", "SLOW FAST")
    return changing(
        {mode.FAST: 1}, lambda c, x: x * c[mode.FAST], lambda c: c.update({mode.FAST: 2})
    )


@notice
def an_item_with_a_computed_key():
    def read(c, x):
        key = "l" + "r"
        return x * c[key]

    return changing({"lr": 0.1}, read, lambda c: c.update(lr=0.2))


@notice
def a_nested_item():
    return changing(
        {"a": {"b": [1, 2]}},
        lambda c, x: x * c["a"]["b"][1],
        lambda c: c["a"]["b"].append(3) or c["a"]["b"].__setitem__(1, 5),
    )


@notice
def an_item_by_get():
    return changing({"lr": 0.1}, lambda c, x: x * c.get("lr", 1), lambda c: c.update(lr=0.2))


@notice
def an_item_that_was_missing():
    return changing({}, lambda c, x: x * c.get("lr", 1), lambda c: c.update(lr=0.2))


@notice
def an_item_that_raised():
    def read(c, x):
        try:
            return c["lr"]
        except KeyError:
            return x

    return changing({}, read, lambda c: c.update(lr=0.2))


@notice
def an_item_is_deleted():
    return changing({"lr": 0.1}, lambda c, x: c.get("lr", x), lambda c: c.clear())


@notice
def a_key_is_asked_for():
    return changing({}, lambda c, x: x if "lr" in c else -x, lambda c: c.update(lr=1))


@notice
def the_order_of_a_dict():
    def change(c):
        c["a"] = c.pop("a")

    return changing({"a": 1, "b": 2}, lambda c, x: [k + "!" for k in c], change)


@notice
def a_sum_of_values():
    return changing({"a": 1.0}, lambda c, x: x * sum(c.values()), lambda c: c.update(a=2.0))


@notice
def keywords_from_a_dict():
    def helper(x, rate=1):
        return x * rate

    return changing({"rate": 2}, lambda c, x: helper(x, **c), lambda c: c.update(rate=3))


@notice
def arguments_from_a_list():
    def helper(x, *rates):
        return x * rates[-1]

    return changing([1, 2], lambda c, x: helper(x, *c), lambda c: c.append(3))


@notice
def a_union_of_dicts():
    return changing({"a": 1}, lambda c, x: (c | {"b": 2})["a"], lambda c: c.update(a=3))


@notice
def a_dict_in_a_display():
    return changing({"a": 1}, lambda c, x: {**c, "b": 2}["a"], lambda c: c.update(a=3))


@notice
def a_list_gets_longer():
    return changing([1], lambda c, x: x * len(c), lambda c: c.append(2))


@notice
def a_list_gets_empty():
    return changing([1], lambda c, x: x if c else -x, lambda c: c.clear())


@notice
def not_a_list():
    return changing([1], lambda c, x: not c, lambda c: c.clear())


@notice
def an_item_of_a_list():
    return changing([1, 2], lambda c, x: x * c[-1], lambda c: c.__setitem__(1, 3))


@notice
def a_slice():
    return changing([1, 2, 3], lambda c, x: c[1:], lambda c: c.__setitem__(2, 4))


@notice
def a_list_is_walked_over():
    return changing([1, 2], lambda c, x: [x * n for n in c], lambda c: c.__setitem__(0, 5))


@notice
def a_list_is_compared():
    return changing([1, 2], lambda c, x: c == [1, 2], lambda c: c.append(3))


@notice
def a_list_is_formatted():
    return changing([1, 2], lambda c, x: f"{c}", lambda c: c.append(3))


@notice
def a_list_is_counted():
    return changing([1, 2], lambda c, x: c.count(2), lambda c: c.append(2))


@notice
def a_list_becomes_text():
    return changing({"a": [1]}, lambda c, x: json.dumps(c), lambda c: c["a"].append(2))


@notice
def a_list_becomes_an_array():
    return changing([[1, 2]], lambda c, x: np.array(c).sum() * x, lambda c: c[0].append(3))


@notice
def a_list_becomes_a_tensor():
    return changing([1.0, 2.0], lambda c, x: str(ef.tensor(c)), lambda c: c.append(3.0))


@notice
def a_list_is_a_shape():
    return changing([2, 3], lambda c, x: str(ef.zeros(c).shape), lambda c: c.reverse())


@notice
def a_list_is_sorted():
    return changing([3, 1], lambda c, x: sorted(c)[0], lambda c: c.append(0))


@notice
def a_list_is_joined():
    return changing(["a"], lambda c, x: ",".join(c), lambda c: c.append("b"))


@notice
def any_of_a_list():
    return changing([0, 0], lambda c, x: any(c), lambda c: c.append(1))


@notice
def a_set_is_asked():
    return changing({1}, lambda c, x: 2 in c, lambda c: c.add(2))


@notice
def a_deque():
    return changing(collections.deque([1, 2]), lambda c, x: c[0], lambda c: c.rotate(1))


@notice
def a_default_dict():
    return changing(collections.defaultdict(int, a=1), lambda c, x: c["a"], lambda c: c.update(a=2))


@notice
def a_counter():
    return changing(collections.Counter("aab"), lambda c, x: c["a"], lambda c: c.update("a"))


@notice
def a_dict_of_the_standard_library():
    return changing(
        collections.UserDict(lr=0.1), lambda c, x: x * c["lr"], lambda c: c.update(lr=0.2)
    )


@notice
def a_chain_of_dicts():
    own = {"lr": 0.1}
    chain = collections.ChainMap(own, {"lr": 1})
    return (lambda x: x * chain["lr"]), lambda: own.update(lr=0.2)


@notice
def a_dict_with_a_method_of_its_own():
    class Config(dict):
        def __getitem__(self, key):
            return super().__getitem__(key) * 2

    return changing(Config(lr=0.1), lambda c, x: x * c["lr"], lambda c: c.update(lr=0.2))


@notice
def an_object_with_items():
    class Config:
        def __init__(self):
            self.values = {"lr": 0.1}

        def __getitem__(self, key):
            return self.values[key]

    return changing(Config(), lambda c, x: x * c["lr"], lambda c: c.values.update(lr=0.2))


@notice
def bytes_that_change():
    return changing(bytearray(b"ab"), lambda c, x: c[0], lambda c: c.__setitem__(0, 99))


@notice
def a_list_inside_a_fresh_one():
    return changing([1], lambda c, x: str([x, c]), lambda c: c.append(2))


@notice
def a_list_that_is_mutated_before_it_is_measured():
    def read(c, x):
        c.append(x)
        return len(c)

    return changing([], read, lambda c: None)


@ignore
def an_item_that_is_not_read():
    return changing({"a": 1, "b": 2}, lambda c, x: x * c["a"], lambda c: c.update(b=3))


@ignore
def a_new_item_that_nobody_reads():
    return changing({"a": 1}, lambda c, x: x * c["a"], lambda c: c.update(c=3))


@ignore
def a_list_that_only_gets_longer():
    history = []

    def f(x):
        history.append(1)
        return x

    return f, lambda: history.append(2)


@ignore
def a_list_made_by_the_function():
    def f(x):
        rows = []
        for i in range(3):
            rows.append(x * i)
        return len(rows), rows[-1], sum(rows)

    return f, lambda: None
