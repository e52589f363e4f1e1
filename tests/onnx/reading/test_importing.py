"""import_onnx: names, constants, sizes, functions, values that are bound, and what comes after."""

import numpy as np
import pytest

import eagerflow as ef
from tests.onnx.reading.models import agree, imported, onnx, parsed, run, weights

MLP = """
net (float[n, 4] pixels) => (float[n, 3] scores)
<float[4, 5] w1, float[5] b1, float[5, 3] w2>
{
    hidden = MatMul(pixels, w1)
    shifted = Add(hidden, b1)
    active = Relu(shifted)
    scores = MatMul(active, w2)
}
"""


def mlp(rng):
    """The model of ``MLP`` with weights."""
    model = parsed(MLP)
    for name, shape in (("w1", (4, 5)), ("b1", (5,)), ("w2", (5, 3))):
        tensor = onnx.numpy_helper.from_array(weights(rng, *shape), name)
        model.graph.initializer.append(tensor)
    return model


def test_names_and_sizes_are_those_of_the_file(rng):
    graph = agree(mlp(rng), pixels=weights(rng, 7, 4))
    assert graph.name == "net"
    assert graph.inputs.names == ("pixels",) and graph.outputs.names == ("scores",)
    assert repr(graph.inputs[0].shape) == "(n, 4)" and repr(graph.outputs[0].shape) == "(n, 3)"
    assert {v.name for v in graph.constants} == {"w1", "b1", "w2"}


def test_imported_nodes_keep_scopes_and_source_positions(rng):
    model = mlp(rng)
    model.graph.node[0].name = "/encoder/first/MatMul"
    graph = imported(model)
    assert graph.nodes[0].name == "encoder/first/MatMul/matmul"
    assert graph.nodes[0].source == ("model.onnx", 0, "/encoder/first/MatMul")


def test_a_path_is_read(rng, tmp_path):
    path = tmp_path / "model.onnx"
    path.write_bytes(mlp(rng).SerializeToString())
    for source in (path, str(path)):
        assert ef.capture.import_onnx(source).nodes[0].source[0] == "model.onnx"


def test_constants_are_folded_on_import():
    graph = agree(
        """net (float[3] x) => (float[3] y)
        {
            a = Constant<value = float[3] {1, 2, 3}>()
            b = Constant<value_float = 2.0>()
            c = Mul(a, b)
            y = Add(x, c)
        }""",
        x=np.ones(3, "float32"),
    )
    assert [node.op.name for node in graph.nodes] == ["add"]


def test_large_constants_are_not_folded_on_import():
    graph = imported(
        """net (float[1] x) => (float[n, m] y)
        {
            shape = Constant<value_ints = [100000, 100000]>()
            big = ConstantOfShape(shape)
            y = Add(big, x)
        }"""
    )
    assert graph.outputs[0].shape == (100000, 100000)


def test_sizes_stay_sizes_through_arithmetic():
    graph = agree(
        """net (float[n, m, 2] x) => (float[a, b] y)
        {
            shape = Shape(x)
            zero = Constant<value_int = 0>()
            one = Constant<value_ints = [1]>()
            two = Constant<value_ints = [2]>()
            first = Gather(shape, zero)
            axis = Constant<value_ints = [0]>()
            head = Unsqueeze(first, axis)
            middle = Slice(shape, one, two)
            rest = Mul(middle, two)
            wanted = Concat<axis = 0>(head, rest)
            y = Reshape(x, wanted)
        }""",
        x=np.arange(24, dtype="float32").reshape(3, 4, 2),
    )
    assert repr(graph.outputs[0].shape) == "(n, 2*m)"
    assert [node.op.name for node in graph.nodes] == ["reshape"]


def test_sizes_that_meet_under_two_names_are_one():
    graph = agree(
        "net (float[rows, 2] x, float[lines, 2] z) => (float[k, 2] y) { y = Add(x, z) }",
        x=np.ones((3, 2), "float32"),
        z=np.ones((3, 2), "float32"),
    )
    assert graph.inputs[0].shape == graph.inputs[1].shape


def test_size_used_in_arithmetic_becomes_a_graph_value():
    agree(
        """net (float[n, 3] x) => (float[3] y)
        {
            shape = Shape<start = 0, end = 1>(x)
            count = Cast<to = 1>(shape)
            axes = Constant<value_ints = [0]>()
            total = ReduceSum<keepdims = 0>(x, axes)
            y = Div(total, count)
        }""",
        x=np.arange(12, dtype="float32").reshape(4, 3),
    )


def test_the_standard_s_own_function_stands_in_for_an_operator():
    model = parsed(
        "net (float[2, 3] x) => (float[2, 3] y) { y = MeanVarianceNormalization<axes=[1]>(x) }"
    )
    graph = imported(model)
    x = np.arange(6, dtype="float32").reshape(2, 3)
    wanted = (x - x.mean(1, keepdims=True)) / x.std(1, keepdims=True)
    np.testing.assert_allclose(run(graph, x=x)["y"], wanted, atol=1e-5)


FUNCTION = """
<ir_version: 10, opset_import: ["" : 21, "own" : 1]>
net (float[3] x) => (float[3] y) { y = own.scaled<factor = 3.0>(x) }
<opset_import: ["" : 21], domain: "own">
scaled <factor>(a) => (b)
{
    f = Constant<value_float : float = @factor>()
    b = Mul(a, f)
}
"""


def test_functions_of_the_model():
    agree(FUNCTION, x=np.ones(3, "float32"))


def test_models_of_version_6_in_the_form_of_version_7():
    model = parsed(
        """net (float[2, 3, 4] x, float[3] b, float[3] s) => (float[2, 3, 4] y)
        {
            a = Add<axis = 1, broadcast = 1>(x, b)
            y = PRelu(a, s)
        }""",
        opset=6,
    )
    rng = np.random.default_rng(0)
    x, b, s = weights(rng, 2, 3, 4), weights(rng, 3), weights(rng, 3)
    a = x + b[:, None]
    found = run(imported(model), x=x, b=b, s=s)["y"]
    np.testing.assert_allclose(found, np.where(a < 0, a * s[:, None], a), rtol=1e-6)


def test_a_form_of_an_older_version_that_is_not_known_is_refused():
    text = "net (float[3] x) => (float[3] y) { y = Clip<consumed_inputs = [0]>(x) }"
    with pytest.raises(ef.errors.ArgumentError, match="its form of opset 1"):
        imported(parsed(text, opset=1))


# Values of inputs ---------------------------------------------------------------------------------

RESHAPE = "net (float[6] x, int64[2] shape) => (float[a, b] y) { y = Reshape(x, shape) }"


def test_a_shape_from_an_input_is_looked_at_when_the_graph_runs():
    graph = imported(RESHAPE)
    assert [node.op.name for node in graph.nodes] == ["specialized"]
    assert graph.nodes[0].attributes["by_value"] == ("shape",)
    x = np.arange(6, dtype="float32")
    for shape in ((2, 3), (3, 2), (1, -1)):
        assert run(graph, x=x, shape=np.array(shape))["y"].shape == x.reshape(shape).shape


def test_such_a_graph_can_neither_be_saved_nor_differentiated(tmp_path):
    graph = imported(RESHAPE)
    with pytest.raises(ef.errors.FileFormatError, match="cannot be saved") as error:
        graph.save(tmp_path / "graph.ef")
    assert "values={name: ...}" in str(error.value)


def test_values_that_are_bound_are_no_inputs():
    graph = imported(RESHAPE, values={"shape": np.array([3, 2])})
    assert graph.inputs.names == ("x",) and graph.outputs[0].shape == (3, 2)


def test_there_is_such_an_input_to_bind():
    with pytest.raises(ef.errors.ArgumentError, match="no input 'axes'"):
        imported(RESHAPE, values={"axes": 1})


def test_graph_needing_known_sizes_depends_on_shapes_only():
    graph = imported(
        """net (float[n, 3] x) => (float[m, 3] y)
        {
            one = Constant<value_ints = [1]>()
            far = Constant<value_ints = [5]>()
            axis = Constant<value_ints = [0]>()
            y = Slice(x, one, far, axis)
        }"""
    )
    x = np.arange(12, dtype="float32").reshape(4, 3)
    assert np.array_equal(run(graph, x=x)["y"], x[1:5])
    longer = np.arange(24, dtype="float32").reshape(8, 3)
    assert np.array_equal(run(graph, x=longer)["y"], longer[1:5])


# What comes after ---------------------------------------------------------------------------------


def test_imported_graphs_are_differentiated(rng):
    graph = imported(mlp(rng))
    x = ef.tensor(weights(rng, 2, 4))

    def loss(x):
        return ef.sum(graph(x)["scores"])

    found = ef.grad(loss)(x)
    w1, b1, w2 = (v.constant.numpy() for v in graph.constants)
    open_ = (x.numpy() @ w1 + b1 > 0) * w2.sum(1)
    np.testing.assert_allclose(found.numpy(), open_ @ w1.T, rtol=1e-5)


def test_imported_weights_are_trained(rng):
    graph = imported(mlp(rng), trainable=True)
    variables = {cell.name: cell.variable for cell in graph.cells}
    assert set(variables) == {"w1", "b1", "w2"}
    x, wanted = ef.tensor(weights(rng, 8, 4)), ef.tensor(weights(rng, 8, 3))
    losses = []
    for _ in range(30):
        with ef.GradientTape() as tape:
            loss = ef.mean(ef.square(graph(x)["scores"] - wanted))
        losses.append(loss.item())
        for variable, g in zip(
            variables.values(), tape.gradient(loss, list(variables.values())), strict=True
        ):
            variable.assign_sub(g * 0.1)
    assert losses[-1] < 0.8 * losses[0]


def test_statistics_are_not_trained():
    model = parsed(
        """net (float[2, 3, 4] x) => (float[2, 3, 4] y) <float[3] one = {1,1,1}>
        { y = BatchNormalization(x, one, one, mean, one) }"""
    )
    mean = onnx.numpy_helper.from_array(np.zeros(3, "float32"), "mean")
    model.graph.initializer.append(mean)
    from eagerflow.onnx.reading.importing import trainable_weights
    from eagerflow.onnx.reading.model import Model

    assert trainable_weights(Model(model.SerializeToString())) == {}


def test_imported_graphs_are_saved_and_partitioned(rng, tmp_path):
    graph = imported(mlp(rng))
    graph.save(tmp_path / "graph.ef")
    x = weights(rng, 3, 4)
    wanted = run(graph, pixels=x)["scores"]
    assert np.array_equal(run(ef.capture.load(tmp_path / "graph.ef"), pixels=x)["scores"], wanted)
    assert "matmul" in str(ef.capture.partition(graph, ["cpu:0"]))
    assert ef.capture.verify(lambda x: graph(x), [ef.tensor(x)])


# Refusals -----------------------------------------------------------------------------------------


def test_all_that_is_not_supported_is_listed_at_once():
    model = parsed(
        """<ir_version: 10, opset_import: ["" : 21, "com.other" : 1]>
        net (float[3] x, bool c) => (float[3] y)
        {
            a = com.other.Fused(x)
            s = StringNormalizer(x)
            y = If (c) <
                then_branch = g () => (float[3] t) { t = com.other.Inner(x) },
                else_branch = h () => (float[3] e) { e = Identity(x) }
            >
        }"""
    )
    with pytest.raises(ef.errors.ArgumentError) as error:
        imported(model)
    listed = {(p.operator, p.domain) for p in error.value.problems}
    assert {("Fused", "com.other"), ("Inner", "com.other")} <= listed
    assert "Fused of com.other, node Fused -> a" in str(error.value)


def test_an_element_type_is_refused_by_name():
    with pytest.raises(ef.errors.ArgumentError, match="string tensors"):
        imported("net (string[3] x) => (string[3] y) { y = Identity(x) }")


def test_a_newer_version_is_refused():
    with pytest.raises(ef.errors.FileFormatError, match="another version"):
        imported(parsed("net (float[3] x) => (float[3] y) { y = Identity(x) }", opset=999))
