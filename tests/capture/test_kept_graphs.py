"""What traces keep: bounded tables, and no argument beyond its life."""

import copy
import gc
import importlib
import os
import pickle
import tracemalloc
import weakref

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.plan.replay import CALLS_BEFORE_PLAN
from eagerflow.runtime.clock_cache import ClockCache

X = ef.tensor([1.0, 2.0, 3.0])
MOST = 3_000  # bytes a call: tables with bounds fill up; a graph that is kept has 15,000


class Box:
    def __init__(self, k):
        self.k = k

    def times(self, x):
        return x * self.k

    @ef.function
    def step(self, x):
        return x * self.k


class Slotted:
    __slots__ = ("__weakref__", "k")

    def __init__(self, k):
        self.k = k

    def __eq__(self, other):
        return True

    def __hash__(self):
        return 1

    @ef.function
    def step(self, x):
        return x * self.k


RATE = [1.0]


def retraces():
    step = ef.function(lambda x: ef.tanh(x) * RATE[0])

    def once(i):
        RATE[0] = float(i % 50)
        step(X)

    return once


def objects():
    step = ef.function(lambda x, box: box.times(x) + box.k)
    return lambda i: step(X, Box(float(i % 50)))


def functions():
    step = ef.function(lambda x, f: f(x))
    return lambda i: step(X, lambda x: x * 2.0)


def instances():
    return lambda i: Box(2.0).step(X)


def shapes():
    step = ef.function(lambda x: ef.tanh(x) * 2.0, max_graphs=8)
    wide = np.zeros((100, 100), "float32")
    return lambda i: step(ef.asarray(wide[: i % 100 + 1, : i // 100 + 1]))


def sizes():
    spec = ef.TensorSpec((None, None), "float32")
    step = ef.function(lambda x: ef.tanh(x) * 2.0, input_signature=[spec], max_graphs=8)
    wide = np.zeros((100, 100), "float32")
    return lambda i: step(ef.asarray(wide[: i % 100 + 1, : i // 100 + 1]))


KINDS = {
    "a changed global": retraces,
    "objects": objects,
    "functions": functions,
    "instances": instances,
    "shapes": shapes,
    "free sizes": sizes,
}


def growth(once, warm, count):
    """Bytes that are held more after some calls, none of which is like another."""
    for i in range(warm):
        once(i)
    gc.collect()
    tracemalloc.start(1)
    try:
        for i in range(warm, warm + count):
            once(i)
        gc.collect()
        return tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()


@pytest.mark.sampled(8)
@pytest.mark.parametrize("kind", KINDS)
def test_calls_that_are_traced_anew_leave_nothing(kind):
    count = 200
    found = growth(KINDS[kind](), 80, count)
    print(f"{kind}: {found / count:.0f} bytes each")
    assert found < count * MOST


def resident():
    gc.collect()
    ef.empty_cache()  # the allocator's cached blocks have no owner
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


@pytest.mark.soak
@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="needs Linux's /proc")
@pytest.mark.parametrize("kind", KINDS)
def test_ten_thousand_retraces_grow_memory_by_under_a_megabyte(kind):
    once = KINDS[kind]()
    for i in range(0, 10_000, 10):  # what is loaded once, as the compiler, and fills up once
        once(i)
    before = resident()
    for i in range(10_000):
        once(i)
    grown = resident() - before
    print(f"{kind}: {grown / 1e6:.2f} MB")
    assert grown < 1_000_000


def test_replaced_graphs_are_let_go():
    rate = [0.5]
    step = ef.function(lambda x: x * rate[0])
    step(X)
    first = weakref.ref(step.graphs[0])
    for value in (0.25, 0.125):
        rate[0] = value
        assert step(X).tolist() == (X * value).tolist()
    gc.collect()
    assert first() is None
    assert len(step.graphs) == 1
    assert step.explain().count("changed from") == 2


def test_graphs_go_with_their_objects():
    step = ef.function(lambda x, box, f: f(box.times(x)) + box.k)
    box, f = Box(2.0), lambda x: x * 2.0
    assert step(X, box, f).tolist() == [6.0, 10.0, 14.0]
    assert len(step.graphs) == 1
    box.k = 3.0
    assert step(X, box, f).tolist() == [9.0, 15.0, 21.0]
    box.times = Box(5.0).times  # another object's method
    assert step(X, box, f).tolist() == [13.0, 23.0, 33.0]
    gone = weakref.ref(box)
    del box.times
    del box
    assert gone() is None, "no collection is needed"
    assert step.graphs == []
    assert step.explain().count("\n") == 3  # in words it is still told


def test_another_object_in_the_same_place_is_another():
    step = ef.function(lambda x, box: x * box.k)
    seen = set()
    for i in range(50):
        box = Box(float(i))
        seen.add(id(box))
        assert step(X, box).tolist() == (X * float(i)).tolist()
        del box
    assert len(seen) < 50, "no identity was used twice, so nothing was shown"


def test_objects_without_weak_references_are_held_up_to_the_bound():
    class Bare:
        __slots__ = ("k",)

    step = ef.function(lambda x, bare: x * bare.k, max_graphs=2)
    for i in range(10):
        bare = Bare()
        bare.k = float(i)
        assert step(X, bare).tolist() == (X * float(i)).tolist()
        del bare
    assert len(step.graphs) == 2
    assert "8 graphs that had not been used lately were dropped" in step.explain()


def test_recently_used_graph_is_kept():
    step = ef.function(lambda x: x + len(x), max_graphs=4)
    kept = step.graph(ef.zeros(1))
    for i in range(2, 40):
        step(ef.zeros(1))
        step(ef.zeros(i))
    assert step.graph(ef.zeros(1)) is kept
    assert len(step.graphs) == 4
    assert step.max_graphs == 4


def test_plans_of_free_sizes_are_bounded():
    spec = ef.TensorSpec((None,), "float32")
    step = ef.function(lambda x: x + 1, input_signature=[spec], max_graphs=3)
    for i in range(1, 10):
        for _ in range(4 * CALLS_BEFORE_PLAN + 1):
            step(ef.zeros(i))
    assert "6 plans that had not been used lately were dropped" in step.explain()
    assert len(step.graphs) == 1


def test_explain_truncates_long_trace_histories():
    rate = [0.0]
    step = ef.function(lambda x: x * rate[0])
    for i in range(100):
        rate[0] = float(i)
        step(X)
    text = step.explain()
    assert text.startswith("<lambda>" if "<lambda>" in text else "lambda was traced 100 times")
    assert "the last 64 are listed" in text
    assert "\n  37. " in text
    assert "\n  100. " in text
    assert "\n  36. " not in text


@pytest.mark.parametrize("bound", [0, -1, 2.0, True, "8"])
def test_bounds_that_are_none_are_refused(bound):
    with pytest.raises(ef.errors.ArgumentError, match="max_graphs"):
        ef.function(lambda x: x, max_graphs=bound)


def test_new_items_make_others_give_buffers_back():
    class Item:
        used = True
        released = 0

        def release(self):
            self.released += 1

    table, first = ClockCache(2), Item()
    table.add("a", first)
    table.add("b", Item())
    assert first.released == 1
    assert table.add("c", Item()) == [first]
    assert list(table.items) == ["b", "c"]


# Methods -----------------------------------------------------------------------------------------


def copied(box):
    return copy.copy(box)


def copied_deeply(box):
    return copy.deepcopy(box)


def pickled(box):
    return pickle.loads(pickle.dumps(box))


def updated(box):
    other = Box(0.0)
    other.step(X)
    other.__dict__.update(box.__dict__)
    return other


def updated_before(box):
    other = Box(0.0)
    other.__dict__.update(box.__dict__)
    return other


@pytest.mark.parametrize("way", [copied, copied_deeply, pickled, updated, updated_before])
def test_copies_have_attributes_of_their_own(way):
    box = Box(2.0)
    assert box.step(X).tolist() == [2.0, 4.0, 6.0]
    other = way(box)
    other.k = 10.0
    assert other.step(X).tolist() == [10.0, 20.0, 30.0]
    assert box.step(X).tolist() == [2.0, 4.0, 6.0]
    box.k = 3.0
    assert box.step(X).tolist() == [3.0, 6.0, 9.0]
    assert other.step(X).tolist() == [10.0, 20.0, 30.0]
    assert box.step is not other.step
    assert box.step is box.step


def test_slotted_instances_that_compare_equal_are_two():
    one, two = Slotted(2.0), Slotted(10.0)
    assert one == two
    for _ in range(2):
        assert one.step(X).tolist() == [2.0, 4.0, 6.0]
        assert two.step(X).tolist() == [10.0, 20.0, 30.0]
    assert one.step is one.step
    assert one.step is not two.step


def test_a_class_made_again_has_methods_of_its_own():
    def make(factor):
        class Made:
            @ef.function
            def step(self, x):
                return x * factor

        return Made

    first, second = make(2.0), make(10.0)
    own = first()
    assert own.step(X).tolist() == [2.0, 4.0, 6.0]
    own.__class__ = second
    assert own.step(X).tolist() == [10.0, 20.0, 30.0]


def test_unreferenced_instances_are_collected():
    for make in (Box, lambda k: copy.copy(Box(k))):
        box = make(2.0)
        box.step(X)
        gone = weakref.ref(box)
        del box
        gc.collect()
        assert gone() is None


# Leaks of values ---------------------------------------------------------------------------------


def cyclic(x):
    y = x * 2.0

    def loop(i):
        return y if i == 0 else loop(i - 1) * 2.0

    return loop(3)


def with_metrics():
    model = ef.nn.Sequential([ef.nn.Dense(1)])
    model.compile("sgd", "mse", metrics=["mae"])
    x = np.ones((7, 3), "float32")
    return lambda: model.fit(x, x[:, :1], batch_size=4, verbose=0)


@pytest.mark.parametrize(
    "call", [lambda: ef.function(cyclic)(X), lambda: ef.capture.trace(cyclic, X), with_metrics()]
)
def test_no_leak_is_found_without_walking_all_memory(call, monkeypatch):
    module = importlib.import_module("eagerflow.capture.leaks")
    asked = []

    class Spy:
        def __getattr__(self, name):
            return getattr(gc, name)

        def collect(self, generation=2):
            asked.append(generation)
            return gc.collect(generation)

        def get_referrers(self, *objects):
            asked.append("referrers")
            return gc.get_referrers(*objects)

    monkeypatch.setattr(module, "gc", Spy())
    call()
    assert set(asked) <= {0}, asked
    assert gc.isenabled()


def test_collection_goes_on_after_errors():
    def fails(x):
        raise KeyError("mine")

    with pytest.raises(KeyError):
        ef.function(fails)(X)
    assert gc.isenabled()
    gc.disable()
    try:
        ef.function(cyclic)(X)
        assert not gc.isenabled()
    finally:
        gc.enable()
