"""Copies, files and exports: what comes back computes what was saved."""

import copy

import numpy as np
import onnxruntime

import eagerflow as ef
from eagerflow.errors import CaptureError
from tests.silent_bugs.index import cases
from tests.silent_bugs.ways import array, compare, floats


def by_onnx(f, *args, folder):
    """What ONNX Runtime computes of an exported function, or None where export is refused."""
    path = str(folder / "f.onnx")
    try:
        graph = ef.capture.trace(f, *[ef.TensorSpec(x.shape, x.dtype.name) for x in args])
        ef.capture.export_onnx(graph, path)
    except CaptureError:
        return None
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_inputs()]
    return session.run(None, dict(zip(names, args, strict=True)))


def exported(f, *args, folder, expect=None, rtol=1e-5):
    expected = f(*map(ef.tensor, args)) if expect is None else expect
    found = by_onnx(f, *args, folder=folder)
    assert found is not None
    compare(found, expected if isinstance(expected, list | tuple) else [expected], rtol, 1e-6)


def pytorch_315(folder):
    """A copy of a parameter was none any more, and was not trained."""
    layer = ef.nn.Dense(2)
    layer(ef.zeros((1, 3)))
    twin = copy.deepcopy(layer)
    for v in twin.trainable_weights:
        assert isinstance(v, ef.Variable) and v.trainable
    assert len(twin.trainable_weights) == 2
    with ef.GradientTape() as tape:
        loss = ef.sum(twin(ef.ones((1, 3))))
    compare(tape.gradient(loss, list(twin.trainable_weights))[1], np.ones(2))
    twin.trainable_weights[0].assign(np.ones((3, 2), "f4"))
    assert not np.array_equal(array(layer.weights[0]), array(twin.weights[0]))


def tensorflow_78610(folder):
    """A model of which the weights were saved and loaded had another accuracy."""
    x, y = floats(20, 6), np.arange(20) % 2

    def model():
        made = ef.nn.Sequential(
            [ef.nn.Dense(5), ef.nn.BatchNormalization(), ef.nn.Dropout(0.3), ef.nn.Dense(2)]
        )
        loss = ef.nn.losses.SparseCategoricalCrossentropy(from_logits=True)
        made.compile(optimizer="adam", loss=loss, metrics=["accuracy"])
        return made

    first = model()
    first.fit(x, y, epochs=2, verbose=0)
    expected = first.evaluate(x, y, verbose=0)
    first.save_weights(folder / "weights.safetensors")
    first.save(folder / "model.ef")
    second = model()
    second.predict(x[:2], verbose=0)
    second.load_weights(folder / "weights.safetensors")
    compare(second.evaluate(x, y, verbose=0), expected, rtol=1e-6)
    third = ef.nn.load_model(folder / "model.ef")
    compare(third.predict(x, verbose=0), first.predict(x, verbose=0), rtol=1e-6)


def pytorch_78442(folder):
    """Exported, floor division rounded to zero."""
    for dtype in ("i4", "i8", "f4"):
        a = np.array([7, -7, 6, -1], dtype)
        b = np.array([2, 2, -4, 3], dtype)
        exported(lambda a, b: a // b, a, b, folder=folder, expect=a // b)
        exported(lambda a: (a // 2, a % 3), a, folder=folder, expect=(a // 2, a % 3))


def pytorch_99424(folder):
    """Exported, a pool with a ceiling in its size lost the ceiling."""
    x = floats(1, 9, 9, 2)
    for f in (
        lambda x: ef.avg_pool(x, 4, 2, ceil_mode=True),
        lambda x: ef.max_pool(x, 4, 2, ceil_mode=True),
    ):
        assert f(ef.tensor(x)).shape == (1, 4, 4, 2)
        exported(f, x, folder=folder)


def pytorch_91357(folder):
    """Exported, sums of segments kept the last row instead of the sum."""
    x, ids = floats(6, 3), np.array([2, 0, 2, 2, 1, 0])
    expected = np.zeros((4, 3))
    np.add.at(expected, ids, x)
    exported(
        lambda x, i: ef.segment_sum(x, i, num_segments=4), x, ids, folder=folder, expect=expected
    )
    exported(lambda x, i: ef.zeros((4, 3)).at[i].add(x), x, ids, folder=folder, expect=expected)


def pytorch_110557(folder):
    """Exported, attention layers gave other numbers than the model."""
    attention = ef.nn.MultiHeadAttention(2, 4)
    norm, table = ef.nn.LayerNormalization(), ef.nn.Embedding(15, 8)
    dropout = ef.nn.Dropout(0.2)

    def f(ids):
        x = table(ids)
        return norm(x + dropout(attention(x, x)))

    ids = np.array([[1, 2, 3], [4, 14, 0]])
    f(ef.tensor(ids))
    exported(f, ids, folder=folder, rtol=1e-4)


def pytorch_32696(folder):
    """Exported, sizes of the example were constants in arithmetic on boxes."""
    grid = np.stack(np.meshgrid(np.arange(3.0), np.arange(3.0)), -1).astype("f4")

    def f(x):
        boxes = x[..., :2] * 2 + ef.tensor(grid)
        return ef.concat([boxes * 8, ef.exp(x[..., 2:4]), ef.sigmoid(x[..., 4:])], axis=-1)

    exported(f, floats(1, 3, 3, 7), folder=folder)
    graph = ef.capture.trace(f, ef.TensorSpec((None, 3, 3, 7), "float32"))
    ef.capture.export_onnx(graph, str(folder / "free.onnx"))
    session = onnxruntime.InferenceSession(str(folder / "free.onnx"))
    x = floats(4, 3, 3, 7)
    (found,) = session.run(None, {session.get_inputs()[0].name: x})
    compare(found, f(ef.tensor(x)).numpy())


def tensorflow_34158(folder):
    """A loaded model no longer knew the mask of its inputs."""
    model = ef.nn.Sequential([ef.nn.Embedding(9, 4, mask_zero=True), ef.nn.LSTM(3)])
    ids = np.array([[3, 4, 0, 0], [1, 2, 5, 6], [7, 0, 0, 0]])
    expected = model.predict(ids, verbose=0)
    short = np.concatenate(
        [model.predict(ids[i : i + 1, :n], verbose=0) for i, n in enumerate((2, 4, 1))]
    )
    compare(expected, short)
    model.save(folder / "masked.ef")
    compare(ef.nn.load_model(folder / "masked.ef").predict(ids, verbose=0), expected, rtol=1e-6)
    compare(copy.deepcopy(model).predict(ids, verbose=0), expected, rtol=1e-6)


@cases("saving", globals())
def test_case(case, tmp_path):
    case(tmp_path)
