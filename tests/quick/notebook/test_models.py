"""Models and histories in a notebook."""

import math

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.notebook import curves, models
from tests.notebook.pages import HOSTILE, found, parsed, view, words


def test_models_show_the_table_of_their_summary():
    model = ef.nn.Sequential(
        [ef.nn.Input((4,)), ef.nn.Dense(8, name="hidden"), ef.nn.Dense(2)], name="small"
    )
    root = view(model)
    lines = []
    model.summary(print_fn=lambda text: lines.extend(text.split("\n")))
    assert root[0].text == lines[0]
    for row, line in zip(found(root, "tr")[1:], lines[4:], strict=False):
        assert " ".join(words(cell) for cell in row).split() == line.split()
    assert lines[-1] in words(root)
    assert {"hidden", "small"} <= {text.text for text in found(root, "text")} | {model.graph.name}


class Nested(ef.nn.Model):
    def __init__(self):
        super().__init__()
        self.dense = ef.nn.Dense(3)

    def call(self, x):
        return self.dense(x)


def test_models_without_shapes_have_a_view():
    for model in (ef.nn.Sequential([ef.nn.Dense(2)]), Nested(), ef.nn.Sequential()):
        root = view(model)
        assert "No parameters yet" in words(root) and not found(root, "svg")


def test_deep_models_are_shown_in_part():
    model = ef.nn.Sequential([ef.nn.Input((2,)), *(ef.nn.Activation("relu") for _ in range(300))])
    root = view(model)
    assert len(found(root, "tr")) == models.MAX_ROWS + 1
    assert "and 101 more layers" in words(root)


@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
def test_names_in_models_are_text(name):
    model = ef.nn.Sequential([ef.nn.Input((2,)), ef.nn.Dense(2)], name="m")
    model.layers[-1].name = name
    model.name = name
    view(model)
    history = ef.nn.callbacks.History()
    history.on_epoch_end(0, {name: 1.0, f"val_{name}": ef.nan})
    view(history)


# Histories ---------------------------------------------------------------------------------------


def history_of(**numbers):
    history = ef.nn.callbacks.History()
    for epoch in range(max(map(len, numbers.values()))):
        logs = {name: own[epoch] for name, own in numbers.items() if epoch < len(own)}
        history.on_epoch_end(epoch, logs)
    return history


def test_training_and_validation_share_a_picture():
    history = history_of(loss=[3.0, 2.0, 1.0], val_loss=[4.0, 3.0, 2.0], accuracy=[0.1, 0.5, 0.9])
    root = view(history)
    titles = [svg.get("aria-label") for svg in found(root, "svg")]
    assert titles == [
        "loss by epoch: training 3 to 1; validation 4 to 2",
        "accuracy by epoch: training 0.1 to 0.9",
    ]
    assert [row[0].text for row in found(root, "tr")] == ["epoch", "1", "2", "3"]
    assert [td.text for td in found(root, "tr")[2]] == ["2", "2", "3", "0.5"]


def points(svg):
    """The heights of the dots of a picture, from left to right."""
    dots = sorted((float(c.get("cx")), float(c.get("cy"))) for c in found(svg, "circle"))
    return [y for _, y in dots]


def test_curves_go_where_the_numbers_are():
    values = [5.0, 1.0, 3.0, 4.0]
    heights = points(found(view(history_of(loss=values)), "svg")[0])
    slopes = np.diff(heights) / np.diff(values)
    np.testing.assert_allclose(slopes, slopes[0], rtol=0.02)
    assert slopes[0] < 0 and all(34 <= y <= 146 for y in heights)


ODD = [
    [math.nan] * 3,
    [1.0, math.nan, math.inf, 2.0],
    [0.0],
    [7.0] * 4,
    [1e308, -1e308],
    [5e-324, 0.0],
    [1.0, 1.0 + 1e-15],
    [1e300, 1e300 * (1 + 1e-12)],
]


@pytest.mark.parametrize("values", ODD, ids=str)
def test_all_numbers_have_a_picture(values):
    root = view(history_of(loss=values, val_loss=values[:1]))
    assert "nan" not in " ".join(p.get("d") for p in found(root, "path"))
    if not any(map(math.isfinite, values)):
        assert "no finite number" in words(root)


def test_long_histories_are_thinned():
    values = list(np.linspace(1, 0, 5_000))
    numbers = {f"n{i}": values for i in range(20)}
    root = view(history_of(**numbers))
    assert len(found(root, "svg")) == curves.MAX_CHARTS and "and 8 more: n12" in words(root)
    rows = found(root, "tr")
    assert len(rows) <= curves.MAX_ROWS + 1 and rows[-1][0].text == "5000"


def test_histories_that_were_changed_have_a_view():
    assert "no epoch has ended" in words(view(ef.nn.callbacks.History()))
    history = history_of(loss=[1.0, 2.0])
    history.history["loss"].append(3.0)
    history.history["other"] = [1.0]
    history.history["none"] = []
    assert [row[0].text for row in found(view(history), "tr")] == ["epoch", "1", "2", "3"]
    parsed(history._repr_html_())


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (0.0, 1.0, [0.0, 0.5, 1.0]),
        (1.0, 12.0, [0.0, 5.0, 10.0, 15.0]),
        (-3.0, 2.0, [-4.0, -2.0, 0.0, 2.0]),
        (2.0, 2.0, [2.0]),
    ],
)
def test_ticks_are_round_numbers_around_the_range(low, high, ticks):
    assert curves.ticks(low, high, 4) == ticks
