"""Data that is kept on graphs: by function and arguments, for each graph."""

import eagerflow as ef
from eagerflow.graph.cache import Slot, kept

CALLS = []


@kept
def first(graph, *args):
    CALLS.append(args)
    return [graph, *args]


@kept
def second(graph, *args):
    return (graph, *args)


def graph():
    return ef.capture.trace(lambda x: x + 1.0, ef.TensorSpec((), "float32"))


def test_results_are_kept_by_graph_function_and_arguments():
    graphs, arguments = [graph(), graph()], [(), (1,), (2,), (1, 2), ((1, 2),)]
    made = {(g, args): first(g, *args) for g in graphs for args in arguments}
    for (g, args), found in made.items():
        assert found == [g, *args]
        assert first(g, *args) is found
        assert second(g, *args) == (g, *args)
    assert [*CALLS] == arguments * 2


def test_slots_are_apart():
    one, other, own = Slot(), Slot(), graph()
    one.set(own, 1)
    other.set(own, 2)
    assert (one.of(own), other.of(own), one.of(graph())) == (1, 2, None)
