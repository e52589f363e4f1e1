"""Files are written in the format that their ending stands for, or not at all."""

import pytest

import eagerflow as ef
from eagerflow.errors import FileFormatError
from eagerflow.files.endings import FORMATS

MODEL = ef.nn.Sequential([ef.nn.Input((3,)), ef.nn.Dense(2)])
GRAPH = MODEL.prediction_graph()
WAYS = {"save": MODEL.save, "save_weights": MODEL.save_weights, "graph": GRAPH.save}


@pytest.mark.parametrize("ending", [*FORMATS, ".H5", ".weights.h5"])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", [str, lambda path: path])
def test_other_formats_are_refused(way, ending, kind, tmp_path):
    path = tmp_path / f"model{ending}"
    with pytest.raises(FileFormatError, match="stands for another format"):
        WAYS[way](kind(path))
    assert not path.exists()


@pytest.mark.parametrize("name", ["m.ef", "m.safetensors", "m", "m.v2", "m.pt.ef"])
def test_other_endings_are_free(name, tmp_path):
    MODEL.save(tmp_path / name)
    assert ef.nn.load_model(tmp_path / name)(ef.ones((1, 3))).shape == (1, 2)
    GRAPH.save(tmp_path / name)
    assert ef.capture.load(tmp_path / name).inputs[0].dtype == "float32"


def test_the_error_says_what_writes_the_format(tmp_path):
    for way, ending, hint in (
        ("save", ".onnx", "model.export"),
        ("graph", ".onnx", "ef.capture.export_onnx"),
        ("save", ".h5", "load_weights reads"),
        ("save_weights", ".pt", "ef.nn.from_torch"),
    ):
        with pytest.raises(FileFormatError, match=hint):
            WAYS[way](tmp_path / f"m{ending}")


@pytest.mark.parametrize("only", [False, True])
def test_checkpoints_of_training_as_well(only, tmp_path):
    model = ef.nn.Sequential([ef.nn.Dense(1)])
    model.compile("sgd", "mse")
    best = ef.nn.callbacks.ModelCheckpoint(str(tmp_path / "best.keras"), save_weights_only=only)
    with pytest.raises(FileFormatError, match="stands for another format"):
        model.fit(ef.ones((4, 2)), ef.ones((4, 1)), verbose=0, callbacks=[best])
