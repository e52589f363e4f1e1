"""Records: attributes by place and name, defaults, copies, equality."""

from __future__ import annotations

import copy
import pickle
from typing import Any, ClassVar

import pytest

from eagerflow.records import Frozen, Record, fresh


class Point(Frozen):
    x: int
    y: int = 2
    dimensions: ClassVar[int] = 2


class Named(Point):
    name: str = "p"


class Counter(Record):
    start: int
    seen: list[Any] = fresh(default_factory=list)
    cache: dict[Any, Any] = fresh(default_factory=dict, init=False)


def test_places_names_and_defaults():
    assert Point(1).y == 2 == Point(1, y=2).y == Point(y=2, x=1).y
    assert (Named(1, 5).x, Named(1, 5).y, Named(1, 5).name) == (1, 5, "p")
    assert repr(Named(1)) == "Named(x=1, y=2, name='p')"


@pytest.mark.parametrize(
    ("args", "named"), [((), {}), ((1, 2, 3), {}), ((1,), {"z": 1}), ((1, 2), {"y": 2})]
)
def test_mismatched_arguments_are_refused(args, named):
    with pytest.raises(TypeError, match="Point"):
        Point(*args, **named)


def test_frozen_ones_are_values():
    assert Point(1, 2) == Point(1) != Point(2)
    assert Point(1) != Named(1)
    assert len({Point(1), Point(1, 2), Point(3)}) == 2
    with pytest.raises(AttributeError, match="x"):
        Point(1).x = 3
    with pytest.raises(AttributeError, match="x"):
        del Point(1).x
    assert pickle.loads(pickle.dumps(Point(4))) == Point(4) == copy.deepcopy(Point(4))


def test_mutable_fields_are_not_shared_between_records():
    one, two = Counter(1), Counter(1)
    one.seen.append(3)
    one.cache["a"] = 1
    assert two.seen == [] and one != two
    other = one.replaced(start=5)
    assert (other.start, other.seen, other.cache) == (5, [3], {})
