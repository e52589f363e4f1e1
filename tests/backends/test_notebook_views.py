"""What notebooks show of tensors on devices whose memory is not the host's."""

import numpy as np
import pytest

import eagerflow as ef
from tests.notebook.pages import found, view, words

SHAPES = [(), (300,), (40, 60), (3, 20, 20), (16, 16, 3), (9, 16, 16, 1)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", ["float32", "complex64", "int8", "bool"])
def test_views_are_those_of_the_host(gpus, dtype, shape):
    values = np.random.default_rng(0).normal(size=shape).astype(dtype)
    if dtype == "float32" and shape:
        values.flat[1] = np.nan
    there, here = (view(ef.tensor(values, device=name)) for name in ("gpu:1", "cpu:0"))
    assert words(there).replace("gpu:1", "cpu:0") == words(here)
    pictures = [[img.get("src") for img in found(root, "img")] for root in (there, here)]
    assert pictures[0] == pictures[1]


def test_views_of_another_library(strict):
    values = np.random.default_rng(0).normal(size=(40, 60)).astype("float32")
    root = view(ef.tensor(values, device=strict))
    assert len(found(root, "img")) == 1 and f"on {strict}" in words(root)
