"""How tensors look at the prompt."""

import numpy as np
import pytest

import eagerflow as ef

SMALL = [
    (ef.tensor(3.14159), "Tensor(3.1416, float32, cpu:0)"),
    (ef.tensor(7), "Tensor(7, int64, cpu:0)"),
    (ef.tensor(True), "Tensor(True, bool, cpu:0)"),
    (ef.tensor(1 + 2j), "Tensor(1.+2.j, complex64, cpu:0)"),
    (ef.tensor([1.5, -2.0]), "Tensor([ 1.5, -2. ], float32, cpu:0)"),
    (ef.tensor([True, False]), "Tensor([ True, False], bool, cpu:0)"),
    (ef.tensor([1j, 2.5]), "Tensor([0. +1.j, 2.5+0.j], complex64, cpu:0)"),
    (ef.tensor([1.1, 2.0], "bfloat16"), "Tensor([1.1016, 2.    ], bfloat16, cpu:0)"),
    (ef.tensor([448.0], "float8_e4m3fn"), "Tensor([448.], float8_e4m3fn, cpu:0)"),
    (ef.tensor([ef.nan, -ef.inf]), "Tensor([ nan, -inf], float32, cpu:0)"),
    (ef.zeros((0, 3)), "Tensor([], shape=(0, 3), float32, cpu:0)"),
    (ef.tensor([], "int8"), "Tensor([], shape=(0,), int8, cpu:0)"),
    (ef.Variable([1.0], name="w"), "Variable([1.], name='w', float32, cpu:0)"),
    (ef.Variable(3, name="step"), "Variable(3, name='step', int64, cpu:0, trainable=False)"),
]


@pytest.mark.parametrize(("tensor", "shown"), SMALL, ids=[shown for _, shown in SMALL])
def test_small_values_are_shown_whole(tensor, shown):
    assert repr(tensor) == str(tensor) == shown


@pytest.mark.parametrize("wrap", [ef.tensor, lambda x: ef.Variable(x, name="weights")])
def test_rows_stand_below_each_other(wrap):
    lines = repr(wrap([[1.0, -2.5], [100.0, 0.125]])).split("\n")
    first = lines[0].index("[") + 1
    assert len(lines) == 2
    assert lines[1].index("[") == first
    assert [line.index(",", first) for line in lines].count(lines[0].index(",", first)) == 2


@pytest.mark.parametrize("rank", range(1, 12))
def test_a_large_tensor_fits_one_screen(rank):
    shape = (3_000,) if rank == 1 else (13,) * 2 + (3,) * (rank - 2)
    lines = repr(ef.tensor(np.random.default_rng(0).normal(size=shape))).split("\n")
    assert len(lines) <= 40
    assert max(map(len, lines)) < 140
    assert f"shape={shape}" in lines[-1]


def test_repr_of_symbolic_tensors_shows_known_parts():
    seen = []
    ef.vmap(lambda x: (seen.append(repr(x)), x)[1])(ef.ones((3, 2)))
    assert seen == ["Tensor(<symbolic>, shape=(2,), float32, cpu:0)"]
