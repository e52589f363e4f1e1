"""Models of one node: run here through the importer, and by ONNX Runtime."""

import numpy as np
import onnx
from onnx import helper, numpy_helper

import eagerflow as ef


def model_of(
    operator, inputs, attributes=None, *, outputs=1, opset=22, domain="", constants=(), free=None
):
    """The model of one node.

    ``inputs`` are arrays, or None where they are left out; those at ``constants`` are stored in
    the file, the others are inputs ``x0``, ``x1`` ... whose axes ``free`` have names for sizes.
    """
    names = ["" if x is None else f"x{i}" for i, x in enumerate(inputs)]
    values, stored = [], []
    for i, x in enumerate(inputs):
        if x is None:
            continue
        if i in constants:
            stored.append(numpy_helper.from_array(np.asarray(x), names[i]))
            continue
        shape = list(np.shape(x))
        for axis in (free or {}).get(i, ()):
            shape[axis] = f"n{axis}"
        kind = helper.np_dtype_to_tensor_dtype(np.asarray(x).dtype)
        values.append(helper.make_tensor_value_info(names[i], kind, shape))
    made = [f"y{i}" for i in range(outputs)]
    node = helper.make_node(operator, names, made, domain=domain, **(attributes or {}))
    results = [onnx.ValueInfoProto(name=name) for name in made]
    graph = helper.make_graph([node], "one", values, results, stored)
    imports = [helper.make_opsetid("", opset)]
    if domain:
        imports.append(helper.make_opsetid(domain, 1))
    model = helper.make_model(graph, opset_imports=imports, ir_version=10)
    inferred = onnx.shape_inference.infer_shapes(model)
    kinds = {o.name: o for o in inferred.graph.output}
    for o in model.graph.output:
        o.CopyFrom(kinds[o.name])
    return model


def _feeds(model, inputs):
    wanted = {i.name for i in model.graph.input}
    return {f"x{i}": np.asarray(x) for i, x in enumerate(inputs) if f"x{i}" in wanted}


def ours(operator, inputs, *args, **options):
    """The outputs of the node, imported and run in a session."""
    model = model_of(operator, inputs, *args, **options)
    graph = ef.capture.import_onnx(model.SerializeToString())
    names = [o.name for o in model.graph.output]
    with ef.capture.Session(graph) as session:
        return [y.numpy() for y in session.run(names, _feeds(model, inputs))]


def theirs(operator, inputs, *args, **options):
    """The outputs of the node by ONNX Runtime, without optimizations."""
    import onnxruntime

    model = model_of(operator, inputs, *args, **options)
    settings = onnxruntime.SessionOptions()
    settings.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    settings.intra_op_num_threads = 1
    settings.log_severity_level = 4
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), settings, providers=["CPUExecutionProvider"]
    )
    return session.run(None, _feeds(model, inputs))


def check(operator, inputs, *args, rtol=1e-4, atol=1e-5, **options):
    """Both give the same dtypes, shapes and, within the tolerance, values."""
    found = ours(operator, inputs, *args, **options)
    for ours_, theirs_ in zip(found, theirs(operator, inputs, *args, **options), strict=True):
        assert ours_.dtype == theirs_.dtype
        assert ours_.shape == theirs_.shape
        np.testing.assert_allclose(ours_, theirs_, rtol=rtol, atol=atol)


def normal(*shape, dtype="float32", seed=0):
    """Normal numbers that depend on the shape and the seed alone."""
    return np.random.default_rng((seed, *shape)).standard_normal(shape).astype(dtype)
