"""Resizing, sampling and regions of imported models against ONNX Runtime."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from tests.onnx.single_nodes import check, normal, ours

fuzzed = settings(max_examples=30, deadline=None)
COORDINATES = ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric")
SIZES = np.array


@fuzzed
@given(
    st.sampled_from(("nearest", "linear", "cubic")),
    st.sampled_from(COORDINATES),
    st.sampled_from(("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")),
    st.tuples(st.integers(2, 11), st.integers(2, 11)),
    st.booleans(),
)
def test_resize_to_sizes(mode, coordinates, nearest, sizes, exclude):
    x = normal(2, 3, 5, 6)
    attributes = {"mode": mode, "coordinate_transformation_mode": coordinates}
    if mode == "nearest":
        attributes["nearest_mode"] = nearest
    if mode == "cubic":
        attributes |= {"cubic_coeff_a": -0.5, "exclude_outside": int(exclude)}
    wanted = np.array([2, 3, *sizes])
    options = {"opset": 13, "constants": (3,)}
    check("Resize", [x, None, None, wanted], attributes, atol=1e-4, **options)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("scales", [(2, 2), (0.5, 1.5), (0.3, 3), (1, 0.4)])
def test_resize_by_scales(mode, scales):
    x, factors = normal(2, 3, 10, 7), np.array([1, 1, *scales], "float32")
    options = {"opset": 13, "constants": (2,), "free": {0: (0,)}}
    check("Resize", [x, None, factors], {"mode": mode}, atol=1e-4, **options)


@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("sizes", [(3, 2), (4, 9), (12, 3), (1, 1)])
def test_resize_with_filters_against_aliasing(mode, sizes):
    x, wanted = normal(1, 2, 11, 13), np.array(sizes)
    attributes = {"mode": mode, "antialias": 1, "axes": [2, 3]}
    attributes["exclude_outside"] = 1  # ONNX Runtime leaves out what is outside in any case
    check("Resize", [x, None, None, wanted], attributes, opset=19, atol=1e-4, constants=(3,))


@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_crop_and_resize(mode):
    x = normal(1, 2, 8, 9)
    roi = np.array([0, 0, 0.2, -0.1, 1, 1, 0.7, 1.3], "float32")
    attributes = {
        "mode": mode,
        "coordinate_transformation_mode": "tf_crop_and_resize",
        "extrapolation_value": 7.0,
    }
    wanted = np.array([1, 2, 5, 6])
    check("Resize", [x, roi, None, wanted], attributes, opset=13, constants=(1, 3))


@pytest.mark.parametrize("policy", ["not_larger", "not_smaller"])
def test_resize_that_keeps_the_aspect(policy):
    x, wanted = normal(1, 2, 5, 8), np.array([7, 9])
    attributes = {"mode": "linear", "keep_aspect_ratio_policy": policy, "axes": [2, 3]}
    check("Resize", [x, None, None, wanted], attributes, opset=19, constants=(3,))


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int32"])
def test_resize_rounds_integers(dtype):
    x = np.array([[[[0, 3], [100, 101]]]], dtype)
    factors = np.array([1, 1, 2, 2], "float32")
    (y,) = ours("Resize", [x, None, factors], {"mode": "linear"}, constants=(2,))
    assert y.dtype == x.dtype
    rows = np.array([[1, 0], [0.75, 0.25], [0.25, 0.75], [0, 1]])
    wanted = np.round(rows @ x[0, 0].astype("float64") @ rows.T)
    np.testing.assert_array_equal(y[0, 0], wanted.astype(dtype))


@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.parametrize("opset", [7, 9, 10])
def test_upsample(mode, opset):
    x, factors = normal(1, 2, 3, 4), [1.0, 1.0, 2.0, 3.0]
    if opset == 7:
        check("Upsample", [x], {"mode": mode, "scales": factors}, opset=opset)
        return
    operator = "Upsample" if opset == 9 else "Resize"
    scales = np.array(factors, "float32")
    check(operator, [x, scales], {"mode": mode}, opset=opset, constants=(1,))


# Sampling ----------------------------------------------------------------------------------------


@pytest.mark.sampled(3)
@pytest.mark.parametrize("mode", ["nearest", "bilinear", "bicubic"])
@pytest.mark.parametrize("outside", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("corners", [0, 1])
def test_grid_sample(mode, outside, corners):
    x, grid = normal(2, 3, 5, 6), normal(2, 4, 7, 2) * np.float32(1.2)
    attributes = {"mode": mode, "padding_mode": outside, "align_corners": corners}
    options = {"opset": 16, "free": {0: (0,), 1: (0,)}, "atol": 1e-4}
    check("GridSample", [x, grid], attributes, rtol=1e-3, **options)


# Regions -----------------------------------------------------------------------------------------

ROIS = np.array([[0, 0, 8, 6], [1.5, 2.2, 5.7, 4.1], [3, 1, 3.2, 1.1], [-2, 4, 6, 12]], "float32")


@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize("ratio", [0, 2])
@pytest.mark.parametrize("half", [False, True])
def test_roi_align(mode, ratio, half):
    x, images = normal(2, 3, 7, 9), np.array([0, 1, 1, 0])
    attributes = {
        "mode": mode,
        "sampling_ratio": ratio,
        "output_height": 2,
        "output_width": 3,
        "spatial_scale": 0.8,
        "coordinate_transformation_mode": "half_pixel" if half else "output_half_pixel",
    }
    check("RoiAlign", [x, ROIS, images], attributes, opset=16)


def test_max_roi_pool():
    x = normal(2, 3, 7, 9)
    rois = [[0, 0, 0, 8, 6], [1, 2, 2, 6, 4], [1, 3, 1, 3, 1], [0, 4, 6, 12, 9]]
    rois = np.array(rois, "float32")
    check("MaxRoiPool", [x, rois], {"pooled_shape": [2, 3], "spatial_scale": 0.7}, opset=21)


@pytest.mark.parametrize("center", [0, 1])
@pytest.mark.parametrize("least", [None, 0.4])
def test_non_max_suppression(center, least):
    random = np.random.default_rng(3)
    boxes = random.uniform(0.1, 1, (2, 40, 4)).astype("float32")
    scores = random.uniform(0, 1, (2, 3, 40)).astype("float32")
    inputs = [boxes, scores, np.array([5]), np.array([0.3], "float32")]
    inputs.append(None if least is None else np.array([least], "float32"))
    check("NonMaxSuppression", inputs, {"center_point_box": center}, opset=11)
