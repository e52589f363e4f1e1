"""Objects in containers that a function walks over."""

import copy
import functools
import itertools

from tests.capture.guards.changes import Thing, notice


def in_list(read):
    """A function that reads the rates of objects in a list; that of the last one changes."""
    things = [Thing(rate=r, name=str(r)) for r in (0.1, 0.5, 0.3)]
    return (lambda x: read(things, x)), lambda: setattr(things[-1], "rate", 0.9)


@notice
def a_loop():
    def read(things, x):
        for thing in things:
            x = x * thing.rate
        return x

    return in_list(read)


@notice
def a_loop_on_one_line():
    def read(things, x):
        for thing in things: x = x * thing.rate  # noqa: E701 # fmt: skip
        return x

    return in_list(read)


@notice
def a_loop_that_counts():
    def read(things, x):
        for i, thing in enumerate(things):
            x = x * thing.rate + i
        return x

    return in_list(read)


@notice
def a_loop_over_indices():
    def read(things, x):
        for i in range(len(things)):
            x = x * things[i].rate
        return x

    return in_list(read)


@notice
def a_loop_over_pairs():
    def read(things, x):
        for thing, number in zip(things, itertools.count(), strict=False):
            x = x * thing.rate + number
        return x

    return in_list(read)


@notice
def a_comprehension():
    return in_list(lambda things, x: [x * thing.rate for thing in things])


@notice
def a_generator_expression():
    return in_list(lambda things, x: sum(x * thing.rate for thing in things))


@notice
def a_generator():
    def rates(things):
        for thing in things:
            yield thing.rate

    return in_list(lambda things, x: [x * rate for rate in rates(things)])


@notice
def a_sort_by_a_key():
    return in_list(lambda things, x: sorted(things, key=lambda t: t.rate)[-1].name)


@notice
def the_largest_by_a_key():
    return in_list(lambda things, x: max(things, key=lambda t: t.name).rate + things[-1].rate)


@notice
def a_map():
    return in_list(lambda things, x: list(map(lambda t: x * t.rate, things)))  # noqa: C417


@notice
def a_reduction():
    return in_list(lambda things, x: functools.reduce(lambda y, t: y * t.rate, things, x))


@notice
def an_unpacking():
    def read(things, x):
        _, _, last = things
        return x * last.rate

    return in_list(read)


@notice
def a_walk_backwards():
    return in_list(lambda things, x: next(iter(reversed(things))).rate)


@notice
def a_copy_of_the_list():
    return in_list(lambda things, x: list(things)[-1].rate)


@notice
def values_of_a_dict():
    things = {"a": Thing(rate=0.1), "b": Thing(rate=0.2)}

    def f(x):
        for name, thing in things.items():
            x = x * thing.rate + len(name)
        return x

    return f, lambda: setattr(things["b"], "rate", 0.9)


@notice
def a_dict_in_a_dict_by_its_values():
    table = {"a": {"rate": 0.1}}

    def f(x):
        for inner in table.values():
            x = x * inner["rate"]
        return x

    return f, lambda: table["a"].update(rate=0.9)


@notice
def a_temporary_copy_of_values():
    table = {"a": {"rate": 0.1}}
    return (
        lambda x: x * list(table.values())[0]["rate"],  # noqa: RUF015
        lambda: table["a"].update(rate=0.9),
    )


@notice
def a_deep_copy():
    table = {"a": [0.1]}
    return (lambda x: copy.deepcopy(table)["a"][0]), lambda: table["a"].__setitem__(0, 0.2)
