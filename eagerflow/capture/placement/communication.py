"""Send and Recv: the two ends of an edge of a graph that crosses devices.

A value is sent once to each device that needs it, and received there. Both are ordinary ops:
a graph split over devices is a graph, which can be checked, printed, saved and run.
"""

from __future__ import annotations

from typing import Any

from eagerflow.devices import as_device
from eagerflow.op import Cost
from eagerflow.ops.creation.cast import to_device
from eagerflow.ops.family import ANY, define, split_elementwise
from eagerflow.spec import TensorSpec


def _moved(x: TensorSpec, **attributes: Any) -> Cost:
    return Cost(0, x.size * x.dtype.itemsize)


def _spec(x: TensorSpec, device: str | None = None, **others: str) -> TensorSpec:
    """The same spec on the receiving device; all names must be device names."""
    for name in others.values():
        as_device(name)
    return x if device is None else TensorSpec(x.shape, x.dtype, None, as_device(device))


@define(
    "communication",
    dtypes=ANY,
    infer=_spec,
    vjp=(lambda g, y, x, target: g,),
    jvp="linear",
    batch=lambda args, batched, size, target: send(args[0], target=target),
    split=split_elementwise,
    cost=_moved,
    onnx=lambda w, x, **_: x,
)
def send(xp: Any, x: Any, /, *, target: str) -> Any:
    """The same values on the same device, to be received on another one.

    ``x`` is a tensor, ``target`` the name of the receiving device. Raises DeviceError
    if there is no such device.

    >>> send(ef.tensor([1.0, 2.0]), target="cpu:0")
    Tensor([1., 2.], float32, cpu:0)
    """
    return x


@define(
    "communication",
    dtypes=ANY,
    infer=_spec,
    vjp=(lambda g, y, x, source, device: to_device(g, str(x.device)),),
    jvp="linear",
    batch=lambda args, batched, size, **both: recv(args[0], **both),
    split=split_elementwise,
    cost=_moved,
    onnx=lambda w, x, **_: x,
)
def recv(xp: Any, x: Any, /, *, source: str, device: str) -> Any:
    """The values sent by another device.

    ``x`` is the result of ``send``, ``source`` the name of the sending device, ``device`` that of
    the receiving one. Raises DeviceError for a device that does not exist.

    >>> recv(send(ef.tensor([1.0]), target="cpu:0"), source="cpu:0", device="cpu:0")
    Tensor([1.], float32, cpu:0)
    """
    place = as_device(device)
    return place.backend.receive(x, place.index)
