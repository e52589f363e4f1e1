"""Convolution and pooling of imported models against ONNX Runtime."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from tests.onnx.single_nodes import check, normal, ours

fuzzed = settings(max_examples=25, deadline=None)


@st.composite
def windows(draw, ranks=(1, 2, 3), dilated=True):
    """Attributes of windows that fit into 9 elements along each axis."""
    rank = draw(st.sampled_from(ranks))

    def each(low, high):
        return draw(st.lists(st.integers(low, high), min_size=rank, max_size=rank))

    kernel = each(1, 3)
    made = {"kernel_shape": kernel, "strides": each(1, 3)}
    if dilated:
        made["dilations"] = each(1, 2)
    made["auto_pad"] = draw(st.sampled_from(("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID")))
    if made["auto_pad"] == "NOTSET":
        made["pads"] = [draw(st.integers(0, k - 1)) for k in (*kernel, *kernel)]
    if made["auto_pad"].startswith("SAME"):
        # ONNX Runtime has neither dilated windows there nor, as the standard, gaps between them.
        made.pop("dilations", None)
        made["strides"] = [min(k, step) for k, step in zip(kernel, made["strides"], strict=True)]
    return made


sizes = st.integers(7, 9)


@fuzzed
@given(windows(), st.data(), st.sampled_from((1, 2)), st.booleans())
def test_conv(attributes, data, group, biased):
    spatial = [data.draw(sizes) for _ in attributes["kernel_shape"]]
    x, w = normal(2, 4, *spatial), normal(6, 4 // group, *attributes["kernel_shape"])
    bias = normal(6) if biased else None
    check("Conv", [x, w, bias], {**attributes, "group": group}, constants=(1, 2), free={0: (0,)})


@fuzzed
@given(windows((1, 2)), st.data(), st.sampled_from((1, 2)), st.booleans())
def test_conv_transpose(attributes, data, group, biased):
    rank = len(attributes["kernel_shape"])
    x = normal(2, 4, *[data.draw(st.integers(3, 5)) for _ in range(rank)])
    w = normal(4, 3, *attributes["kernel_shape"])
    more = dict(attributes, group=group)
    if data.draw(st.booleans()):
        most = [s - 1 for s in attributes["strides"]]
        more["output_padding"] = [data.draw(st.integers(0, m)) for m in most]
    bias = normal(3 * group) if biased else None
    check("ConvTranspose", [x, w, bias], more, constants=(1, 2), free={0: (0,)})


@pytest.mark.parametrize("auto_pad", ["NOTSET", "SAME_UPPER", "SAME_LOWER"])
@pytest.mark.parametrize("wanted", [[8, 9], [7, 7], [8, 6]])
def test_conv_transpose_to_a_shape(auto_pad, wanted):
    attributes = {"strides": [2, 2], "output_shape": wanted, "auto_pad": auto_pad}
    check("ConvTranspose", [normal(1, 2, 4, 4), normal(2, 3, 3, 3)], attributes)


def test_symbolic_batch_and_space():
    x, w = normal(2, 3, 6, 7), normal(4, 3, 3, 3)
    free = {0: (0, 2, 3)}
    check("Conv", [x, w], {"pads": [1, 1, 1, 1], "strides": [2, 1]}, constants=(1,), free=free)
    same = {"auto_pad": "SAME_UPPER", "strides": [2, 3]}
    check("Conv", [x, w], same, constants=(1,), free=free)
    check("MaxPool", [x], {"kernel_shape": [2, 2], "strides": [2, 2]}, free=free)
    check("AveragePool", [x], {"kernel_shape": [2, 3]}, free=free)
    check("GlobalAveragePool", [x], free=free)


@fuzzed
@given(windows(), st.data(), st.booleans(), st.sampled_from((0, 1)))
def test_max_pool(attributes, data, indices, column_major):
    rank = len(attributes["kernel_shape"])
    x = normal(2, 3, *[data.draw(sizes) for _ in range(rank)])
    more = dict(attributes)
    if more["auto_pad"] == "NOTSET":
        more["ceil_mode"] = data.draw(st.sampled_from((0, 1)))
    if indices:
        more["storage_order"] = column_major if rank == 2 else 0
    check("MaxPool", [x], more, outputs=2 if indices else 1)


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_max_pool_of_integers(dtype):
    x = np.random.default_rng(0).integers(0, 127, (2, 3, 7, 8)).astype(dtype)
    check("MaxPool", [x], {"kernel_shape": [3, 2], "pads": [1, 0, 1, 1], "strides": [2, 2]})


@fuzzed
@given(windows(dilated=False), st.data(), st.sampled_from((0, 1)))
def test_average_pool(attributes, data, with_padding):
    rank = len(attributes["kernel_shape"])
    x = normal(2, 3, *[data.draw(sizes) for _ in range(rank)])
    more = dict(attributes, count_include_pad=with_padding)
    if more["auto_pad"] == "NOTSET":
        more["ceil_mode"] = data.draw(st.sampled_from((0, 1)))
    check("AveragePool", [x], more, opset=21)


@fuzzed
@given(windows((1, 2), dilated=False), st.data(), st.integers(1, 3))
def test_lp_pool(attributes, data, p):
    rank = len(attributes["kernel_shape"])
    x = normal(2, 3, *[data.draw(sizes) for _ in range(rank)])
    check("LpPool", [x], dict(attributes, p=p), opset=18)


@pytest.mark.parametrize("operator", ["GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"])
def test_global_pools(operator):
    check(operator, [normal(2, 3, 4, 5)], opset=21, free={0: (0, 2, 3)})


def test_unpooled_maxima_stand_where_they_stood():
    x = normal(2, 3, 6, 8)
    attributes = {"kernel_shape": [2, 2], "strides": [2, 2]}
    y, places = ours("MaxPool", [x], attributes, outputs=2)
    (back,) = ours("MaxUnpool", [y, places], attributes)
    assert back.shape == x.shape
    assert np.count_nonzero(back) == y.size
    np.testing.assert_array_equal(back[back != 0], x[back != 0])
    check("MaxUnpool", [y, places], attributes)


@pytest.mark.parametrize("zeros", [(None, None), (7, 3), (7, "each")])
def test_conv_integer(zeros):
    random = np.random.default_rng(1)
    x = random.integers(0, 255, (1, 2, 5, 5)).astype("uint8")
    w = random.integers(0, 255, (3, 2, 3, 3)).astype("uint8")
    x_zero = None if zeros[0] is None else np.uint8(zeros[0])
    w_zero = None if zeros[1] is None else np.uint8(3)
    if zeros[1] == "each":
        w_zero = np.array([3, 0, 200], "uint8")
        (y,) = ours("ConvInteger", [x, w, x_zero, w_zero], {"pads": [1, 0, 1, 2]})
        parts = [
            ours("ConvInteger", [x, w[i : i + 1], x_zero, z], {"pads": [1, 0, 1, 2]})[0]
            for i, z in enumerate(w_zero)
        ]
        np.testing.assert_array_equal(y, np.concatenate(parts, axis=1))
        return
    check("ConvInteger", [x, w, x_zero, w_zero], {"pads": [1, 0, 1, 2]})


def test_qlinear_conv():
    random = np.random.default_rng(2)
    x = random.integers(0, 255, (1, 2, 6, 5)).astype("uint8")
    # ONNX Runtime adds two products in 16 bits on some processors: these fit.
    w = random.integers(-64, 64, (4, 2, 3, 3)).astype("int8")
    scales = [np.float32(0.02), np.array([0.01, 0.02, 0.03, 0.04], "f4"), np.float32(0.7)]
    inputs = [x, scales[0], np.uint8(120), w, scales[1], np.zeros(4, "i1"), scales[2]]
    inputs += [np.uint8(128), random.integers(-500, 500, 4).astype("int32")]
    check("QLinearConv", inputs, {"pads": [1, 1, 1, 1]}, atol=1)


@pytest.mark.parametrize(("group", "groups_of_offsets"), [(1, 1), (2, 1), (1, 2), (2, 2)])
@pytest.mark.parametrize("masked", [False, True])
def test_deform_conv(group, groups_of_offsets, masked):
    x, w = normal(2, 4, 6, 7), normal(6, 4 // group, 3, 2)
    attributes = {
        "group": group,
        "offset_group": groups_of_offsets,
        "pads": [1, 0, 1, 1],
        "strides": [2, 1],
        "dilations": [1, 2],
    }
    out = (3, 6)
    offset = normal(2, groups_of_offsets * 12, *out)
    mask = normal(2, groups_of_offsets * 6, *out) if masked else None
    check("DeformConv", [x, w, offset, normal(6), mask], attributes, opset=19)
