"""Graphs in open files that are mapped: the same as loaded ones, in memory that is shared."""

import io

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.capture.saving.file import load, map_open, write_open
from eagerflow.errors import FileFormatError

VALUES = {
    name: np.arange(12).reshape(3, 4).astype(ef.dtypes.as_dtype(name))
    for name in "bool int8 uint64 float16 bfloat16 float32 float64 complex64 complex128".split()
} | {"none": np.zeros((0, 3), "float32"), "scalar": np.float64(2.5)}


@pytest.fixture
def graph():
    cells = {name: ef.Variable(value, name=name) for name, value in VALUES.items()}
    return ef.capture.trace(lambda: {name: cell + cell for name, cell in cells.items()})


def test_a_mapped_graph_is_the_loaded_one(tmp_path, graph):
    graph.save(tmp_path / "saved.ef")
    with io.FileIO(tmp_path / "open.ef", "w+") as file:
        write_open(graph, file)
        assert (tmp_path / "open.ef").read_bytes() == (tmp_path / "saved.ef").read_bytes()
        position = file.tell()
        mapped = map_open(file)
        assert file.tell() == position  # which processes that share the file share too
    loaded = load(tmp_path / "saved.ef")
    for name, value in VALUES.items():
        found = mapped.variables[name].numpy()
        assert found.dtype == loaded.variables[name].numpy().dtype
        np.testing.assert_array_equal(found, value)
        assert not found.size or not found.flags.writeable
    for name, found in mapped().items():
        np.testing.assert_array_equal(found.numpy(), loaded()[name].numpy())


def test_a_damaged_file_is_refused(tmp_path):
    (tmp_path / "bad.ef").write_bytes(b"no graph at all")
    with io.FileIO(tmp_path / "bad.ef") as file, pytest.raises(FileFormatError):
        map_open(file)
