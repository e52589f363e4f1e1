"""Callbacks: driven by hand with the same numbers as Keras's, and by fit."""

import sys

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.nn import callbacks
from eagerflow.nn.callbacks.base import hooks
from tests.nn.peers import keras_on_torch
from tests.notebook.pages import contrast

X = np.linspace(-1, 1, 32, dtype="float32")[:, None]
Y = 3 * X + 1


def line(rate=0.1):
    model = ef.nn.Sequential([ef.nn.Input((1,)), ef.nn.Dense(1)])
    model.compile(ef.nn.optimizers.SGD(rate), "mse")
    return model


class Peer:
    """What callbacks need of a model, without one."""

    def __init__(self):
        self.stop_training = False
        self.weight = ef.Variable(0.0)
        self.weights = [self.weight]
        self.optimizer = ef.nn.optimizers.SGD(1.0)
        self.metrics = []
        self.saved = []

    def save(self, path):
        self.saved.append(("model", path))

    def save_weights(self, path):
        self.saved.append(("weights", path))


def drive(callback, values, name="loss", begin=True):
    """Epochs whose numbers are these; the weight is the epoch's number. How many there were."""
    if callback.model is None:
        callback.set_model(Peer())
    model = callback.model
    model.stop_training = False
    if begin:
        callback.on_train_begin({})
    for epoch, value in enumerate(values):
        callback.on_epoch_begin(epoch, {})
        model.weight.assign(float(epoch))
        callback.on_epoch_end(epoch, {name: value})
        if model.stop_training:
            break
    callback.on_train_end({})
    return epoch + 1


# The list -----------------------------------------------------------------------------------------


def test_every_hook_reaches_every_callback_in_order():
    seen = []
    functions = {h: lambda *args, h=h: seen.append((h, args)) for h in hooks}
    some = callbacks.LambdaCallback(**functions)
    all_of_them = callbacks.CallbackList([some, {"a": some}], model=3, epochs=2)
    assert (some.model, some.params) == (3, {"epochs": 2})
    for hook in hooks:
        seen.clear()
        args = (7, {}) if "batch" in hook or "epoch" in hook else ({},)
        getattr(all_of_them, hook)(*args)
        assert seen == [(hook, args)] * 2
        assert all_of_them.listens(hook)


def test_callback_list_reports_listeners():
    class Batches(callbacks.Callback):
        def on_batch_end(self, batch, logs=None):
            self.last = batch

    one = Batches()
    several = callbacks.CallbackList([callbacks.History(), one])
    assert several.listens("on_train_batch_end") and several.listens("on_epoch_end")
    assert not several.listens("on_train_batch_begin", "on_test_batch_end")
    several.on_train_batch_end(5, {})
    assert one.last == 5


def test_logs_added_by_a_callback_reach_later_callbacks():
    add = callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: logs.update(extra=1.0))
    history = callbacks.History()
    callbacks.CallbackList([add, history]).on_epoch_end(0, {"loss": 2.0})
    assert history.history == {"loss": [2.0], "extra": [1.0]}


# Monitors -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("options", "values", "epochs", "weight"), [
    ({"patience": 2}, [5, 4, 3, 3, 3, 3, 3], 5, 4),
    ({"patience": 0}, [5, 4, 4, 3], 3, 2),
    ({"patience": 2, "restore_best_weights": True}, [5, 3, 4, 4, 1], 4, 1),
    ({"patience": 2, "min_delta": 0.5}, [5, 4.8, 4.6, 1], 3, 2),
    ({"patience": 2, "mode": "max"}, [1, 2, 1, 1, 5], 4, 3),
    ({"patience": 2, "baseline": 2.0}, [5, 4, 3, 2.5, 1], 5, 4),
    ({"patience": 2, "baseline": 2.0}, [5, 6, 1], 2, 1),
    ({"patience": 1, "start_from_epoch": 3}, [1, 2, 3, 4, 5, 6], 5, 4),
    ({"patience": 1, "restore_best_weights": True, "baseline": 1.0}, [5, 6, 7], 2, 0),
    ({"patience": 9, "restore_best_weights": True}, [5, 1, 4], 3, 1),
])  # fmt: skip
def test_early_stopping(options, values, epochs, weight):
    stop = callbacks.EarlyStopping("loss", **options)
    for _ in range(2):  # it can be used again
        assert drive(stop, values) == epochs
        assert float(stop.model.weight) == weight


def test_the_mode_comes_from_the_metric_or_from_the_name():
    monitor = callbacks.Monitor("val_psnr")
    monitor.set_model(Peer())
    with pytest.raises(ef.errors.ArgumentError, match="rise or fall"):
        monitor.is_better(1.0, 2.0)
    metric = ef.nn.metrics.Mean("psnr")
    metric.direction = "up"
    monitor.model.metrics = [metric]
    assert monitor.is_better(2.0, 1.0) and not monitor.is_better(1.0, 2.0)
    for name in ("accuracy", "val_auc", "recall_1", "mean_iou"):
        assert callbacks.Monitor(name).rises()
    for name in ("loss", "val_loss", "mean_squared_error", "binary_crossentropy"):
        assert not callbacks.Monitor(name).rises()


def test_validation_may_be_seldom():
    stop = callbacks.EarlyStopping(patience=1)
    stop.set_params({"validation_freq": 2})
    stop.set_model(Peer())
    stop.on_epoch_end(0, {"loss": 1.0})
    assert stop.best is None
    stop.on_epoch_end(1, {"loss": 1.0, "val_loss": 2.0})
    assert stop.best == 2.0


@pytest.mark.parametrize(
    ("options", "values", "rates"),
    [
        ({"patience": 2, "factor": 0.5}, [5, 4, 4, 4, 4, 4], [1, 1, 1, 0.5, 0.5, 0.25]),
        ({"patience": 1, "factor": 0.5, "cooldown": 2}, [5] * 6, [1, 0.5, 0.5, 0.25, 0.25, 0.125]),
        ({"patience": 1, "factor": 0.1, "min_lr": 0.05}, [5] * 4, [1, 0.1, 0.05, 0.05]),
        ({"patience": 1, "min_delta": 1.0, "mode": "max"}, [5, 5.5, 7], [1, 0.1, 0.1]),
    ],
)
def test_reduce_lr_on_plateau(options, values, rates):
    reduce, found = callbacks.ReduceLROnPlateau("loss", **options), []
    reduce.set_model(Peer())
    for epoch, value in enumerate(values):
        logs = {"loss": value}
        reduce.on_epoch_end(epoch, logs)
        assert logs["learning_rate"] == pytest.approx(rates[max(epoch - 1, 0)])
        found.append(float(reduce.model.optimizer.learning_rate))
    assert found == pytest.approx(rates)


def test_learning_rate_scheduler_in_fit(capsys):
    seen = []
    schedule = callbacks.LearningRateScheduler(lambda epoch, rate: rate / (epoch + 1), verbose=1)
    log = callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: seen.append(dict(logs)))
    line().fit(X, Y, epochs=3, verbose=0, callbacks=[schedule, log])
    assert [logs["learning_rate"] for logs in seen] == pytest.approx([0.1, 0.05, 0.05 / 3])
    assert "Epoch 2: the learning rate is 0.05" in capsys.readouterr().out


def test_terminate_on_nan(capsys):
    model = line(rate=1e30)
    stop = callbacks.TerminateOnNaN()
    history = model.fit(X, Y, batch_size=4, epochs=9, verbose=0, callbacks=stop)
    assert len(history.epoch) == 1
    assert "the training ends" in capsys.readouterr().out


# Running means ------------------------------------------------------------------------------------


def averaging():
    model = Peer()
    model.optimizer = ef.nn.optimizers.SGD(1.0, use_ema=True)
    model.optimizer.build([model.weight])
    model.mean = model.optimizer.averages[model.weight]
    model.mean.assign(10.0)
    return model


def test_swap_ema_weights():
    swap, model = callbacks.SwapEMAWeights(), averaging()
    swap.set_model(model)
    for kind in ("test", "predict"):
        getattr(swap, f"on_{kind}_begin")()
        assert (float(model.weight), float(model.mean)) == (10.0, 10.0)
        getattr(swap, f"on_{kind}_end")()
        assert float(model.weight) == 0.0
    swap.on_epoch_end(0)
    assert float(model.weight) == 0.0


def test_swap_ema_weights_for_callbacks_behind():
    swap, model = callbacks.SwapEMAWeights(swap_on_epoch=True), averaging()
    swap.set_model(model)
    swap.on_epoch_begin(0)
    swap.on_test_begin()
    swap.on_test_end()
    swap.on_epoch_end(0)
    assert float(model.weight) == 10.0
    swap.on_epoch_begin(1)
    assert float(model.weight) == 0.0
    swap.on_epoch_end(1)
    swap.on_train_end()
    assert float(model.weight) == 10.0
    swap.on_epoch_begin(0)
    assert float(model.weight) == 10.0


@pytest.mark.parametrize("ask", ["evaluate", "predict"])
def test_swap_ema_weights_restores_weights_on_interrupt(ask):
    class Interrupts(ef.nn.callbacks.Callback):
        def stop(self, batch, logs=None):
            raise KeyboardInterrupt

        on_test_batch_begin = on_predict_batch_begin = stop

    model = ef.nn.Sequential([ef.nn.Input((2,)), ef.nn.Dense(1)])
    model.compile(ef.nn.optimizers.SGD(0.1, use_ema=True), "mse")
    x, y = np.ones((8, 2), "float32"), np.ones((8, 1), "float32")
    model.train_on_batch(x, y)
    before = model.get_weights()
    given = (x, y) if ask == "evaluate" else (x,)
    with pytest.raises(KeyboardInterrupt):
        getattr(model, ask)(*given, callbacks=[callbacks.SwapEMAWeights(), Interrupts()], verbose=0)
    for weight, old in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(weight, old)


# Files --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "saved"),
    [
        ({}, ["1-5.00", "2-4.00", "3-4.50", "4-3.00"]),
        ({"save_best_only": True}, ["1-5.00", "2-4.00", "4-3.00"]),
        ({"save_best_only": True, "initial_value_threshold": 4.2}, ["2-4.00", "4-3.00"]),
        ({"save_best_only": True, "mode": "max"}, ["1-5.00"]),
    ],
)
@pytest.mark.parametrize("weights", [False, True])
def test_model_checkpoint(tmp_path, options, saved, weights):
    path = tmp_path / "new" / "{epoch}-{loss:.2f}"
    save = callbacks.ModelCheckpoint(path, "loss", save_weights_only=weights, **options)
    drive(save, [5, 4, 4.5, 3])
    kind = "weights" if weights else "model"
    assert save.model.saved == [(kind, str(tmp_path / "new" / name)) for name in saved]
    assert (tmp_path / "new").is_dir()


def test_model_checkpoint_of_batches(capsys):
    save = callbacks.ModelCheckpoint("{epoch}-{batch}", "loss", save_freq=3, verbose=1)
    save.set_model(Peer())
    for epoch in range(2):
        save.on_epoch_begin(epoch)
        for batch in range(4):
            save.on_train_batch_end(batch, {"loss": 1.0})
        save.on_epoch_end(epoch, {"loss": 1.0})
    assert [path for _, path in save.model.saved] == ["1-3", "2-2"]
    assert "Epoch 2: saved as 2-2" in capsys.readouterr().out


def test_csv_logger(tmp_path):
    path = tmp_path / "log.csv"
    for append in (False, True, False):
        log = callbacks.CSVLogger(path, append=append)
        drive(log, [1.5, 2.0])
        rows = "0,1.5,NA\n1,2.0,NA\n"
        assert path.read_text() == "epoch,loss,val_loss\n" + rows * (2 if append else 1)
    log.on_epoch_end(2, {"loss": np.float32(0.5), "val_loss": [1, 2], "other": 3})
    assert path.read_text().endswith('2,0.5,"[1, 2]"\n')


# Pictures -----------------------------------------------------------------------------------------


def history_of(**numbers):
    history = callbacks.History()
    for epoch in range(len(numbers["loss"])):
        logs = {key: values[epoch] for key, values in numbers.items()}
        logs = {key: value for key, value in logs.items() if value is not None}
        history.on_epoch_end(epoch, logs)
    return history


def test_history_plots_each_number_once(tmp_path):
    pytest.importorskip("matplotlib").use("agg")
    history = history_of(loss=[3, 2, 1], val_loss=[None, 3, 2], acc=[0, 0.5, 1], lr=[1, 1, 0.1])
    drawn = history.plot()
    assert [axes.get_title() for axes in drawn] == ["loss", "acc", "lr"]
    lines = drawn[0].lines
    assert [line.get_label() for line in lines] == ["training", "validation"]
    assert lines[1].get_xdata().tolist() == [2, 3]
    assert lines[1].get_ydata().tolist() == [3, 2]
    assert len(history.plot("acc")) == 1
    drawn[0].figure.savefig(tmp_path / "history.png")
    with pytest.raises(ef.errors.ArgumentError, match="'loss', 'acc', 'lr'"):
        history.plot("los")
    with pytest.raises(ef.errors.ArgumentError, match="no epoch"):
        callbacks.History().plot()


def colours_of(axes):
    """All colours that a plot has: of texts, lines, borders and ticks."""
    from matplotlib.text import Text

    parts = [part for part in axes.findobj(Text) if part.get_text()]
    parts += [*axes.lines, *axes.xaxis.get_ticklines(), *axes.yaxis.get_ticklines()]
    borders = [spine.get_edgecolor() for spine in axes.spines.values()]
    return [*(part.get_color() for part in parts), *borders]


def test_history_is_drawn_for_light_and_dark_pages():
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("agg")
    to_hex, to_rgba = matplotlib.colors.to_hex, matplotlib.colors.to_rgba
    history = history_of(loss=[3, 2, 1], val_loss=[4, 3, 2])
    with matplotlib.style.context("default"):
        (axes,) = history.plot()
    axes.figure.canvas.draw()
    assert to_rgba(axes.get_facecolor())[3] == to_rgba(axes.figure.get_facecolor())[3] == 0
    colours = {to_hex(colour) for colour in colours_of(axes)}
    for paper in ("#111111", "#ffffff"):
        assert min(contrast(colour, paper) for colour in colours) >= 3
    # Otherwise Jupyter puts a background of one lightness behind the plot.
    labels = axes.get_xticklabels() + axes.get_yticklabels()
    light = [np.dot(to_rgba(label.get_color())[:3], [0.299, 0.587, 0.114]) for label in labels]
    assert min(light) < 0.5 < max(light)


def test_history_has_the_colours_of_the_users_style():
    style = pytest.importorskip("matplotlib.style")
    with style.context(["default", "dark_background"]):
        (axes,) = history_of(loss=[3, 2, 1]).plot()
        assert axes.title.get_color() == "white" and axes.figure.get_facecolor()[3] == 1
    with style.context(["default", {"lines.linewidth": 3, "text.color": "red"}]):
        (axes,) = history_of(loss=[3, 2, 1]).plot()
        assert axes.title.get_color() == "red" and axes.figure.get_facecolor() == (1, 1, 1, 1)


def test_history_plot_without_matplotlib_raises(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ef.errors.MissingExtraError, match=r"eagerflow\[plot\]"):
        history_of(loss=[1]).plot()


@pytest.mark.parametrize(("call", "words"), [
    (lambda: callbacks.CallbackList([3]), "not a callback"),
    (lambda: callbacks.CallbackList([callbacks.History]), r"History\(\)"),
    (lambda: callbacks.LambdaCallback(on_step=print), "on_step"),
    (lambda: callbacks.EarlyStopping(mode="up"), "mode"),
    (lambda: callbacks.EarlyStopping(patience=-1), "patience"),
    (lambda: drive(callbacks.EarlyStopping("acc"), [1]), "there is no 'acc'"),
    (lambda: callbacks.ReduceLROnPlateau(factor=1.0), "factor"),
    (lambda: callbacks.ModelCheckpoint("a", save_freq="step"), "save_freq"),
    (lambda: drive(callbacks.ModelCheckpoint("{acc}"), [1]), "fields of loss, epoch"),
    (lambda: drive(callbacks.ModelCheckpoint("a", save_best_only=True), [1]),
     "there is no 'val_loss'"),
    (lambda: drive(callbacks.LearningRateScheduler(lambda e, r: "0.1"), [1]), "a number"),
    (lambda: drive(callbacks.LearningRateScheduler(lambda e, r: None), [1]), "gave None"),
])  # fmt: skip
def test_mistakes(call, words):
    with pytest.raises(ef.errors.ArgumentError, match=words):
        call()


def test_swap_needs_running_means():
    swap = callbacks.SwapEMAWeights()
    swap.set_model(Peer())
    with pytest.raises(ef.errors.ArgumentError, match="use_ema=True"):
        swap.on_test_begin()


def _keras():
    return keras_on_torch()


def test_monitoring_callbacks_match_keras():
    """Random numbers and options: the same epoch of stopping, best weights, rates."""
    keras = _keras()
    rng = np.random.default_rng(0)

    class Model:
        def __init__(self):
            self.stop_training, self.metrics, self.weights = False, [], [0]
            self.optimizer = keras.optimizers.SGD(1.0)

        def get_weights(self):
            return list(self.weights)

        def set_weights(self, weights):
            self.weights = weights

    for _ in range(300):
        values = rng.integers(0, 6, 12).astype(float)
        shared = {"mode": str(rng.choice(["min", "max"])), "patience": int(rng.integers(4))}
        shared |= {"min_delta": float(rng.choice([0, 1.0]))}
        stopping = shared | {
            "baseline": rng.choice([None, 2.0]),
            "restore_best_weights": bool(rng.integers(2)),
            "start_from_epoch": int(rng.integers(3)),
        }
        reducing = shared | {"factor": 0.5, "cooldown": int(rng.integers(3)), "min_lr": 0.1}
        for name, options in (("EarlyStopping", stopping), ("ReduceLROnPlateau", reducing)):
            ours, theirs = Peer(), Model()
            mine = getattr(callbacks, name)("loss", **options)
            other = getattr(keras.callbacks, name)("loss", **options)
            mine.set_model(ours)
            other.set_model(theirs)
            mine.on_train_begin()
            other.on_train_begin()
            for epoch, value in enumerate(values):
                ours.weight.assign(float(epoch))
                theirs.weights = [epoch]
                mine.on_epoch_end(epoch, {"loss": value})
                other.on_epoch_end(epoch, {"loss": value})
                assert ours.stop_training == theirs.stop_training
                assert float(ours.optimizer.learning_rate) == float(theirs.optimizer.learning_rate)
                if ours.stop_training:
                    break
            mine.on_train_end()
            other.on_train_end()
            assert float(ours.weight) == theirs.weights[0]


@pytest.mark.parametrize("schedule", [lambda epoch: 0.25, lambda epoch, rate: 0.25, np.maximum])
def test_a_schedule_may_take_the_epoch_alone(schedule):
    scheduler = callbacks.LearningRateScheduler(schedule)
    model = ef.nn.Sequential([ef.nn.Input((1,)), ef.nn.Dense(1)])
    model.compile(ef.nn.optimizers.SGD(0.25), "mse")
    scheduler.set_model(model)
    scheduler.on_epoch_begin(0)
    assert float(model.optimizer.learning_rate) == 0.25


def test_text_of_a_history_is_a_table():
    history = ef.nn.callbacks.History()
    assert str(history) == "<History: 0 epochs>"
    for epoch in range(45):
        logs = {"loss": 1.0 / (epoch + 1), "each": [0.5, epoch]}
        history.on_epoch_end(epoch, logs | ({"val_loss": 2.0} if epoch % 2 else {}))
    head, *rows = [line.split() for line in str(history).splitlines()]
    assert head == ["epoch", "loss", "each", "val_loss"]
    assert len(rows) == 15 and rows[-1] == ["45", "0.02222", "[0.5,", "44]"]
    assert rows[-2] == ["42", "0.02381", "[0.5,", "41]", "2"]
    assert "\n" not in repr(history)
