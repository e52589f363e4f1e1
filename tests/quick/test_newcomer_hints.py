"""Errors of first programs suggest what was meant: arguments, shapes, gradients, files."""

import inspect

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.errors import (
    ArgumentError,
    DeviceError,
    DTypeError,
    FileFormatError,
    GradientError,
    IndexRangeError,
    KeywordError,
    SessionError,
    ShapeError,
)

X = ef.tensor([[1.0, 2.0], [3.0, 4.0]])


def model_of(*shape, loss="mse"):
    model = ef.nn.Sequential([ef.nn.Input(shape), ef.nn.Dense(1)])
    model.compile("sgd", loss)
    return model


def hint_of(kind, call, *args, **kwargs):
    with pytest.raises(kind) as caught:
        call(*args, **kwargs)
    return caught.value.hint


@pytest.mark.parametrize(
    ("call", "name", "hint"),
    [
        (lambda **given: ef.tensor(1.0, **given), "requires_grad", "ef.Variable(values), or"),
        (lambda **given: ef.vmap(ef.sin, **given), "in_dims", "in_axes"),
        (lambda **given: ef.function(ef.sin, **given), "jit_compile", "nothing: "),
        (lambda **given: model_of(2).fit(X, X, **given), "epoch", "epochs"),
        (lambda **given: model_of(2).compile("sgd", "mse", **given), "lr", "ef.nn.optimizers"),
        (lambda **given: model_of(2).predict(X, **given), "batchsize", "batch_size"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_arguments_of_other_libraries(call, name, hint):
    assert hint_of(KeywordError, call, **{name: 1}).startswith(hint)
    with pytest.raises(KeywordError, match=f"there is no argument '{name}'"):
        call(**{name: 1})


def test_other_type_errors_of_explained_functions_are_theirs():
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'x'"):
        model_of(2).predict()
    with pytest.raises(TypeError, match="unexpected keyword argument 'b'"):
        ef.vmap(lambda a: a)(X, b=X)
    assert [*inspect.signature(ef.tensor).parameters] == ["obj", "dtype", "device"]


def test_arguments_of_calls_of_layers():
    with pytest.raises(TypeError, match=r"'d': call: .* 'train'; it takes inputs, training"):
        ef.nn.Dropout(0.5, name="d")(X, train=True)

    class Net(ef.nn.Model):
        def call(self, inputs):
            return ef.nn.Dropout(0.5).call(inputs, train=True)

    with pytest.raises(TypeError, match=r"call\(\) got an unexpected keyword argument 'train'"):
        Net()(X)


def test_inputs_of_another_shape():
    images = ef.nn.Sequential([ef.nn.Input((8, 8, 1)), ef.nn.Conv2D(2, 3)])
    assert "ef.permute_dims(x, (0, 2, 3, 1))" in hint_of(ShapeError, images, ef.ones((2, 1, 8, 8)))
    assert hint_of(ShapeError, images, ef.ones((2, 8, 8))).startswith("x[..., None]")
    assert "Input((5,))" in hint_of(ShapeError, model_of(2), ef.ones((3, 5)))
    assert "x[None]" in hint_of(ShapeError, model_of(2), ef.ones(2))
    assert "(batch, *sizes, channels)" in hint_of(
        ShapeError, ef.nn.Conv2D(2, 3), ef.ones((2, 1, 8, 8))
    )
    turned = ef.permute_dims(ef.ones((2, 1, 8, 8)), (0, 2, 3, 1))
    assert images(turned).shape == (2, 6, 6, 2)


def test_shapes_of_operands():
    assert hint_of(ShapeError, ef.add, ef.ones((4, 3)), ef.ones(4)).startswith("x[:, None]")
    assert hint_of(ShapeError, ef.add, ef.ones((4, 3)), ef.ones(5)) is None
    assert hint_of(ShapeError, ef.concat, [ef.ones((2, 3)), ef.ones((2, 4))]) == "axis=1"
    assert hint_of(ShapeError, ef.concat, [ef.ones((2, 3)), ef.ones((3, 4))], axis=0) is None
    assert "first argument" in hint_of(ShapeError, ef.random.normal, 0, (2, 2))


def test_data_of_training():
    model, y = model_of(2), np.ones((2, 1))
    assert hint_of(ShapeError, model.fit, (X, y), verbose=0).startswith("fit(x, y)")
    told = hint_of(ArgumentError, model.fit, X, y, validation_data=X, verbose=0)
    assert "validation_data=(x, y)" in told
    classes = model_of(2, loss="sparse_categorical_crossentropy")
    told = hint_of(IndexRangeError, classes.fit, X, np.array([0, 5]), verbose=0)
    assert "class numbers count from 0" in told


def test_gradients_without_a_path():
    w = ef.Variable([1.0, 2.0])
    with ef.GradientTape() as tape:
        tape.watch(X)
    assert "in the block" in hint_of(GradientError, tape.gradient, ef.sum(X), X)
    with ef.GradientTape() as tape:
        loss = ef.tensor(np.sum(w.numpy()))
    assert "the functions of ef" in hint_of(GradientError, tape.gradient, loss, w)


def test_devices_texts_sessions_and_files(tmp_path):
    assert "'gpu:0'" in hint_of(DeviceError, ef.device, "cuda")
    assert "x.astype(dtype)" in hint_of(DeviceError, X.to, "float16")
    with pytest.raises(DTypeError, match="a list of texts is not a tensor"):
        ef.tensor(["a", "b"])
    graph = ef.capture.trace(lambda x: {"y": x + 1}, ef.TensorSpec((2,), "float32"))
    session = ef.capture.Session(graph)
    assert hint_of(SessionError, session.run, "y", {"input": np.ones(2)}) == "x"
    pytest.importorskip("h5py")
    path = tmp_path / "none.weights.h5"
    with pytest.raises(FileFormatError, match="cannot be read: No such file or directory"):
        model_of(2).load_weights(path)
