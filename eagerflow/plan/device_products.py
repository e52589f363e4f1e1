"""Matrix products as steps on a device: by the library with epilogues, if available."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from eagerflow.dtypes import NARROW
from eagerflow.fusion.device_calls import DeviceCall
from eagerflow.graph.ir import Node
from eagerflow.plan.device_segments import Arrays
from eagerflow.plan.epilogues import FusedProduct
from eagerflow.plan.lowering import Program


class ProductCall:
    """Starts a product, with its epilogue in the same step.

    The library with epilogues takes contiguous arrays; others are multiplied by the library of
    eager calls.
    """

    def __init__(self, step: Node | FusedProduct, program: Program) -> None:
        device = program.device
        self._fused = step if isinstance(step, FusedProduct) else None
        self.node = step.product if isinstance(step, FusedProduct) else step
        self._device, self._backend = device, device.backend
        self._library: Any = device.backend.products(device.index)
        self._made = self.node.outputs[0]
        self._kernel = device.backend.bind(self.node.op, self._made.dtype)
        self._rest: DeviceCall | None = None

    def __call__(self, inputs: Arrays, outputs: Arrays) -> None:
        """Start it."""
        if self._fused is None:
            self._multiply(inputs, outputs[0])
        elif not self._at_once(self._fused, inputs, outputs):
            self._by_parts(self._fused, inputs, outputs)

    def way(self) -> tuple[str, str]:
        """The implementation of the product, and the reason, for a caller."""
        if self._library is None:
            return "the device's library", "cuBLASLt is not there"
        if self._fused is None:
            return "cuBLASLt", "it can be recorded"
        return "cuBLASLt", f"{self._fused.epilogue.name.replace('_', ' ')} on the way out"

    def _at_once(self, fused: FusedProduct, inputs: Arrays, outputs: Arrays) -> bool:
        """Start the product with its epilogue; False if the library does not take these arrays."""
        arrays = dict(zip(fused.inputs, inputs, strict=True))
        arrays |= zip(fused.outputs, outputs, strict=True)
        name, result, vector, matrix = fused.epilogue
        more = [None if x is None else arrays[x] for x in (vector, matrix)]
        return bool(self._library(name, *inputs[:2], arrays[result], *more))

    def _multiply(self, factors: Sequence[Any], out: Any) -> None:
        """Start the product alone."""
        if self._library is not None and self._library("default", *factors, out):
            return
        if self._made.dtype in NARROW:
            self._backend.store(out, self._kernel(*factors))
        else:
            self._backend.xp.matmul(*factors, out=out)

    def _by_parts(self, fused: FusedProduct, inputs: Arrays, outputs: Arrays) -> None:
        """Run the product, and the kernel after it."""
        if self._rest is None:
            module = self._backend.kernel_module()
            self._rest = DeviceCall(fused.kernel, self._device, module)
        product = self._backend.empty(self._made.shape, self._made.dtype)
        self._multiply(inputs[:2], product)
        arrays = {self._made: product} | dict(zip(fused.inputs, inputs, strict=True))
        self._rest.fill([arrays[x] for x in fused.kernel.inputs], outputs)
