"""Graphviz text of graphs: each node within the clusters of its scopes, each use an edge."""

import re

import eagerflow as ef


def read(text):
    """The clusters of each box, its label and its edges, in the order of the text."""
    clusters, places, labels, edges = [], {}, {}, []
    for line in text.splitlines()[1:-1]:
        if "subgraph" in line:
            clusters.append(None)
        elif line.strip() == "}":
            clusters.pop()
        elif found := re.match(r" +(\w+) -> (\w+) ", line):
            edges.append(found.groups())
        elif clusters and clusters[-1] is None:
            clusters[-1] = re.match(r' +label="(.*?)";', line)[1]
        elif found := re.match(r' +([no]\d+_\d+) \[.*?label="(.*?)["\\]', line):
            places[found[1]], labels[found[1]] = list(clusters), found[2]
    assert not clusters
    return places, labels, edges


def test_boxes_lie_in_the_clusters_of_their_scopes():
    def f(x):
        with ef.capture.scope("encoder"):
            a = ef.sin(x)
            with ef.capture.scope("dense"):
                b = ef.tanh(a)
            c = ef.square(b)
        d = ef.cos(c)
        with ef.capture.scope("decoder"), ef.capture.scope("dense"):
            return {"y": ef.exp(d) + a, "d": d}

    graph = ef.capture.trace(f, ef.TensorSpec((2,), "float32"))
    places, labels, edges = read(graph.to_dot())
    found = {labels[box]: "/".join(where) for box, where in places.items()}
    scopes = {node.op.name: node.scope for node in graph.nodes}
    assert found == scopes | {"x": "", "y": "", "d": ""}
    assert {(labels[a], labels[b]) for a, b in edges} == {
        *(("x", "sin"), ("sin", "tanh"), ("tanh", "square"), ("square", "cos"), ("cos", "exp")),
        *(("exp", "add"), ("sin", "add"), ("add", "y"), ("cos", "d")),
    }


def test_bodies_of_loops_have_clusters_and_edges_to_their_node():
    def f(x):
        return ef.while_loop(lambda x: ef.sum(x) < 9.0, lambda x: ef.exp(x), x)

    graph = ef.capture.trace(f, ef.TensorSpec((2,), "float32"))
    places, labels, edges = read(graph.to_dot())
    (loop,) = graph.nodes
    (node,) = (box for box, label in labels.items() if label == loop.op.name)
    inner = {labels[box]: where for box, where in places.items() if where}
    assert {"sum", "less", "exp"} <= {*inner}
    assert inner["sum"] != inner["exp"] and len(inner["exp"]) == 1
    assert len([1 for start, end in edges if end == node and start[0] == "o"]) == 2
