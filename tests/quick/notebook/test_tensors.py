"""What a notebook shows of tensors of all kinds and sizes."""

import base64
import io
import math
import time

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import eagerflow as ef
from eagerflow.notebook import tensors
from tests.notebook.pages import HOSTILE, found, parsed, view, words

DTYPES = [
    "bool", "int8", "uint8", "int64", "uint64", "float16", "float32", "float64", "bfloat16",
    "float8_e4m3fn", "complex64", "complex128",
]  # fmt: skip
SHAPES = [
    (), (1,), (9,), (300,), (0,), (0, 3), (2, 0, 4), (2, 2), (8, 8), (9, 1), (1, 9), (40, 60),
    (500, 3), (2, 3, 4), (50, 2, 2), (6, 28, 28), (16, 16, 3), (16, 16, 1), (2, 2, 3),
    (20, 9, 9, 3), (2, 2, 2, 2), (2,) * 9,
]  # fmt: skip


def cells(root):
    """The rows of each table."""
    return [
        [[td.text for td in row] for row in found(table, "tr")] for table in found(root, "table")
    ]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_every_dtype_and_shape_has_a_view(dtype, shape):
    values = np.random.default_rng(0).integers(0, 100, shape)
    tensor = ef.tensor(values).astype(dtype)
    root = view(tensor)
    assert root[0].text == f"{dtype}{shape} on cpu:0"
    pictured = any(n > 8 for n in shape[-2:]) and (len(shape) < 4 or "complex" not in dtype)
    if math.prod(shape):
        assert bool(found(root, "img")) == pictured
        assert bool(found(root, "table")) == (len(shape) < 4)


def test_table_of_a_matrix():
    root = view(ef.tensor([[1.0, -2.25], [100.0, 0.0]]))
    assert cells(root) == [[["  1.  ", " -2.25"], ["100.  ", "  0.  "]]]


@pytest.mark.parametrize("shape", [(100, 200), (100, 3), (3, 100), (9, 9), (30,)])
def test_tables_leave_out_the_middle(shape):
    values = np.arange(math.prod(shape)).reshape(shape)
    grid = np.atleast_2d(values)
    (rows,) = cells(view(ef.tensor(values)))
    places = [[*range(n)] if n <= 8 else [*range(4), None, *range(n - 4, n)] for n in grid.shape]
    expected = [
        ["…" if i is None or j is None else str(grid[i, j]) for j in places[1]] for i in places[0]
    ]
    assert [[cell.strip() for cell in row] for row in rows] == expected


def test_tables_of_a_stack():
    root = view(ef.zeros((2, 3, 4)))
    assert [c.text for c in found(root, "caption")] == ["[0]", "[1]"]
    assert [len(rows) for rows in cells(root)] == [3, 3] and not found(root, "details")
    root = view(ef.zeros((50, 2, 2)))
    assert [c.text for c in found(root, "caption")] == ["[0]", "[1]", "[48]", "[49]"]
    assert found(root, "details")


# Numbers that are not finite ---------------------------------------------------------------------


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_nonfinite_values_are_counted_and_located(data):
    shape = data.draw(st.sampled_from([(7,), (4, 5), (2, 3, 4), (2, 2, 2, 3)]))
    kinds = data.draw(
        st.lists(st.integers(0, 3), min_size=math.prod(shape), max_size=math.prod(shape))
    )
    values = np.choose(np.reshape(kinds, shape), [1.5, np.nan, np.inf, -np.inf])
    tensor = ef.tensor(values.astype(data.draw(st.sampled_from(["float64", "float16"]))))
    lines = [e.text for e in found(view(tensor), "strong")]
    expected = []
    for name, places in (
        ("NaN", np.argwhere(np.isnan(values))),
        ("inf", np.argwhere(values == np.inf)),
        ("-inf", np.argwhere(values == -np.inf)),
    ):
        if len(places):
            listed = ", ".join(map(str, places[:3].tolist())) + ", …" * (len(places) > 3)
            expected.append(f"{len(places)} {name} at {listed}")
    assert lines == (["⚠ " + "; ".join(expected)] if expected else [])


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_small_floats_tell_of_theirs(dtype):
    values = np.array([1.0, np.nan, 2.0]).astype(getattr(ml_dtypes, dtype))
    assert "⚠ 1 NaN at [1]" in words(view(ef.tensor(values)))


def test_complex_and_single_numbers_tell_of_theirs():
    values = [1, complex("nan+1j"), complex("inf+1j"), complex("inf+nanj")]
    assert "⚠ 2 NaN at [1], [3]; 1 infinite at [2]" in words(view(ef.tensor(values)))
    assert "⚠ 1 NaN" in words(view(ef.tensor(ef.nan)))


def test_ranges_are_those_of_the_finite_numbers():
    assert "from -1 to 9223372036854775807, mean" in words(
        view(ef.tensor([2**63 - 1, -1, 0, 0, 0]))
    )
    assert "2 true, 3 false" in words(view(ef.tensor([True, True, False, False, False])))
    assert "from 1 to 3, mean 2" in words(view(ef.tensor([1.0, 2.0, 3.0, ef.nan, ef.inf])))
    assert "magnitudes from 5 to 5, mean 5" in words(view(ef.tensor([3 + 4j] * 5)))
    assert "from" not in words(view(ef.tensor([ef.nan] * 9)))


# Large tensors -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "shape", [(10**12,), (10**6, 10**6), (1, 10**9), (10**9, 1), (10**4, 10**4, 3), (10**3,) * 4]
)
def test_a_look_at_a_large_tensor_is_short(shape):
    tensor = ef.asarray(np.broadcast_to(np.float32(ef.nan), shape))
    view(ef.ones((9, 9)))
    start = time.process_time()
    root = view(tensor)
    assert time.process_time() - start < 5  # all elements would take minutes, and memory for none
    looked = int(words(root).split("of the first ")[1].split(" elements")[0].replace(",", ""))
    assert tensors.MOST_ELEMENTS / 2 < looked <= tensors.MOST_ELEMENTS


def test_a_look_finds_the_right_places_in_parts(monkeypatch):
    values = np.zeros((3, 50, 40), "float32")
    values[0, 2, 7] = values[1, 0, 1] = ef.nan
    for most, expected in (
        (30, None),
        (100, "⚠ of the first 80 elements: "),
        (2_000, "⚠ of the first 2,000 elements: 1 NaN at [0, 2, 7]"),
        (4_100, "⚠ of the first 4,000 elements: 2 NaN at [0, 2, 7], [1, 0, 1]"),
        (10_000, "⚠ 2 NaN at [0, 2, 7], [1, 0, 1]"),
    ):
        monkeypatch.setattr(tensors, "MOST_ELEMENTS", most)
        lines = [e.text for e in found(view(ef.tensor(values)), "strong")]
        assert lines == ([expected] if expected and "NaN" in expected else [])


def test_only_displayed_values_are_copied_from_a_device(monkeypatch):
    copied = []
    backend = ef.devices()[0].backend
    monkeypatch.setattr(
        type(backend), "to_numpy", lambda self, array: (copied.append(array.size), array.view())[1]
    )
    view(ef.asarray(np.broadcast_to(np.float32(1), (10**5, 10**5))))
    assert copied and sum(copied) <= tensors.MOST_ELEMENTS + 96 * 96 + 8 * 8


# Pictures ----------------------------------------------------------------------------------------


def pictures(root):
    image = pytest.importorskip("PIL.Image")
    sources = [img.get("src").partition(",")[2] for img in found(root, "img")]
    return [np.asarray(image.open(io.BytesIO(base64.b64decode(source)))) for source in sources]


def test_images_are_shown_as_such():
    values = np.random.default_rng(0).integers(0, 256, (10, 16, 12, 3)).astype("uint8")
    shown = pictures(view(ef.tensor(values)))
    assert len(shown) == 8
    for k, colours in enumerate(shown):
        np.testing.assert_array_equal(colours[..., :3], values[k])
    (one,) = pictures(view(ef.tensor(values[0])))
    np.testing.assert_array_equal(one[..., :3], values[0])


def test_heat_maps_pick_elements_evenly_apart():
    values = np.zeros((200, 1000), "float32")
    values[::3, ::11] = 1.0  # 1 of 3 rows, 1 of 11 columns: just those that are picked
    root = view(ef.tensor(values))
    (colours,) = pictures(root)
    assert colours.shape == (67, 91, 4) and (colours[..., 3] == 255).all()
    assert "(1 of 3, 1 of 11 shown)" in words(root)


def test_names_are_text():
    for name in HOSTILE:
        root = view(ef.Variable(np.ones((12, 12)), name=name))
        assert root[0].text.startswith(name[:1])
    root = parsed(ef.Variable([1.0], name="w")._repr_html_())
    assert root[0].text == "w: float32(1,) on cpu:0"
