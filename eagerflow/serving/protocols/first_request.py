"""Example requests that fit a model, shown where it is served."""

from __future__ import annotations

from typing import Any

import numpy as np

from eagerflow.serving.json_bodies import example
from eagerflow.serving.protocols.inference import datatype
from eagerflow.serving.signature import Signature

__all__ = ["first_request"]


def first_request(model: str, signature: Signature) -> tuple[str, dict[str, Any]]:
    """The path, without the leading slash, and the JSON of a request for one row of zeros.

    >>> graph = ef.capture.trace(lambda x: ef.tanh(x), ef.TensorSpec(("batch", 2), "float32"))
    >>> from eagerflow.serving.protocols.first_request import first_request
    >>> first_request("squash", ef.serving.Signature(graph))
    ('v1/models/squash:predict', {'inputs': {'x': [[0.0, 0.0]]}})
    """
    zeros = example(signature.inputs)
    state = signature.state
    if state is None:
        return f"v1/models/{model}:predict", {"inputs": zeros}
    if state.decoder is not None:
        return f"v2/models/{model}/generate", {"tokens": [0], "max_tokens": 4}
    inputs = [
        {
            "name": name,
            "shape": list(np.shape(data)),
            "datatype": datatype(signature.inputs[name].dtype),
            "data": data,
        }
        for name, data in zeros.items()
    ]
    parameters = {"sequence_id": 1, "sequence_start": True}
    return f"v2/models/{model}/infer", {"inputs": inputs, "parameters": parameters}
