"""NumPy's files as requests and answers, and files that would harm."""

import io
import zipfile
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of

import eagerflow as ef
from eagerflow.errors import ArgumentError, EagerflowError
from eagerflow.serving import ModelVersion, TooLargeError
from eagerflow.serving.protocols.arrays import NPY, NPZ, request, wanted_form, write
from tests.serving.models import Client, put_version, scaling
from tests.serving.test_server import INFER

ONE = ModelVersion("scale", 1, scaling(2)).signature
SPECS = [ef.TensorSpec(("batch", 2), "float32", name=n) for n in "ab"]
TWO = ModelVersion("two", 1, ef.capture.trace(lambda a, b: {"file": a * b}, *SPECS)).signature
DTYPES = "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 complex64"
MOST = 1 << 20


def npy(array, **more):
    file = io.BytesIO()
    np.lib.format.write_array(file, array, **more)
    return file.getvalue()


def npz(compressed=False, **arrays):
    file = io.BytesIO()
    (np.savez_compressed if compressed else np.savez)(file, **arrays)
    return file.getvalue()


@settings(max_examples=80)
@given(
    st.sampled_from(DTYPES.split()).flatmap(
        lambda t: arrays_of.arrays(t, arrays_of.array_shapes(min_dims=0, max_side=4, min_side=0))
    ),
    st.sampled_from("<>"),
    st.booleans(),
    st.sampled_from([(1, 0), (2, 0)]),
)
def test_arrays_keep_their_bits(array, order, by_columns, version):
    given_ = np.asarray(array, array.dtype.newbyteorder(order), order="F" if by_columns else "C")
    found = request(npy(given_, version=version), NPY, ONE, {}, MOST).inputs["x"]
    assert found.dtype == array.dtype and found.dtype.isnative
    np.testing.assert_array_equal(found, array)
    np.testing.assert_array_equal(np.load(io.BytesIO(write({"y": found}, NPY))), array)
    back = np.load(io.BytesIO(write({"file": found, "a/b": found}, NPZ)))
    assert back.files == ["file", "a/b"]
    np.testing.assert_array_equal(back["a/b"], array)


@pytest.mark.parametrize("compressed", [False, True])
def test_several_arrays(compressed):
    a, b = np.ones((1, 2), "float32"), np.zeros((1, 2), "float32")
    asked = request(npz(compressed, a=a, b=b), NPZ, TWO, {"outputs": "file,"}, MOST)
    assert list(asked.inputs) == ["a", "b"] and asked.outputs == ["file"]
    with pytest.raises(ArgumentError, match="one input"):
        request(npy(a), NPY, TWO, {}, MOST)


def test_small_floats_become_larger():
    array = ef.tensor([1.0, 3.14], "bfloat16").numpy()
    found = np.load(io.BytesIO(write({"y": array}, NPY)))
    assert found.dtype == "float32" and found.tolist() == array.tolist()


class Pickled:
    def __reduce__(self):
        return (pytest.fail, ("it was unpickled",))


def header(text):
    """A ``.npy`` with this header, and no data."""
    data = text.encode().ljust(118) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(data).to_bytes(2, "little") + data


GOOD = npy(np.ones((1, 3), "float32"))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"abc",
        GOOD[:-1],
        GOOD + b"0",
        GOOD[:9],
        npy(np.array([Pickled()], object), allow_pickle=True),
        npy(np.array(["a"])),
        npy(np.array([b"a"])),
        npy(np.zeros(1, "M8[s]")),
        npy(np.zeros(1, [("a", "f4")])),
        npy(np.ones(1), version=(3, 0)),
        header("{'descr': '<f4', 'fortran_order': False, 'shape': (-1, 3), }"),
        header("{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,), }"),
        header("{'descr': '<f4', 'fortran_order': False, 'shape': (281474976710655,), }"),
        header("{'descr': '<f4', 'fortran_order': False, 'shape': (True, 3), }"),
        header("{'descr': '<f4', 'fortran_order': False, 'shape': (1 3), }"),
        header("{'descr': '<f4', 'fortran_order': 1, 'shape': (1,), }"),
        header("{'descr': 3, 'fortran_order': False, 'shape': (1,), }"),
        header("__import__('os').system('true')"),
        header("(" * 9000),
        header("-" * 9000 + "1"),
    ],
)
def test_malformed_npy_is_refused(body):
    with pytest.raises(EagerflowError):
        request(body, NPY, ONE, {}, MOST)


def archive(*parts, method=zipfile.ZIP_DEFLATED):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as made:
        for name, data in parts:
            made.writestr(name, data)
    return file.getvalue()


def test_npz_bomb_is_refused():
    bomb = archive(("x.npy", npy(np.zeros(8 << 20, "uint8"))))
    assert len(bomb) < 20_000
    with pytest.raises(TooLargeError, match="decompressed"):
        request(bomb, NPZ, ONE, {}, MOST)


def test_sizes_that_lie_give_no_more_than_they_say(monkeypatch):
    """A part that says it is small, and decompresses to much."""
    size = 8 << 20
    bomb = archive(("x.npy", npy(np.zeros(size, "uint8"))))
    true = (size + 128).to_bytes(4, "little")
    assert bomb.count(true) == 2
    lying = bomb.replace(true, (1000).to_bytes(4, "little"))
    made = []
    decompress = zlib.decompressobj

    def watched(*args):
        inner = decompress(*args)

        class Watched:
            def decompress(self, data, most=0):
                found = inner.decompress(data, most)
                made.append(len(found))
                return found

            def __getattr__(self, name):
                return getattr(inner, name)

        return Watched()

    monkeypatch.setattr(zlib, "decompressobj", watched)
    with pytest.raises(EagerflowError):
        request(lying, NPZ, ONE, {}, MOST)
    assert sum(made) < 100_000


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"PK\x05\x06" + bytes(18) + b"more",
        archive(("x.npy", b"abc")),
        archive(("x.npy", GOOD), ("y.npy", GOOD)),
        archive(("x.npy", GOOD))[:-30],
        archive(("x.npy", GOOD.replace(b"NUMPY", b"NUMPX"))),
        archive(("x.npy", GOOD), method=zipfile.ZIP_STORED).replace(
            b"\x00\x00\x80?", b"\x00\x00\x81?"
        ),
    ],
)
def test_malformed_npz_is_refused(body):
    with pytest.raises(EagerflowError):
        ONE.ordered(request(body, NPZ, ONE, {}, MOST).inputs)


@settings(max_examples=200)
@given(st.data())
def test_mutants_of_files_are_refused_or_read(data):
    form = data.draw(st.sampled_from([NPY, NPZ]))
    body = bytearray(GOOD if form == NPY else npz(True, x=np.ones((1, 3), "float32")))
    for _ in range(data.draw(st.integers(1, 4))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    del body[data.draw(st.integers(len(body) - 9, len(body))) :]
    try:
        request(bytes(body), form, ONE, {}, MOST)
    except EagerflowError as error:
        assert str(error)


def test_the_form_of_answers():
    assert wanted_form(None, NPY, 1) == NPY and wanted_form("*/*", NPY, 2) == NPZ
    assert wanted_form("application/json", NPY, 1) is None and wanted_form(None, None, 1) is None
    assert wanted_form("text/html, Application/X-NPY;q=0.5", None, 1) == NPY
    with pytest.raises(ArgumentError, match="2 outputs"):
        wanted_form(NPY, NPY, 2)


def test_over_http(client):
    x = np.arange(6, dtype="float32").reshape(2, 3)
    status, headers, body = client.call(INFER, npy(x), {"content-type": NPY})
    assert status == 200 and headers["content-type"] == NPZ
    found = np.load(io.BytesIO(body))
    np.testing.assert_array_equal(found["y"], x)
    np.testing.assert_array_equal(found["total"], x.sum(1))
    path = f"{INFER}?outputs=total"
    status, headers, body = client.call(path, npz(x=x), {"content-type": NPZ, "accept": NPY})
    assert headers["content-type"] == NPY and np.load(io.BytesIO(body)).tolist() == [3.0, 12.0]
    status, _, body = client.call(path, npy(x), {"content-type": NPY, "accept": "application/json"})
    assert b'"data":[3.0,12.0]' in body
    for wrong, words in ((npy(x.astype("float64")), b"float64"), (npy(x[:, :2]), b"shape")):
        status, _, body = client.call(INFER, wrong, {"content-type": NPY})
        assert status == 400 and words in body
    status, _, body = client.call(f"{INFER}?outputs=z", npy(x), {"content-type": NPY})
    assert status == 400 and b"no output" in body


def test_signatures_by_name(tmp_path):
    scaling(2).save(tmp_path / "made.ef", signatures={"sums": ["total"]})
    put_version(tmp_path / "models" / "scale", 1, ef.capture.load(tmp_path / "made.ef"))
    with ef.serving.Server(tmp_path / "models", port=0) as server, Client(server) as client:
        body = client.call(f"{INFER}?signature_name=sums", GOOD, {"content-type": NPY})[2]
        assert np.load(io.BytesIO(body)).tolist() == [6.0]
