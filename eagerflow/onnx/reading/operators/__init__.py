"""The functions of ONNX's operators, by kind; importing this package registers all of them."""

from importlib import import_module

for _name in (
    "attention",
    "control",
    "convolution",
    "dropout",
    "elementwise",
    "gathering",
    "grids",
    "images",
    "joining",
    "learning",
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
    "trees",
):
    import_module(f"{__name__}.{_name}")
