"""Fused kernels on devices with separate memory: their backend runs the region.

Such calls have run on an emulated GPU only (``tests/backends/lookalike.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from eagerflow.devices import Device, Kind, as_device, device_of
from eagerflow.fusion.kernels import FusedCall, FusedKernel
from eagerflow.fusion.labels import has_others, refuse_labels
from eagerflow.graph.devices import said
from eagerflow.graph.ir import Node
from eagerflow.runtime.buffers import empty


def home_of(arrays: Sequence[Any], device: Device) -> Device:
    """The device for results of these arrays, in a plan for a device.

    0-d arrays on the host do not count.
    """
    own = device.backend.array_type
    for kind in (own, np.ndarray):
        found = next((x for x in arrays if isinstance(x, kind) and (x.ndim or kind is own)), None)
        if found is not None:
            return device_of(found) or device
    return device


def kernel_at_home(node: Node, kind: Kind) -> Callable[..., Any]:
    """The kernel of a node in a plan for a device; host arrays are processed on the host."""
    device = kind.device
    kernel = device.backend.bind(node.op, kind.dtype)
    if device.backend.host:
        return kernel
    if "device" in node.op.attributes:
        named = said(node)
        home = device if named is None else as_device(named)
        kernel = home.backend.bind(node.op, kind.dtype)
        return lambda *arrays, **attributes: kernel(*arrays, **attributes | {"device": str(home)})

    def call(*arrays: Any, **attributes: Any) -> Any:
        if all(isinstance(x, device.backend.array_type) for x in arrays):
            return kernel(*arrays, **attributes)
        home = home_of(arrays, device)
        if not home.backend.host:
            return kernel(*[_there(x, home) for x in arrays], **attributes)
        return home.backend.bind(node.op, kind.dtype)(*arrays, **attributes)

    return call


def _there(x: Any, home: Device) -> Any:
    """An argument on a device, where constants of a graph may be missing; numbers unchanged."""
    return _sent(x, home) if isinstance(x, np.ndarray) and x.ndim else x


class DeviceCall:
    """A kernel's region prepared for arrays of a device with a backend that can run it.

    ``call(inputs)`` returns the outputs in the kernel's order: new arrays on the devices of eager
    calls, from the device's own memory pool. ``fill(inputs, outputs)`` writes to arrays of the
    current device, which has the inputs too. Work may still be running when they return.
    """

    __slots__ = ("_device", "_host", "_makes", "_run", "kernel")

    def __init__(self, fused: FusedKernel, device: Device, module: Any) -> None:
        makers = [node for node in fused.nodes if "device" in node.op.attributes]
        named = [place for node in makers if (place := said(node)) is not None]
        self.kernel = fused
        self._device = as_device(named[0]) if named else device
        self._makes = bool(makers)  # whether its results are on the device, wherever its inputs are
        self._host: FusedCall | None = None
        self._run = None
        if not self._device.backend.host:
            index, (given, made) = self._device.index, fused.entries()
            self._run = self._device.backend.region_call(
                fused.region, fused.sizes, given, made, index, module
            )

    def source(self) -> str:
        """The region as text."""
        return str(self.kernel.region)

    def check(self, inputs: Sequence[Any]) -> None:
        """Raise IndexRangeError for invalid labels: the call waits for them."""
        for number, classes in self.kernel.checks:
            if has_others(inputs[number], classes):
                refuse_labels(inputs[number], classes)

    def fill(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        """Start the computation of ``outputs``; labels are not checked."""
        assert self._run is not None, "kernels that the host runs are called"
        self._run(inputs, outputs)

    def __call__(self, inputs: Sequence[Any]) -> Sequence[Any]:
        """The results of the region for ``inputs``."""
        backend = self._device.backend
        if self._run is None or not all(isinstance(x, backend.array_type) for x in inputs):
            inputs = self._gathered(inputs)
        self.check(inputs)
        if self._run is None or (inputs and not isinstance(inputs[0], backend.array_type)):
            return self._on_host(inputs)
        with backend.on(backend.locate(inputs[0]) if inputs else self._device.index):
            outputs = [backend.empty(v.shape, v.dtype) for v in self.kernel.outputs]
            self._run(inputs, outputs)
        return outputs

    def _gathered(self, inputs: Sequence[Any]) -> list[Any]:
        """All inputs on the device of the first one with axes, or on that of the results."""
        home = self._device
        if not self._makes:
            home = home_of(inputs, home)
        return [_sent(x, home) for x in inputs]

    def _on_host(self, inputs: Sequence[Any]) -> Sequence[Any]:
        """Compute data that was moved to the host there."""
        if self._host is None:
            self._host = self.kernel.prepare()
        outputs = [empty(v.shape, v.dtype) for v in self.kernel.outputs]
        self._host(inputs, outputs)
        return outputs


def _sent(x: Any, home: Device) -> Any:
    """An array on a device: does not wait for transfers from the host, as of a random state.

    >>> _sent(np.ones(3), as_device("cpu:0"))
    array([1., 1., 1.])
    """
    backend = home.backend
    if backend.host or not isinstance(x, np.ndarray | np.generic):
        return backend.receive(x, home.index)
    with backend.on(home.index):
        found = backend.empty(x.shape, x.dtype)
        backend.store(found, x)
    return found
