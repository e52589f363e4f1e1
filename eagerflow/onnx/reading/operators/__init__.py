"""The functions of ONNX's operators, by kind; loading this package registers them all."""

from importlib import import_module
from importlib.util import find_spec

FILES = (
    "attention",
    "control",
    "convolution",
    "dropout",
    "elementwise",
    "gathering",
    "grids",
    "images",
    "joining",
    "linear_algebra",
    "losses",
    "normalization",
    "pooling",
    "quantized",
    "random",
    "recurrent",
    "reductions",
    "regions",
    "sequences",
    "shapes",
    "signal",
    "sizes",
    "sorting",
    "training",
)

for _name in FILES:
    if find_spec(f"{__name__}.{_name}") is not None:
        import_module(f"{__name__}.{_name}")
