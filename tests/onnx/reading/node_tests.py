"""ONNX's own tests of operators, which come inside its package, through import_onnx and a session.

``python -m tests.onnx.reading.node_tests`` writes the list of what is refused, and counts.
"""

import functools
import warnings
from collections import Counter, defaultdict

import numpy as np

import eagerflow as ef


@functools.cache
def node_tests():
    """All of them, by name."""
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of NumPy, where the cases overflow on purpose
        cases = load_model_tests(kind="node")
        return {case.name.removeprefix("test_"): case for case in cases}


def array(x):
    """An input or output of a case: some are written as protos, some are sequences."""
    import onnx

    if isinstance(x, list):
        return [array(part) for part in x]
    return onnx.numpy_helper.to_array(x) if isinstance(x, onnx.TensorProto) else x


def outcome(case):
    """``"passed"``, ``"wrong: ..."``, or the set of problems for which the model is refused.

    What follows from the values of inputs is refused when the graph runs.
    """
    try:
        found = [_difference(case, *data) for data in case.data_sets]
    except ef.errors.ArgumentError as error:
        if not hasattr(error, "problems"):
            raise
        return {(p.operator, p.domain, p.reason) for p in error.problems}
    return next(filter(None, found), "passed")


def _difference(case, inputs, outputs):
    names = [info.name for info in case.model.graph.input]
    given = dict(zip(names, map(array, inputs), strict=False))
    # A sequence, or an optional that is missing, is no tensor, and so no input of a graph.
    bound = {n: x for n, x in given.items() if x is None or isinstance(x, list)}
    graph = ef.capture.import_onnx(case.model.SerializeToString(), values=bound)
    feeds = {name: given[name] for name in graph.inputs.names}
    found = ef.capture.Session(graph).run(list(graph.outputs.names), feeds)
    wanted = {}
    for info, y in zip(case.model.graph.output, map(array, outputs), strict=True):
        is_list = isinstance(y, list)
        parts = {f"{info.name}[{i}]": part for i, part in enumerate(y)} if is_list else {}
        wanted |= parts if is_list else {info.name: y}
    if tuple(wanted) != graph.outputs.names:
        return f"wrong: outputs {graph.outputs.names}, not {tuple(wanted)}"
    for y, (name, x) in zip(found, wanted.items(), strict=True):
        if y.shape != x.shape or y.dtype != x.dtype:
            return f"wrong: {name} is {y.dtype}{y.shape}, not {x.dtype}{x.shape}"
        if not _close(y.numpy(), x, case.rtol, case.atol):
            return f"wrong: {name} has other values"
    return None


# The reference rounds each step of an operator to these, where ours round its result alone.
UNITS = {"float16": 2 * 2.0**-10, "bfloat16": 2 * 2.0**-7}


def _close(y, x, rtol, atol):
    if y.dtype.kind in "biu":
        return np.array_equal(y, x)
    rtol = max(rtol, UNITS.get(y.dtype.name, 0.0))
    wide = "complex128" if y.dtype.kind == "c" else "float64"
    return np.allclose(y.astype(wide), x.astype(wide), rtol=rtol, atol=atol, equal_nan=True)


def words(problems):
    """The reasons of all problems of a model, in words."""
    return "; ".join(sorted({f"{operator}: {reason}" for operator, _, reason in problems}))


def report():
    """Write the list of what is refused, and count."""
    counts, reasons = Counter(), defaultdict(list)
    for name, case in node_tests().items():
        found = outcome(case)
        if isinstance(found, set):
            counts["refused"] += 1
            reasons[words(found)].append(name)
        else:
            counts[found.partition(":")[0]] += 1
            if found != "passed":
                print("#", name, found)
    print("#", dict(counts))
    print("REFUSED = {")
    for reason in sorted(reasons, key=lambda reason: (-len(reasons[reason]), reason)):
        print(f"    {reason!r}: (")
        for name in sorted(reasons[reason]):
            print(f"        {name!r},")
        print("    ),")
    print("}")


if __name__ == "__main__":
    report()
