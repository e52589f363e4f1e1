"""ONNX's own tests, which come inside its package, through import_onnx and a session.

``python -m tests.onnx.reading.node_tests`` writes the list of refused tests, and counts.
"""

import functools
import textwrap
import warnings
from collections import Counter, defaultdict
from dataclasses import replace
from pathlib import Path

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


@functools.cache
def model_tests():
    """Small models, and those that PyTorch has written, by name."""
    from onnx.backend.test.loader import load_model_tests

    kinds = ("simple", "pytorch-converted", "pytorch-operator")
    cases = [case for kind in kinds for case in load_model_tests(kind=kind)]
    return {case.name.removeprefix("test_"): _read(case) for case in cases}


def _read(case):
    """A case with its model and its tensors, which some have in files."""
    import onnx

    if case.model is not None:
        return case
    folder = Path(case.model_dir)
    model = onnx.load(folder / "model.onnx")
    data = []
    for one in sorted(folder.glob("test_data_set_*")):
        graph = model.graph
        data.append((_tensors(one, "input", graph.input), _tensors(one, "output", graph.output)))
    return replace(case, model=model, data_sets=data)


def _tensors(folder, kind, infos):
    import onnx

    found = []
    for i, info in enumerate(infos):
        path = folder / f"{kind}_{i}.pb"
        if path.exists():  # initializers are inputs too, in old files
            is_list = info.type.HasField("sequence_type")
            proto = (onnx.SequenceProto if is_list else onnx.TensorProto)()
            proto.ParseFromString(path.read_bytes())
            read = onnx.numpy_helper.to_list if is_list else onnx.numpy_helper.to_array
            found.append(read(proto))
    return found


def array(x):
    """An input or output of a case: some are written as protos, some are sequences."""
    import onnx

    if isinstance(x, list):
        return [array(part) for part in x]
    return onnx.numpy_helper.to_array(x) if isinstance(x, onnx.TensorProto) else x


def outcome(case):
    """``"passed"``, ``"wrong: ..."``, or the set of problems for which the model is refused.

    Errors that depend on the values of inputs are raised when the graph runs.
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
    for info in case.model.graph.input:  # nor do sizes that are known by name stand for 0
        sizes = info.type.tensor_type.shape.dim
        own = getattr(given.get(info.name), "shape", ())
        if any(size.dim_param and not n for size, n in zip(sizes, own, strict=False)):
            bound[info.name] = given[info.name]
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


def report(cases):
    """Write the list of refused tests, and count."""
    counts, reasons = Counter(), defaultdict(list)
    for name, case in cases.items():
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
        names = textwrap.fill(" ".join(sorted(reasons[reason])), 92)
        print(f'    "{reason}": """')
        print(textwrap.indent(names, 8 * " "))
        print('    """.split(),')
    print("}")


if __name__ == "__main__":
    report(node_tests())
    report(model_tests())
