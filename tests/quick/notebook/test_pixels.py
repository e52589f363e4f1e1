"""Colours of numbers, and PNG files, which another reader reads."""

import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from eagerflow.notebook.pixels import heat, image, photograph, png
from tests.notebook.pages import parsed

RGB = {"orange": (234, 88, 12), "blue": (59, 130, 246), "magenta": (214, 36, 159)}
Image = pytest.importorskip("PIL.Image")


@given(arrays(np.uint8, st.tuples(st.integers(1, 9), st.integers(1, 9), st.just(4))))
def test_png_files_hold_the_colours(colours):
    read = Image.open(io.BytesIO(png(colours)))
    assert read.mode == "RGBA" and read.size == colours.shape[1::-1]
    np.testing.assert_array_equal(np.asarray(read), colours)


def test_hue_is_the_sign_and_strength_the_size():
    colours, legend = heat(np.array([[-2.0, -1.0, 0.0, 4.0, np.nan, np.inf, -np.inf]]))
    np.testing.assert_array_equal(colours[0, :, 3], [128, 64, 0, 255, 255, 255, 255])
    assert tuple(colours[0, 0, :3]) == RGB["blue"]
    assert tuple(colours[0, 3, :3]) == RGB["orange"]
    assert {tuple(c[:3]) for c in colours[0, 4:]} == {RGB["magenta"]}
    assert legend == "clear: 0, orange: 4, blue: -2, magenta: not finite"


@pytest.mark.parametrize("sign", [1, -1])
def test_numbers_far_from_zero_differ_too(sign):
    colours, legend = heat(sign * np.array([[1000.0, 1001.0, 1002.0]]))
    np.testing.assert_array_equal(colours[0, :, 3], [0, 128, 255])
    assert legend.startswith(f"clear: {'-' if sign < 0 else ''}1e+03, ")


@pytest.mark.parametrize("values", [
    np.zeros((2, 2)),
    np.full((2, 2), np.nan),
    np.full((1, 3), 7.0),
    np.array([[np.finfo("f8").max, -np.finfo("f8").max]]),
    np.array([[np.finfo("f8").tiny / 2**50]]),
    np.array([[2**63 - 1, -(2**63)]]),
    np.array([[True, False]]),
    np.array([[1 + 1j, complex("nan"), complex("inf")]], "complex64"),
    np.array([[3e38 + 3e38j]], "complex64"),
    np.array([[65504.0]], "float16"),
], ids=repr)  # fmt: skip
def test_all_kinds_of_numbers_have_colours(values):
    with np.errstate(all="ignore"):
        colours, legend = heat(values)
        seen = photograph(np.real(values)[..., None])
    assert colours.shape == seen.shape == (*values.shape, 4)
    assert colours.dtype == seen.dtype == np.uint8 and legend.startswith("clear: ")


def test_images_of_bytes_and_of_shares_are_as_they_are():
    shares = np.linspace(0, 1, 12).reshape(2, 2, 3)
    np.testing.assert_array_equal(photograph(shares)[..., :3], np.rint(shares * 255))
    rgba = np.arange(16, dtype="uint8").reshape(2, 2, 4)
    np.testing.assert_array_equal(photograph(rgba), rgba)
    grey = photograph(np.array([[[0], [128]]], "uint8"))
    assert grey.tolist() == [[[0, 0, 0, 255], [128, 128, 128, 255]]]


def test_images_of_other_numbers_reach_from_black_to_white():
    colours = photograph(np.array([[[-3.0], [1.0], [5.0], [np.nan]]]))
    assert colours[0, :, 0].tolist() == [0, 128, 255, RGB["magenta"][0]]


@pytest.mark.parametrize("shape", [(1, 1), (1, 256), (96, 96), (96, 2), (12, 12)])
def test_pictures_have_sizes_that_fit(shape):
    root = parsed(image(np.zeros((*shape, 4), np.uint8), 'a "b"'))
    assert all(12 <= int(root.get(side)) <= 256 for side in ("width", "height"))
    assert root.get("alt") == root.get("title") == 'a "b"'
