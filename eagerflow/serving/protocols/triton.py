"""Configuration and statistics of models, in the form of Triton Inference Server.

Sources: Triton's extensions "model configuration" and "statistics" of the Open Inference
Protocol, ``model_config.proto``.
"""

from __future__ import annotations

from typing import Any

from eagerflow.dims import Dim
from eagerflow.serving.batching import Batcher
from eagerflow.serving.protocols import inference
from eagerflow.serving.routes import Routes

__all__ = ["DATA_TYPES", "config", "statistics"]

_ORDER = "INVALID BOOL UINT8 UINT16 UINT32 UINT64 INT8 INT16 INT32 INT64 FP16 FP32 FP64 STRING BF16"
DATA_TYPES = {f"TYPE_{name}": number for number, name in enumerate(_ORDER.split())}
"""The numbers of the enumeration ``DataType``."""


def config(batcher: Batcher) -> dict[str, Any]:
    """The configuration of a version: inputs, outputs and batching.

    Where requests are batched, shapes lack the axis of the rows, as in Triton.
    """
    version, batching = batcher.version, batcher.batching
    signature = version.signature
    joins = batcher.joins
    told: dict[str, Any] = {
        "name": version.name,
        "platform": "eagerflow_graph",
        "backend": "eagerflow",
        "max_batch_size": batching.max_rows if joins else 0,
        "input": [_described(name, spec, joins) for name, spec in signature.inputs.items()],
        "output": [_described(name, spec, joins) for name, spec in signature.outputs.items()],
    }
    if joins:
        told["dynamic_batching"] = {
            "preferred_batch_size": batching.steps(),
            "max_queue_delay_microseconds": int(batching.max_wait * 1e6),
        }
    return told


def _described(name: str, spec: Any, joins: bool) -> dict[str, Any]:
    shape = spec.shape[1:] if joins else spec.shape
    return {
        "name": name,
        "data_type": f"TYPE_{inference.datatype(spec.dtype)}",
        "dims": [-1 if isinstance(n, Dim) else n for n in shape],
    }


def statistics(models: list[Routes], version: int | None = None) -> dict[str, Any]:
    """The statistics of the versions of models, or of one version; times in nanoseconds."""
    rows = []
    for model in models:
        ready = model.ready if version is None else {version: model.batcher(version)}
        rows += [_sums(batcher) for _, batcher in sorted(ready.items())]
    return {"model_stats": rows}


def _sums(batcher: Batcher) -> dict[str, Any]:
    sums = batcher.statistics()

    def duration(count: int, seconds: float) -> dict[str, int]:
        return {"count": count, "ns": round(seconds * 1e9)}

    return {
        "name": batcher.version.name,
        "version": str(batcher.version.number),
        "last_inference": round(sums.last * 1e3),
        "inference_count": sums.rows,
        "execution_count": sums.batches,
        "inference_stats": {
            "success": duration(sums.success, sums.success_seconds),
            "fail": duration(sums.fail, sums.fail_seconds),
            "queue": duration(sums.success + sums.fail, sums.queue_seconds),
            "compute_infer": duration(sums.batches, sums.compute_seconds),
        },
    }
