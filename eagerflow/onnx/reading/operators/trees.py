"""Ensembles of decision trees (``ai.onnx.ml``), as tables of nodes, traversed in parallel.

Each step advances every tree of every example from its node to the next, by table lookup. Leaves
lead to themselves, so that the depth of the deepest tree is the number of steps.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from eagerflow import ops
from eagerflow.convert import as_tensor
from eagerflow.onnx.reading.calls import LEARNING, Call, known, operator
from eagerflow.onnx.reading.operators.scores import features_of, labels_of, transformed

MAX_STEPS = 1000
_LEAF = "LEAF"
_COMPARE = {
    "BRANCH_LEQ": ops.less_equal,
    "BRANCH_LT": ops.less,
    "BRANCH_GTE": ops.greater_equal,
    "BRANCH_GT": ops.greater,
    "BRANCH_EQ": ops.equal,
    "BRANCH_NEQ": ops.not_equal,
}


class _Forest(NamedTuple):
    """Tables with a row for each node of all trees, and the rows of the ``roots``.

    ``places`` maps the numbers of a tree and a node to a row.
    """

    places: dict[tuple[int, int], int]
    roots: Any
    modes: Any
    features: Any
    values: Any
    then: Any
    otherwise: Any
    missing: Any
    """Whether NaN takes the branch of ``then``."""
    steps: int


def _forest(call: Call, nodes: dict[str, Any], width: Any) -> _Forest:
    """The tables from a node's attributes; Refused if they are not trees."""
    trees, numbers = nodes.get("nodes_treeids", ()), nodes.get("nodes_nodeids", ())
    places = {key: row for row, key in enumerate(zip(trees, numbers, strict=False))}
    values = _numbers(nodes, "nodes_values")
    modes = np.asarray(nodes.get("nodes_modes", ()), object)
    features = np.asarray(nodes.get("nodes_featureids", ()), "int64")
    missing = np.asarray(nodes.get("nodes_missing_value_tracks_true") or (0,) * len(trees)) != 0
    ways = [nodes.get("nodes_truenodeids", ()), nodes.get("nodes_falsenodeids", ())]
    columns = [trees, numbers, values, modes, features, missing, *ways]
    if not places or any(len(column) != len(places) for column in columns):
        call.refuse("nodes of trees that are missing, come twice, or differ in number")
    is_leaf = modes == _LEAF
    features = np.where(is_leaf, 0, features)
    if set(modes) - _COMPARE.keys() - {_LEAF}:
        call.refuse(f"nodes of the mode {sorted(set(modes) - _COMPARE.keys() - {_LEAF})[0]!r}")
    if features.min() < 0 or not isinstance(width, int) or features.max() >= width:
        call.refuse(f"features up to {features.max()} of examples that have {width}")
    rows = np.arange(len(places))
    then, otherwise = (
        np.where(is_leaf, rows, [places.get(key, -1) for key in zip(trees, way, strict=True)])
        for way in ways
    )
    if min(then.min(), otherwise.min()) < 0:
        call.refuse("a node that leads to none of its tree")
    roots = np.unique(np.asarray(trees), return_index=True)[1]
    steps = _steps(call, roots, then, otherwise)
    return _Forest(places, roots, modes, features, values, then, otherwise, missing, steps)


def _numbers(attributes: dict[str, Any], name: str) -> Any:
    """Numbers from an attribute of floats or from a tensor attribute."""
    tensor = attributes.get(f"{name}_as_tensor")
    return np.asarray(attributes.get(name, ()), "float32") if tensor is None else known(tensor)


def _steps(call: Call, here: Any, then: Any, otherwise: Any) -> int:
    """The number of steps from all roots to leaves; at least one."""
    steps = 0
    while (then[here] != here).any() or (otherwise[here] != here).any():
        steps += 1
        if steps > MAX_STEPS:
            call.refuse(f"trees with a way that does not end within {MAX_STEPS} steps")
        here = np.unique([then[here], otherwise[here]])
    return max(steps, 1)


def _leaves(x: Any, forest: _Forest) -> Any:
    """The rows of the leaves: (examples, trees)."""
    dtype = np.result_type(x.dtype, forest.values.dtype)
    x = ops.astype(x, dtype)
    values = forest.values.astype(dtype)
    used = [mode for mode in _COMPARE if (forest.modes == mode).any()] or ["BRANCH_LEQ"]
    rows: Any = None

    def of(table: Any) -> Any:
        """A lookup in a table by rows, which are the roots at first."""
        if rows is None:
            return as_tensor(table[forest.roots])
        return ops.take(as_tensor(table), rows)

    for _ in range(forest.steps):
        feature, value = of(forest.features), of(values)
        found = (
            ops.take(x, feature, axis=1)
            if rows is None
            else ops.take_along_axis(x, feature, axis=1)
        )
        yes = _COMPARE[used[0]](found, value)
        for mode in used[1:]:
            yes = ops.where(of(forest.modes == mode), _COMPARE[mode](found, value), yes)
        if forest.missing.any() or "BRANCH_NEQ" in used:
            yes = ops.where(ops.isnan(found), of(forest.missing), yes)
        rows = ops.where(yes, of(forest.then), of(forest.otherwise))
    return rows


def _weights(
    call: Call, forest: _Forest, attributes: dict[str, Any], of: str, count: int, fill: float = 0.0
) -> Any:
    """The weights of each row of the tables: (nodes, results); ``fill`` where missing."""
    weights = _numbers(attributes, f"{of}_weights")
    columns = [attributes.get(f"{of}_{part}", ()) for part in ("treeids", "nodeids", "ids")]
    if count < 1 or any(len(column) != len(weights) for column in columns):
        call.refuse(f"weights of leaves that differ in number, or {count} results")
    table = np.full((len(forest.places), count), fill, weights.dtype)
    for tree, number, result, weight in zip(*columns, weights, strict=True):
        row = forest.places.get((tree, number))
        if row is None or not 0 <= result < count:
            call.refuse("a weight of a leaf or a result that there is not")
        table[row, result] = weight if fill else table[row, result] + weight
    return table


def _with_base(call: Call, found: Any, attributes: dict[str, Any]) -> Any:
    base = _numbers(attributes, "base_values")
    if len(base) not in (0, 1, found.shape[1]):
        call.refuse(f"{len(base)} base values for {found.shape[1]} results")
    return found + as_tensor(base.astype(found.dtype)) if len(base) else found


@operator("TreeEnsembleRegressor", domain=LEARNING)
def tree_ensemble_regressor(
    call: Call,
    x: Any,
    n_targets: int = 1,
    aggregate_function: str = "SUM",
    post_transform: str = "NONE",
    **attributes: Any,
) -> Any:
    """The sum, mean, minimum or maximum of the leaves' weights over the trees."""
    x = features_of(call, x)
    forest = _forest(call, attributes, x.shape[1])
    fill = {"MIN": np.inf, "MAX": -np.inf, "SUM": 0.0, "AVERAGE": 0.0}.get(aggregate_function)
    if fill is None:
        call.refuse(f"the aggregate_function {aggregate_function}")
    table = _weights(call, forest, attributes, "target", n_targets, fill)
    joined = {"MIN": ops.min, "MAX": ops.max}.get(aggregate_function, ops.sum)
    found = joined(ops.take(as_tensor(table), _leaves(x, forest), axis=0), axis=1)
    if aggregate_function == "AVERAGE":
        found = found / len(forest.roots)
    found = _with_base(call, found, attributes)
    return ops.astype(transformed(call, found, post_transform), "float32")


@operator("TreeEnsembleClassifier", domain=LEARNING)
def tree_ensemble_classifier(
    call: Call,
    x: Any,
    classlabels_int64s: Any = (),
    classlabels_strings: Any = (),
    post_transform: str = "NONE",
    **attributes: Any,
) -> Any:
    """The label of the class with the highest score, and the scores: sums of weights.

    If the weights belong to one of two classes, it is the second. The score of the first is 1 minus
    that score, or its negative if a ``post_transform`` follows.
    """
    x = features_of(call, x)
    forest = _forest(call, attributes, x.shape[1])
    count = len(classlabels_int64s or classlabels_strings)
    ids = attributes.get("class_ids", ())
    alone = count == 2 and len(set(ids)) == 1
    if alone:
        attributes = attributes | {"class_ids": (0,) * len(ids)}
    table = _weights(call, forest, attributes, "class", 1 if alone else count)
    scores = ops.sum(ops.take(as_tensor(table), _leaves(x, forest), axis=0), axis=1)
    scores = _with_base(call, scores, attributes)
    if alone:
        first = 1 - scores if post_transform == "NONE" else -scores
        scores = ops.concat([first, scores], axis=1)
    places = ops.argmax(scores, axis=1)
    label = labels_of(call, places, classlabels_int64s, classlabels_strings, count)
    return label, ops.astype(transformed(call, scores, post_transform), "float32")
