"""Products and layers of small integers against those of float32, and against ONNX Runtime.

    python benchmarks/quantized_products.py [--rounds 15] [--json]

"float32" is the same in floats. Of products, "uint8" and "int8" are bytes times constant int8, as
int32. Of dense layers (a product, a bias, relu) and of convolutions (with relu), "static",
"dynamic", "weights 8" and "weights 4" are what ``ef.capture.quantize`` makes of them, from floats
to floats. "runtime" is ONNX Runtime on the static graph, and "runtime float32" on that of floats,
where it is installed. The ratio is the time of "uint8", or of "static", to that of "float32".
"""

import tempfile
from functools import partial
from pathlib import Path

import harness
import numpy as np

import eagerflow as ef

try:
    import onnxruntime
except ImportError:
    onnxruntime = None

SECONDS, PAUSE = 0.03, 0.0
TARGETS = {(1024, 1024, 1024): 0.67}  # one and a half times as fast
PRODUCTS = [(1024, 1024, 1024), (256, 1024, 1024), (32, 1024, 4096), (128, 512, 512)]
LAYERS = [*PRODUCTS, (8, 1024, 1024), (1, 1024, 1024), (1, 4096, 4096)]
CONVOLUTIONS = [  # images, height and width, channels, filters, window
    (32, 32, 32, 64, 3),
    (32, 8, 128, 256, 3),
    (8, 56, 64, 64, 3),
    (8, 28, 128, 128, 1),
    (8, 112, 3, 64, 7),
]
RNG = np.random.default_rng(0)


def floats(*shape):
    """Random numbers."""
    return RNG.standard_normal(shape).astype("float32")


def product_row(size, rounds):
    """Products alone, by plans."""
    m, k, n = size
    w = RNG.integers(-127, 128, (k, n)).astype("int8")
    contestants, exact = {}, {}
    for name, kind in (("float32", "float32"), ("uint8", "uint8"), ("int8", "int8")):
        x = RNG.integers(0, 128, (m, k)).astype(kind)
        multiply = ef.matmul if name == "float32" else ef.integer_matmul
        held = ef.tensor(w.astype(kind) if name == "float32" else w)
        f = ef.function(partial(lambda multiply, held, x: multiply(x, held), multiply, held))
        exact[name] = x.astype("int64") @ w
        assert np.array_equal(f(x).numpy().astype("int64"), exact[name]) or name == "float32"
        contestants[name] = partial(f, ef.tensor(x))
    return harness.compare(
        f"product {m}×{k}×{n}",
        contestants,
        "uint8",
        "float32",
        rounds,
        SECONDS,
        TARGETS.get(size),
        pause=PAUSE,
    )


def graph_row(name, graph, x, modes, rounds, target=None):
    """A graph, what it is quantized to, and ONNX Runtime."""
    wanted = graph(x).numpy()
    graphs = {"float32": graph}
    for label, how in modes.items():
        found = ef.capture.quantize(graph, [x], **how)
        least = 12 if how.get("bits") == 4 else 30
        assert found.report.errors["output"].decibels > least, (label, str(found.report))
        graphs[label] = found.graph
    given = ef.tensor(x)
    contestants = {label: partial(own, given) for label, own in graphs.items()}
    if onnxruntime is not None:
        for label, own in (("runtime", "static"), ("runtime float32", "float32")):
            contestants[label] = in_runtime(graphs[own], x, wanted)
    return harness.compare(
        name, contestants, "static", "float32", rounds, SECONDS, target, pause=PAUSE
    )


def in_runtime(graph, x, wanted):
    """A call of ONNX Runtime."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        ef.capture.export_onnx(graph, path)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 2
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        session = onnxruntime.InferenceSession(str(path), options)
    feeds = {session.get_inputs()[0].name: x}
    (found,) = session.run(None, feeds)
    assert np.square(found - wanted).mean() < 1e-3 * np.square(wanted).mean()
    return partial(session.run, None, feeds)


def layer_row(size, rounds):
    """A dense layer."""
    m, k, n = size
    w, b = ef.tensor(floats(k, n) / k**0.5), ef.tensor(floats(n))
    graph = ef.capture.trace(lambda x: ef.relu(x @ w + b), ef.TensorSpec((m, k), "float32"))
    modes = {
        "static": {},
        "dynamic": {"mode": "dynamic"},
        "weights 8": {"mode": "weights"},
        "weights 4": {"mode": "weights", "bits": 4},
    }
    return graph_row(f"layer {m}×{k}×{n}", graph, floats(m, k), modes, rounds, TARGETS.get(size))


def convolution_row(case, rounds):
    """A convolution with relu."""
    images, size, channels, filters, window = case
    w = ef.tensor(floats(window, window, channels, filters) / (window * channels**0.5))
    spec = ef.TensorSpec((images, size, size, channels), "float32")
    graph = ef.capture.trace(lambda x: ef.relu(ef.conv(x, w)), spec)
    x = floats(images, size, size, channels)
    name = f"conv {images}×{size}²×{channels}→{filters}, {window}×{window}"
    return graph_row(name, graph, x, {"static": {}, "dynamic": {"mode": "dynamic"}}, rounds)


def main():
    """Measure, print, and save if asked to."""
    options = harness.arguments(__doc__)
    for title, cases, row in (
        ("Products, µs", PRODUCTS, product_row),
        ("Dense layers, µs", LAYERS, layer_row),
        ("Convolutions, µs", CONVOLUTIONS, convolution_row),
    ):
        rows = [row(case, options.rounds) for case in cases]
        harness.report(title, rows)
        if options.json:
            harness.save("quantized_products", rows, {"eagerflow": ef.__version__})


if __name__ == "__main__":
    main()
