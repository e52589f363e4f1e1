"""Normalization, attention and losses of imported models against ONNX Runtime."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from tests.onnx.single_nodes import check, normal, ours

fuzzed = settings(max_examples=25, deadline=None)

# Normalization -----------------------------------------------------------------------------------


def test_batch_normalization():
    x, channels = normal(2, 3, 4, 5), [normal(3, seed=i) for i in range(3)]
    inputs = [x, *channels, np.abs(normal(3, seed=4))]
    for opset in (7, 9, 14, 15):
        check("BatchNormalization", inputs, {"epsilon": 1e-3}, opset=opset, free={0: (0, 2)})


@pytest.mark.parametrize("axis", [-1, 1, 2, -3])
@pytest.mark.parametrize("biased", [False, True])
def test_layer_normalization(axis, biased):
    x = normal(2, 3, 4, 5)
    shape = x.shape[axis % 4 :]
    inputs = [x, normal(*shape), normal(*shape, seed=1) if biased else None]
    check("LayerNormalization", inputs, {"axis": axis}, outputs=3)


def test_layer_normalization_with_one_scale_for_all():
    x = normal(2, 3, 4)
    inputs = [x, normal(1), normal(4)]
    (y,) = ours("LayerNormalization", inputs, {"axis": 1})
    rest = x - x.mean((1, 2), keepdims=True)
    wanted = rest / np.sqrt(x.var((1, 2), keepdims=True) + 1e-5) * inputs[1] + inputs[2]
    np.testing.assert_allclose(y, wanted, rtol=1e-4, atol=1e-5)


def test_normalizations_of_symbolic_sizes():
    x = normal(2, 6, 4, 5)
    check("InstanceNormalization", [x, normal(6), normal(6, seed=1)], free={0: (0,)})
    check("LRN", [x], {"size": 5, "alpha": 0.1, "beta": 0.6, "bias": 2.0}, free={0: (0, 2)})
    check("LRN", [x], {"size": 3}, free={0: (0, 2)})


@pytest.mark.parametrize("opset", [18, 21])
def test_group_normalization(opset):
    x = normal(2, 6, 4, 5)
    count = 3 if opset == 18 else 6
    scale, bias = normal(count), normal(count, seed=1)
    (y,) = ours("GroupNormalization", [x, scale, bias], {"num_groups": 3}, opset=opset)
    groups = x.reshape(2, 3, -1)
    rest = groups - groups.mean(2, keepdims=True)
    wanted = (rest / np.sqrt(groups.var(2, keepdims=True) + 1e-5)).reshape(x.shape)
    each = 6 // count
    factor, added = (np.repeat(t, each)[:, None, None] for t in (scale, bias))
    np.testing.assert_allclose(y, wanted * factor + added, rtol=1e-4, atol=1e-5)


# Attention ---------------------------------------------------------------------------------------


@st.composite
def attentions(draw):
    """Inputs and attributes of Attention, and how many outputs are looked at."""
    batch, length, keys, width = 2, draw(st.integers(1, 4)), draw(st.integers(4, 6)), 8
    shared = draw(st.sampled_from((1, 2, 4)))
    flat = draw(st.booleans())
    attributes = {"is_causal": draw(st.sampled_from((0, 1)))}
    if flat:
        q, k = normal(batch, length, 4 * width), normal(batch, keys, 4 // shared * width)
        v = normal(batch, keys, 4 // shared * 6)
        attributes |= {"q_num_heads": 4, "kv_num_heads": 4 // shared}
    else:
        q, k = normal(batch, 4, length, width), normal(batch, 4 // shared, keys, width)
        v = normal(batch, 4 // shared, keys, 6)
    past = draw(st.sampled_from((0, 0, 3)))
    inputs = [q, k, v, None]
    kind = draw(st.sampled_from(("none", "bool", "float", "heads")))
    if kind == "bool":
        inputs[3] = normal(length, keys + past) > -1
    elif kind != "none":
        inputs[3] = normal(*([2, 4] if kind == "heads" else []), length, keys + past)
    if past:
        inputs += [normal(batch, 4 // shared, past, width), normal(batch, 4 // shared, past, 6)]
    if draw(st.booleans()):
        attributes["scale"] = 0.3
    if draw(st.booleans()):
        attributes["softcap"] = 2.0
    return inputs, attributes, 3 if past else 1


@fuzzed
@given(attentions())
def test_attention(node):
    inputs, attributes, outputs = node
    found = ours("Attention", inputs, attributes, outputs=outputs, opset=24)
    np.testing.assert_allclose(found[0], _attention(inputs, attributes), rtol=1e-4, atol=1e-5)
    if outputs == 3:
        assert found[1].shape[2] == found[2].shape[2] == inputs[4].shape[2] + _keys(inputs)


def _keys(inputs):
    return int(inputs[1].shape[-2])


def _attention(inputs, attributes):
    """One query after another, in float64."""
    q, k, v = (t.astype("float64") for t in inputs[:3])
    flat = q.ndim == 3
    if flat:
        heads = [attributes["q_num_heads"], *[attributes["kv_num_heads"]] * 2]
        split = [t.reshape(*t.shape[:2], n, -1) for t, n in zip((q, k, v), heads, strict=True)]
        q, k, v = (t.swapaxes(1, 2) for t in split)
    past = 0
    if len(inputs) > 4:
        past = inputs[4].shape[2]
        k, v = (np.concatenate([o, n], 2) for o, n in ((inputs[4], k), (inputs[5], v)))
    y = np.zeros((*q.shape[:3], v.shape[3]))
    mask = None
    if inputs[3] is not None:
        mask = np.broadcast_to(inputs[3], (*q.shape[:3], k.shape[2]))
    scale = attributes.get("scale", q.shape[3] ** -0.5)
    for place in np.ndindex(*q.shape[:3]):
        example, head, row = place
        source = head // (q.shape[1] // k.shape[1])
        scores = k[example, source] @ q[place] * scale
        if cap := attributes.get("softcap"):
            scores = cap * np.tanh(scores / cap)
        if mask is not None:
            bias = mask[place]
            scores = np.where(bias, scores, -np.inf) if bias.dtype == bool else scores + bias
        if attributes["is_causal"]:
            scores[row + past + 1 :] = -np.inf
        if np.isfinite(scores).any():
            weights = np.exp(scores - scores.max())
            y[place] = weights / weights.sum() @ v[example, source]
    return y.swapaxes(1, 2).reshape(y.shape[0], y.shape[2], -1) if flat else y


def test_attention_of_symbolic_lengths():
    inputs = [normal(2, 2, 3, 4), normal(2, 2, 5, 4), normal(2, 2, 5, 4)]
    attributes = {"is_causal": 1}
    free = {0: (0, 2), 1: (0,), 2: (0,)}
    (y,) = ours("Attention", inputs, attributes, opset=23, free=free)
    np.testing.assert_allclose(y, _attention([*inputs, None], attributes), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("left", [-1, 1])
@pytest.mark.parametrize("right", [-1, 0, 1])
@pytest.mark.parametrize("causal", [0, 1])
def test_windows_of_attention(left, right, causal):
    inputs = [normal(1, 2, 4, 4), normal(1, 2, 6, 4), normal(1, 2, 6, 4)]
    attributes = {"left_window_size": left, "right_window_size": right, "is_causal": causal}
    (y,) = ours("Attention", inputs, attributes, opset=25)
    way = np.arange(6) - np.arange(4)[:, None]
    seen = (way >= -left if left >= 0 else way < 9) & (way <= right if right >= 0 else way < 9)
    wanted = _attention([*inputs, seen], {"is_causal": causal})
    np.testing.assert_allclose(y, wanted, rtol=1e-4, atol=1e-5)


# Losses ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("operator", ["SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss"])
@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("ignored", [None, 2, -1])
def test_losses(operator, reduction, weighted, ignored):
    x, target = normal(3, 5, 4), np.random.default_rng(0).integers(0, 5, (3, 4))
    attributes = {"reduction": reduction}
    if ignored is not None:
        attributes["ignore_index"] = ignored
        target[0, :2] = ignored
    weight = np.abs(normal(5)) if weighted else None
    (y,) = ours(operator, [x, target, weight], attributes, opset=13, free={0: (0,)})
    logs = x.astype("float64")
    if operator.startswith("Softmax"):
        logs = logs - np.log(np.exp(logs).sum(1, keepdims=True))
    each = np.where(target == ignored, 0.0, 1.0 if weight is None else weight[target])
    loss = -np.take_along_axis(logs, np.maximum(target, 0)[:, None], 1)[:, 0] * each
    wanted = {"none": loss, "sum": loss.sum(), "mean": loss.sum() / each.sum()}[reduction]
    np.testing.assert_allclose(y, wanted, rtol=1e-5)
