"""BackupAndRestore and ModelCheckpoint with files: a training that was cut off ends as another."""

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.nn import callbacks

X = np.linspace(-1, 1, 32, dtype="float32")[:, None]
Y = 3 * X + 1
EPOCHS = 4


class Cut(Exception):
    pass


def train(callback, loader, cut=None):
    """Epochs by hand, as fit makes them; ``cut`` is the number of steps until it is cut off."""
    ef.random.seed(0)
    model = ef.nn.Sequential([ef.nn.Input((1,)), ef.nn.Dense(4), ef.nn.Dense(1)])
    model.compile(ef.nn.optimizers.Adam(0.1), "mse")
    done = 0
    callback.set_model(model)
    callback.on_train_begin()
    for epoch in range(model._initial_epoch, EPOCHS):
        callback.on_epoch_begin(epoch)
        for batch, (x, y) in enumerate(loader):
            if done == cut:
                raise Cut
            model.train_on_batch(x, y)
            done += 1
            callback.on_train_batch_end(batch, {})
        callback.on_epoch_end(epoch, {})
    callback.on_train_end()
    return model.get_weights()


@pytest.mark.sampled(2)
@pytest.mark.parametrize("frequency", ["epoch", 3])
@pytest.mark.parametrize("double", [False, True])
def test_it_goes_on_bit_for_bit(tmp_path, frequency, double):
    def again(folder, cut=None):
        loader = ef.nn.Loader((X, Y), 8, shuffle=True, seed=1, workers=1)
        options = {"save_freq": frequency} | ({"double_checkpoint": True} if double else {})
        return train(callbacks.BackupAndRestore(folder, **options, loader=loader), loader, cut)

    right = again(tmp_path / "whole")
    assert not (tmp_path / "whole").exists()
    for cut in (6, 5, 2):
        with pytest.raises(Cut):
            again(tmp_path / "cut", cut)
    assert len([*(tmp_path / "cut").iterdir()]) == 1 + double
    (tmp_path / "cut" / "mine").touch()
    found = again(tmp_path / "cut")
    assert [path.name for path in (tmp_path / "cut").iterdir()] == ["mine"]
    for a, b in zip(found, right, strict=True):
        np.testing.assert_array_equal(a, b)


class Stop(callbacks.Callback):
    """Cuts a training off when a hook is called for the n-th time, and counts its epochs."""

    def __init__(self, hook=None, calls=0):
        super().__init__()
        self.epochs, self.batches = [], 0
        if hook is not None:
            setattr(self, hook, self._called)
        self._left = calls

    def _called(self, number, logs=None):
        self._left -= 1
        if not self._left:
            raise Cut

    def on_epoch_end(self, epoch, logs=None):
        self.epochs.append((epoch, self.batches))
        self.batches = 0

    def on_batch_end(self, batch, logs=None):
        self.batches += 1


class Stream:
    def __iter__(self):
        return zip(X, Y, strict=True)


DATA = {"arrays": ((X, Y), True, None), "steps": ((X, Y), True, 6), "stream": (Stream(), 7, None)}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("data", DATA.values(), ids=DATA)
@pytest.mark.parametrize("frequency", [2, 4])
def test_fit_makes_the_batches_that_were_left(tmp_path, data, frequency):
    """There are four in a pass over the data: a state may be due behind the last one."""
    data, shuffle, steps = data

    def again(folder, *cut):
        ef.random.seed(0)
        loader = ef.nn.Loader(data, 8, shuffle=shuffle, seed=1)
        model = ef.nn.Sequential([ef.nn.Input((1,)), ef.nn.Dense(4), ef.nn.Dense(1)])
        model.compile(ef.nn.optimizers.Adam(0.1), "mse")
        backup, stop = callbacks.BackupAndRestore(folder, frequency, loader=loader), Stop(*cut)
        more = {"epochs": EPOCHS, "steps_per_epoch": steps, "verbose": 0}
        model.fit(loader, callbacks=[backup, stop], **more)
        bits = [v.numpy().tobytes() for v in (*model.weights, *model.optimizer.variables)]
        return bits, stop.epochs

    right, epochs = again(tmp_path / "whole")
    cuts = [("on_train_batch_begin", 5), ("on_epoch_end", 1), ("on_train_batch_end", 4)]
    for i, cut in enumerate(cuts):
        with pytest.raises(Cut):
            again(tmp_path / f"cut {i}", *cut)
        found, rest = again(tmp_path / f"cut {i}")
        assert found == right
        assert rest[1:] == epochs[-len(rest) :][1:] and rest[0][1] > 0


def test_saved_models_can_be_loaded(tmp_path):
    model = ef.nn.Sequential([ef.nn.Input((1,)), ef.nn.Dense(1)])
    model.compile("sgd", "mse")
    save = callbacks.ModelCheckpoint(tmp_path / "{epoch}.ef", "loss", save_best_only=True)
    model.fit(X, Y, epochs=2, verbose=0, callbacks=save)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1.ef", "2.ef"]
    loaded = ef.nn.load_model(tmp_path / "2.ef")
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))


def test_bad_frequency():
    with pytest.raises(ef.errors.ArgumentError, match="save_freq"):
        callbacks.BackupAndRestore("backup", save_freq="step")
