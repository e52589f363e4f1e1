"""The backend ``"eagerflow"``: the package that Keras expects of a backend.

Keras loads it through ``eagerflow.keras``; if it is imported before Keras, it loads Keras.
"""

# mypy: disable-error-code="no-redef"
from __future__ import annotations

import sys

if "keras.src.backend" in sys.modules:
    from eagerflow.keras.backend import (
        core,
        distribution_lib,
        image,
        linalg,
        math,
        nn,
        numpy,
        random,
    )
    from eagerflow.keras.backend.core import (
        IS_THREAD_SAFE,
        SUPPORTS_COMPLEX_DTYPES,
        SUPPORTS_RAGGED_TENSORS,
        SUPPORTS_SPARSE_TENSORS,
        Variable,
        cast,
        compute_output_spec,
        cond,
        convert_to_numpy,
        convert_to_tensor,
        device_scope,
        is_tensor,
        name_scope,
        random_seed_dtype,
        scatter,
        shape,
        stop_gradient,
        vectorized_map,
    )
    from eagerflow.keras.backend.rnn import (
        bidirectional_gru,
        bidirectional_lstm,
        cudnn_ok,
        gru,
        lstm,
        rnn,
    )
else:  # the modules import each other, and Keras's come first
    del sys.modules[__name__]
    import keras  # noqa: F401

__all__ = [
    "IS_THREAD_SAFE",
    "SUPPORTS_COMPLEX_DTYPES",
    "SUPPORTS_RAGGED_TENSORS",
    "SUPPORTS_SPARSE_TENSORS",
    "Variable",
    "bidirectional_gru",
    "bidirectional_lstm",
    "cast",
    "compute_output_spec",
    "cond",
    "convert_to_numpy",
    "convert_to_tensor",
    "core",
    "cudnn_ok",
    "device_scope",
    "distribution_lib",
    "gru",
    "image",
    "is_tensor",
    "linalg",
    "lstm",
    "math",
    "name_scope",
    "nn",
    "numpy",
    "random",
    "random_seed_dtype",
    "rnn",
    "scatter",
    "shape",
    "stop_gradient",
    "vectorized_map",
]
