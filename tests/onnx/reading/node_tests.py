"""ONNX's own tests of operators, which come inside its package, through import_onnx and a session.

``python -m tests.onnx.reading.node_tests`` prints how many pass, and what is refused for which
reason.
"""

import functools
import warnings
from collections import Counter

import numpy as np

import eagerflow as ef


@functools.cache
def node_tests():
    """All of them, by name."""
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of NumPy, where the cases overflow on purpose
        return {case.name: case for case in load_model_tests(kind="node")}


def array(x):
    """An input or output of a case: some are written as protos, some are sequences."""
    import onnx

    if isinstance(x, list):
        return [array(part) for part in x]
    return onnx.numpy_helper.to_array(x) if isinstance(x, onnx.TensorProto) else x


def outcome(case):
    """``"passed"``, ``"wrong: ..."``, or the set of problems for which the model is refused."""
    for inputs, outputs in case.data_sets:
        names = [info.name for info in case.model.graph.input]
        given = dict(zip(names, map(array, inputs), strict=False))
        # A sequence, or an optional that is missing, is no tensor, and so no input of a graph.
        bound = {n: x for n, x in given.items() if x is None or isinstance(x, list)}
        try:
            graph = ef.capture.import_onnx(case.model.SerializeToString(), values=bound)
        except ef.errors.ArgumentError as error:
            if not hasattr(error, "problems"):
                raise
            return {(p.operator, p.domain, p.reason) for p in error.problems}
        feeds = {name: given[name] for name in graph.inputs.names}
        found = ef.capture.Session(graph).run(list(graph.outputs.names), feeds)
        wanted = {}
        for info, y in zip(case.model.graph.output, map(array, outputs), strict=True):
            parts = {f"{info.name}[{i}]": part for i, part in enumerate(y)}
            wanted |= parts if isinstance(y, list) else {info.name: y}
        if tuple(wanted) != graph.outputs.names:
            return f"wrong: outputs {graph.outputs.names}, not {tuple(wanted)}"
        for y, (name, x) in zip(found, wanted.items(), strict=True):
            if y.shape != x.shape or y.dtype != x.dtype:
                return f"wrong: {name} is {y.dtype}{y.shape}, not {x.dtype}{x.shape}"
            if not _close(y.numpy(), x, case.rtol, case.atol):
                return f"wrong: {name} has other values"
    return "passed"


def _close(y, x, rtol, atol):
    if y.dtype.kind in "biu":
        return np.array_equal(y, x)
    wide = "complex128" if y.dtype.kind == "c" else "float64"
    return np.allclose(y.astype(wide), x.astype(wide), rtol=rtol, atol=atol, equal_nan=True)


def report():
    """Print the counts, and the reasons."""
    counts, reasons = Counter(), Counter()
    for name, case in node_tests().items():
        found = outcome(case)
        if isinstance(found, set):
            counts["refused"] += 1
            reasons["; ".join(sorted({f"{op}: {why}" for op, _, why in found}))] += 1
        else:
            counts[found.partition(":")[0]] += 1
            if found != "passed":
                print(name, found)
    print(dict(counts))
    for reason, count in reasons.most_common():
        print(f"{count:5} {reason}")


if __name__ == "__main__":
    report()
