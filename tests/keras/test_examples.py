"""The programs of examples/keras run, for an epoch each."""

import runpy
from pathlib import Path

import numpy as np
import pytest

PROGRAMS = sorted(Path(__file__).parents[2].glob("examples/keras/*.py"))


def test_each_of_keras_guides_has_its_program():
    guides = "custom_loop functional gan seq2seq subclassing text timeseries transfer vae"
    assert " ".join(program.stem for program in PROGRAMS) == guides


@pytest.mark.parametrize("program", PROGRAMS, ids=[program.stem for program in PROGRAMS])
def test_programs_of_the_guides(program):
    if "sklearn" in program.read_text():
        pytest.importorskip("sklearn")
    history = runpy.run_path(str(program))["main"](epochs=1, verbose=0)
    assert history
    for name, values in history.items():
        assert len(values) == 1 and np.isfinite(values[0]), name
