"""What a Writer writes is what TensorBoard's own reader finds; what does not fit is refused."""

import io

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.errors import ArgumentError, DTypeError, FileFormatError, SessionError, ShapeError

pytest.importorskip("tensorboard")
from tests.summary import reading

RNG = np.random.default_rng(0)


@pytest.fixture
def writer(tmp_path):
    with ef.summary.Writer(tmp_path) as w:
        yield w


def test_scalars_of_all_kinds_come_back(tmp_path):
    given = {
        "number": 0.1,
        "integer": 3,
        "truth": True,
        "array": np.float64(2.5),
        "tensor": ef.tensor(1.5),
        "half": ef.tensor(0.25, "bfloat16"),
        "variable": ef.Variable(7.0),
        "group/nan": float("nan"),
    }
    with ef.summary.Writer(tmp_path) as w:
        for step, (name, value) in enumerate(given.items()):
            w.scalar(name, value, step)
    found = reading.values(tmp_path)
    assert [row[:2] for row in found] == [(name, i) for i, name in enumerate(given)]
    for (_, _, array, plugin), value in zip(found, given.values(), strict=True):
        expected = np.float32(np.asarray(getattr(value, "value", value), "float64"))
        assert plugin == "scalars" and array.shape == ()
        np.testing.assert_array_equal(array, expected)


def buckets_by_loop(values, count):
    """The definition, element by element: ranges are closed below, and the last above too."""
    low, high = min(values), max(values)
    width = (high - low) / count
    found = [0] * count
    for x in values:
        found[min(int((x - low) / width), count - 1)] += 1
    return found


def test_histograms_count_every_finite_element(tmp_path):
    values = RNG.integers(-50, 50, (20, 7)).astype("float32")  # ends of ranges are hit exactly
    with ef.summary.Writer(tmp_path) as w:
        w.histogram("a", values, 5, buckets=10)
        w.histogram("one", ef.full((3,), 2.0), 0, buckets=4)
        w.histogram("few", [1.0, np.nan, 2.0, np.inf], 0, buckets=2)
        w.histogram("none", np.zeros((0,)), 0, buckets=2)
        w.histogram("truth", np.array([True, False, True]), 0, buckets=2)
        w.histogram("half", ef.tensor([0.0, 1.0, 1.0], "bfloat16"), 0, buckets=2)
    step, rows, plugin = reading.only(tmp_path, "a")
    assert (step, plugin) == (5, "histograms")
    assert rows[:, 2].tolist() == buckets_by_loop(values.ravel().tolist(), 10)
    np.testing.assert_array_equal(rows[1:, 0], rows[:-1, 1])
    assert (rows[0, 0], rows[-1, 1]) == (values.min(), values.max())
    one, few, none, truth, half = (
        reading.only(tmp_path, tag)[1].tolist() for tag in ("one", "few", "none", "truth", "half")
    )
    assert one == [[2, 2, 0], [2, 2, 0], [2, 2, 0], [2, 2, 3]]
    assert few == [[1, 1.5, 1], [1.5, 2, 1]]
    assert none == [[0, 0, 0]] * 2
    assert truth == half == [[0, 0.5, 1], [0.5, 1, 2]]


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_pictures_come_back_pixel_by_pixel(tmp_path, channels):
    from PIL import Image

    pixels = RNG.integers(0, 256, (5, 4, 6, channels), dtype="uint8")
    with ef.summary.Writer(tmp_path) as w:
        w.image("bytes", pixels, 1, max_images=2)
        w.image("floats", pixels[0] / 255, 1)
    for tag, count in (("bytes", 2), ("floats", 1)):
        _, (width, height, *encoded), plugin = reading.only(tmp_path, tag)
        assert (plugin, width, height, len(encoded)) == ("images", b"6", b"4", count)
        for picture, expected in zip(encoded, pixels, strict=False):
            found = np.asarray(Image.open(io.BytesIO(picture))).reshape(expected.shape)
            np.testing.assert_array_equal(found, expected)


def test_floats_beyond_the_bounds_are_brought_to_them(tmp_path):
    from PIL import Image

    with ef.summary.Writer(tmp_path) as w:
        w.image("x", np.array([[-1.0, 0.5, 2.0, np.nan, np.inf]]), 0)
    encoded = reading.only(tmp_path, "x")[1][2]
    assert np.asarray(Image.open(io.BytesIO(encoded))).tolist() == [[0, 128, 255, 0, 255]]


def test_texts_and_tables_come_back(tmp_path):
    with ef.summary.Writer(tmp_path) as w:
        w.text("one", "the *first* ünïcode", 3)
        w.text("list", ["a", "b"], 3)
        w.text("table", [["rate", "0.1"], ["width", "64"]], 3)
    decode = np.vectorize(lambda b: b.decode(), otypes=[object])
    found = {tag: decode(array).tolist() for tag, _, array, _ in reading.values(tmp_path)}
    assert found == {
        "one": "the *first* ünïcode",
        "list": ["a", "b"],
        "table": [["rate", "0.1"], ["width", "64"]],
    }
    assert {row[3] for row in reading.values(tmp_path)} == {"text"}


def counts_by_loop(labels, predictions, weights, threshold):
    rows = list(zip(labels, predictions, weights, strict=True))
    return [
        sum(w for y, p, w in rows if y and p >= threshold),
        sum(w for y, p, w in rows if not y and p >= threshold),
        sum(w for y, p, w in rows if not y and p < threshold),
        sum(w for y, p, w in rows if y and p < threshold),
    ]


@pytest.mark.parametrize("weighted", [False, True])
def test_precision_and_recall_are_those_of_the_definition(tmp_path, weighted):
    labels, predictions = RNG.random(60) < 0.4, RNG.random(60).astype("float32")
    weights = RNG.integers(1, 4, 60).astype("float32") if weighted else None
    with ef.summary.Writer(tmp_path) as w:
        w.pr_curve("c", labels, predictions, 2, weights=weights, thresholds=11)
    step, rows, plugin = reading.only(tmp_path, "c")
    assert (step, plugin, rows.shape) == (2, "pr_curves", (6, 11))
    shares = [1] * 60 if weights is None else weights.tolist()
    for i in range(11):
        expected = counts_by_loop(labels.tolist(), predictions.tolist(), shares, i / 10)
        yes, no, _, missed = expected
        np.testing.assert_allclose(rows[:4, i], expected)
        assert rows[4, i] == pytest.approx(yes / (yes + no) if yes + no else 0.0)
        assert rows[5, i] == pytest.approx(yes / (yes + missed))


def test_meshes_come_back_in_parts(tmp_path):
    from tensorboard.plugins.mesh import metadata

    points, faces = RNG.normal(size=(4, 3)), np.array([[0, 1, 2], [1, 2, 3]])
    colors = RNG.integers(0, 256, (4, 3), dtype="uint8")
    with ef.summary.Writer(tmp_path) as w:
        w.mesh("m", points, 1, faces=faces, colors=colors, config={"camera": {"cls": "x"}})
        w.mesh("colored", points[None], 1, colors=colors[None] / 255)
    found = {tag: array for tag, _, array, _ in reading.values(tmp_path)}
    np.testing.assert_array_equal(found["m_VERTEX"], points[None].astype("float32"))
    np.testing.assert_array_equal(found["m_FACE"], faces[None])
    np.testing.assert_array_equal(found["m_COLOR"], colors[None])
    np.testing.assert_array_equal(found["colored_COLOR"], colors[None])
    (value,) = [v for e in reading.events(tmp_path) for v in e.summary.value if v.tag == "m_FACE"]
    told = metadata.parse_plugin_metadata(value.metadata.plugin_data.content)
    assert told.json_config == '{"camera": {"cls": "x"}}' and list(told.shape) == [1, 2, 3]
    assert told.components == 0b111 << 1


def test_figures_are_pictures(tmp_path):
    figure = pytest.importorskip("matplotlib.figure").Figure(figsize=(2, 1), dpi=50)
    figure.subplots().plot([1, 2])
    with ef.summary.Writer(tmp_path) as w:
        w.figure("f", figure, 4)
    step, (width, height, png), _ = reading.only(tmp_path, "f")
    assert (step, width, height, png[:4]) == (4, b"100", b"50", b"\x89PNG")


@pytest.mark.parametrize("fails", [False, True])
def test_hyperparameters_have_a_beginning_and_an_end(tmp_path, fails):
    from tensorboard.plugins.hparams import api_pb2, metadata

    try:
        with ef.summary.Writer(tmp_path) as w:
            w.hparams({"rate": np.float32(0.5), "name": "adam", "deep": True}, {"accuracy": 0.75})
            if fails:
                raise KeyError
    except KeyError:
        pass
    begin, end = (
        v.metadata.plugin_data.content
        for e in reading.events(tmp_path)
        for v in e.summary.value
        if v.tag.startswith("_hparams_")
    )
    told = metadata.parse_session_start_info_plugin_data(begin).hparams
    assert (told["rate"].number_value, told["name"].string_value) == (0.5, "adam")
    assert told["deep"].bool_value
    status = metadata.parse_session_end_info_plugin_data(end).status
    assert status == (api_pb2.STATUS_FAILURE if fails else api_pb2.STATUS_SUCCESS)
    assert reading.only(tmp_path, "accuracy")[1] == 0.75


def test_embeddings_are_readable_by_the_projector(tmp_path):
    from google.protobuf import text_format
    from PIL import Image
    from tensorboard.plugins.projector import projector_config_pb2, projector_plugin

    vectors, images = RNG.normal(size=(5, 3)).astype("float32"), RNG.random((5, 2, 3, 1))
    with ef.summary.Writer(tmp_path) as w:
        w.embedding("first/one", np.zeros((2, 2)), ["a\tb", "c\nd"])
    with ef.summary.Writer(tmp_path) as w:  # which knows of what is there
        w.embedding("second", vectors, {"digit": range(5), "kind": list("abcde")}, images)
        w.embedding("first/one", np.ones((2, 2)), ["a\tb", "c\nd"])  # in place of the other
    config = projector_config_pb2.ProjectorConfig()
    text_format.Parse((tmp_path / "projector_config.pbtxt").read_text(), config)
    one, two = config.embeddings
    assert (one.tensor_name, two.tensor_name) == ("first/one", "second")
    read = projector_plugin._read_tensor_tsv_file
    np.testing.assert_array_equal(read(str(tmp_path / one.tensor_path)), np.ones((2, 2)))
    np.testing.assert_array_equal(read(str(tmp_path / two.tensor_path)), vectors)
    assert (tmp_path / one.metadata_path).read_text() == "a\\tb\nc\\nd\n"
    assert (tmp_path / two.metadata_path).read_text().splitlines()[:2] == ["digit\tkind", "0\ta"]
    sheet = np.asarray(Image.open(tmp_path / two.sprite.image_path))
    assert list(two.sprite.single_image_dim) == [3, 2] and sheet.shape == (3 * 2, 3 * 3)
    np.testing.assert_array_equal(sheet[2:4, 0:3], np.round(images[3, ..., 0] * 255))


def test_every_and_steps(tmp_path):
    counter = ef.Variable(0)
    with ef.summary.Writer(tmp_path) as w:
        for i in range(7):
            w.scalar("plain", i, i, every=3)
            w.scalar("variable", i, counter, every=2)
            w.scalar("tensor", i, ef.tensor(i, "uint8"), every=5)
            counter.assign_add(1)
    found = {}
    for tag, step, array, _ in reading.values(tmp_path):
        found.setdefault(tag, []).append((step, float(array)))
    assert found == {
        "plain": [(0, 0), (3, 3), (6, 6)],
        "variable": [(0, 0), (2, 2), (4, 4), (6, 6)],
        "tensor": [(0, 0), (5, 5)],
    }


BAD = [
    (lambda w: w.scalar("", 1.0, 0), ArgumentError, "name"),
    (lambda w: w.scalar(3, 1.0, 0), ArgumentError, "name"),
    (lambda w: w.scalar("a", "x", 0), DTypeError, "Writer.scalar: value"),
    (lambda w: w.scalar("a", 1j, 0), DTypeError, "complex"),
    (lambda w: w.scalar("a", [1.0], 0), ShapeError, "one number"),
    (lambda w: w.scalar("a", 1.0, -1), ArgumentError, "step"),
    (lambda w: w.scalar("a", 1.0, 1.5), ArgumentError, "step"),
    (lambda w: w.scalar("a", 1.0, True), ArgumentError, "step"),
    (lambda w: w.scalar("a", 1.0, 1 << 70), ArgumentError, "step"),
    (lambda w: w.scalar("a", 1.0, ef.tensor(1.0)), DTypeError, "step"),
    (lambda w: w.scalar("a", 1.0, ef.tensor([1])), ShapeError, "step"),
    (lambda w: w.scalar("a", 1.0, ef.tensor(-1)), ArgumentError, "step"),
    (lambda w: w.scalar("a", 1.0, 0, every=0), ArgumentError, "every"),
    (lambda w: w.histogram("a", 1j, 0), DTypeError, "complex"),
    (lambda w: w.histogram("a", 1.0, 0, buckets=0), ArgumentError, "buckets"),
    (lambda w: w.image("a", np.zeros((2, 2, 5)), 0), ShapeError, "image"),
    (lambda w: w.image("a", np.zeros((2, 0)), 0), ShapeError, "image"),
    (lambda w: w.image("a", np.zeros((2, 2), "int64"), 0), DTypeError, "int64"),
    (lambda w: w.image("a", np.zeros((2, 2)), 0, max_images=0), ArgumentError, "max_images"),
    (lambda w: w.figure("a", 3, 0), DTypeError, "figure"),
    (lambda w: w.text("a", 3, 0), DTypeError, "text"),
    (lambda w: w.text("a", [["a"], ["b", "c"]], 0), DTypeError, "text"),
    (lambda w: w.pr_curve("a", [1, 0], [0.5], 0), ShapeError, "labels"),
    (lambda w: w.pr_curve("a", [1], [0.5], 0, thresholds=1), ArgumentError, "thresholds"),
    (lambda w: w.mesh("a", np.zeros((2, 4)), 0), ShapeError, "vertices"),
    (lambda w: w.mesh("a", np.zeros((2, 3)), 0, faces=np.zeros((1, 3))), DTypeError, "faces"),
    (lambda w: w.mesh("a", np.zeros((2, 3)), 0, colors=np.zeros((1, 3))), ShapeError, "colors"),
    (lambda w: w.graph(3), ArgumentError, "no graph"),
    (lambda w: w.hparams({"a": [1]}), ArgumentError, "plain"),
    (lambda w: w.embedding("a", np.zeros(3)), ShapeError, "vectors"),
    (lambda w: w.embedding("a", np.zeros((2, 3)), ["x"]), ShapeError, "labels"),
    (lambda w: w.embedding("a", np.zeros((2, 3)), None, np.zeros((1, 2, 2, 1))), ShapeError, "im"),
]


@pytest.mark.parametrize("number", range(len(BAD)))
def test_invalid_values_are_refused_and_not_written(tmp_path, number):
    call, error, words = BAD[number]
    with ef.summary.Writer(tmp_path) as w, pytest.raises(error, match=words):
        call(w)
    assert not reading.values(tmp_path)


def test_bad_folders_and_closed_writers(tmp_path):
    (tmp_path / "file").write_text("")
    for place in (tmp_path / "file", "", 3, "a\0b"):
        with pytest.raises(FileFormatError):
            ef.summary.Writer(place)
    with pytest.raises(ArgumentError, match="flush_secs"):
        ef.summary.Writer(tmp_path, flush_secs=0)
    w = ef.summary.Writer(tmp_path / "new")
    w.close()
    w.close()
    for use in (lambda: w.scalar("a", 1.0, 0), w.flush, w.__enter__):
        with pytest.raises(SessionError, match="closed"):
            use()


def test_damaged_projector_configuration_is_refused(writer, tmp_path):
    (tmp_path / "projector_config.pbtxt").write_text("embeddings { what: 3")
    with pytest.raises(FileFormatError, match="projector_config"):
        writer.embedding("a", np.zeros((2, 3)))


def test_a_step_that_is_a_number_is_due_in_each_run(tmp_path):
    """Also where what is written is an argument, which is no step then."""
    with ef.summary.Writer(tmp_path) as w:

        @ef.function
        def step(x, y):
            w.scalar("x", x, 4, every=2)
            w.histogram("y", y, 4, every=2)
            return x

        for x in (0, 1, 3):
            step(x, ef.ones(3))
    found = [float(array) for _, at, array, _ in reading.values(tmp_path, "x") if at == 4]
    assert found == [0.0, 1.0, 3.0]
    assert len(reading.values(tmp_path, "y")) == 3
