"""Integers: products of dequantized numbers are computed on integers, and scaled afterwards.

    dequantize(a, s, z) @ dequantize(b, t)  ->  (a @ b - z * sum(b)) * (s * t)

if scales and zero points of a are constant along its rows, and those of b along its columns.
The sums are exact, so that only the result is rounded. Additions, relu and
the next quantization join the scaling in one kernel, as all elementwise ops do. Convolutions are
handled in the same way, and products of floats with dequantized weights read the stored weights.
"""

from __future__ import annotations

from typing import Any

from eagerflow.capture.passes.rewriting import Rewrite, Rules, Sweep, rule, swept
from eagerflow.capture.passes.shared_constants import is_lent
from eagerflow.dtypes import as_dtype
from eagerflow.graph.graph import Graph
from eagerflow.graph.ir import Node, Value
from eagerflow.op import ops
from eagerflow.ops.creation.cast import astype
from eagerflow.ops.elementwise.arithmetic import multiply, subtract
from eagerflow.ops.linear_algebra.contraction import matmul
from eagerflow.ops.linear_algebra.integer_products import BYTES, SUMS, integer_matmul
from eagerflow.ops.nn.convolution import conv
from eagerflow.ops.nn.four_bits import unpack_int4
from eagerflow.ops.nn.integer_convolution import integer_conv
from eagerflow.ops.nn.quantization import dequantize
from eagerflow.ops.nn.weight_products import rows_of, weight_matmul
from eagerflow.ops.reductions.sums import sum as summed
from eagerflow.ops.shapes.reshaping import reshape
from eagerflow.primitives.windows import along_axes, window_of
from eagerflow.recorder import with_recorder

INTEGERS: Rules = {}
_FLOAT = as_dtype("float32")


def with_integer_products(graph: Graph) -> tuple[Graph, list[Rewrite]]:
    """The graph with products of small integers in place of products of dequantized values.

    >>> def f(x, w):
    ...     return ef.dequantize(x, 0.5) @ ef.dequantize(w, 0.25)
    >>> specs = ef.TensorSpec((2, 3), "int8"), ef.TensorSpec((3, 2), "int8")
    >>> graph = ef.capture.trace(f, *specs)
    >>> [node.op.name for node in graph.optimized(final=True).nodes]
    ['integer_matmul', 'astype', 'multiply']
    """
    return swept("integers", graph, INTEGERS)


class _Operand:
    """The origin of a dequantized value: integers, scale, zero point or None, of float32."""

    def __init__(self, integers: Value, scale: Any, zero: Any) -> None:
        self.integers, self.scale, self.zero = integers, scale, zero

    def varies(self, axis: int) -> bool:
        """Whether scales or zero points differ along an axis, counted from the last one."""
        shapes = [x.shape for x in (self.scale, self.zero) if x is not None]
        return any(len(s) >= -axis and s[axis] != 1 for s in shapes)


def operand_of(sweep: Sweep, x: Any) -> _Operand | None:
    """The operand behind ``x``; None if it is not a dequantized value."""
    node = sweep.maker(x, dequantize)
    if node is None or node.outputs[0].dtype != _FLOAT:
        return None
    integers, scale, zero = (*node.inputs, None)[:3]
    if type(integers) is not Value or integers.dtype not in BYTES or type(scale) is not Value:
        return None
    if zero is not None and (type(zero) is not Value or zero.dtype != integers.dtype):
        return None
    return _Operand(integers, scale, zero)


@rule(INTEGERS, matmul, words="a product of dequantized matrices -> of their integers, scaled")
def _product(sweep: Sweep, node: Node) -> Value | None:
    a, b = (operand_of(sweep, x) for x in node.inputs)
    if a is None or b is None or b.zero is not None or b.integers.dtype != "int8":
        return None
    if a.varies(-1) or b.varies(-2) or min(len(x.integers.shape) for x in (a, b)) < 2:
        return None
    y = sweep.make(integer_matmul, a.integers, b.integers)
    if a.zero is not None:
        columns = _sums(sweep, b.integers, -2, True)
        zero = sweep.make(astype, a.zero, dtype=SUMS)
        y = sweep.make(subtract, y, sweep.make(multiply, columns, zero))
    return scaled(sweep, y, a.scale, b.scale)


def _sums(sweep: Sweep, weights: Value, axis: Any, keepdims: bool) -> Value:
    """The sums of weights along axes; of constants now, regardless of their size."""
    more = {"axis": axis, "keepdims": keepdims, "dtype": SUMS}
    if weights.constant is None or is_lent(weights.constant):
        return sweep.make(summed, weights, **more)
    found = with_recorder(None, summed, weights.constant, **more)
    name = sweep.free_name("sums")
    return Value(name, found.shape, found.dtype, weights.owner, constant=found)


def scaled(sweep: Sweep, sums: Value, *scales: Value) -> Value:
    """Sums of integers as floats."""
    scale = sweep.make(multiply, *scales)
    return sweep.make(multiply, sweep.make(astype, sums, dtype=_FLOAT), scale)


@rule(INTEGERS, conv, words="a convolution of dequantized images -> of their integers, scaled")
def _convolution(sweep: Sweep, node: Node) -> Value | None:
    x, w = (operand_of(sweep, given) for given in node.inputs)
    if x is None or w is None or w.zero is not None or w.integers.dtype != "int8":
        return None
    if x.scale.size != 1 or any(w.varies(axis) for axis in range(-len(w.scale.shape), -1)):
        return None
    found = _padded(sweep, node, x)
    if found is None:
        return None
    more = node.attributes | {"padding": "valid"}
    y = sweep.make(integer_conv, found, w.integers, **more)
    if x.zero is not None:
        axes = tuple(range(len(w.integers.shape) - 1))
        filters = _sums(sweep, w.integers, axes, False)
        zero = sweep.make(reshape, sweep.make(astype, x.zero, dtype=SUMS), shape=())
        y = sweep.make(subtract, y, sweep.make(multiply, filters, zero))
    scales = (sweep.make(reshape, s, shape=s.shape[-1:]) for s in (x.scale, w.scale))
    return scaled(sweep, y, *scales)


def _padded(sweep: Sweep, node: Node, x: _Operand) -> Value | None:
    """Images padded with zero points; None if these, or sizes, are unknown."""
    zero = 0 if x.zero is None else sweep.uniform(x.zero)
    shapes = x.integers.shape[1:-1], node.inputs[1].shape[:-2]
    where = [node.attributes[name] for name in ("strides", "padding", "dilation")]
    if zero is None or not all(isinstance(n, int) for n in shapes[0]):
        return None
    windows = along_axes(window_of, *shapes, *where)
    ends = [(v.out - 1) * v.stride + v.extent - v.size - v.before for v in windows]
    widths = tuple((v.before, max(end, 0)) for v, end in zip(windows, ends, strict=True))
    if not any(map(any, widths)):
        return x.integers
    pads = ((0, 0), *widths, (0, 0))
    return sweep.make(
        ops["pad"].call, x.integers, pad_width=pads, mode="constant", constant_values=zero
    )


@rule(INTEGERS, matmul, words="a product with dequantized weights -> with the weights as kept")
def _weights(sweep: Sweep, node: Node) -> Value | None:
    x, w = node.inputs
    view = sweep.maker(w, reshape)
    made = None if view is None else sweep.maker(view.inputs[0], dequantize)
    if view is None or made is None or type(x) is not Value or len(x.shape) < 2:
        return None
    integers, scale, zero = (*made.inputs, None)[:3]
    packed = sweep.maker(integers, unpack_int4)
    if packed is not None:
        integers = packed.inputs[0] if packed.attributes["axis"] == 1 else None
    if type(integers) is not Value or type(scale) is not Value or zero is not None:
        return None
    shape = integers.shape
    groups = len(shape) == 3 and scale.shape == (shape[0], 1, shape[2])
    if not groups or integers.dtype != ("int8" if packed is None else "uint8"):
        return None
    if x.dtype != _FLOAT or scale.dtype != _FLOAT or w.shape != (rows_of(integers), shape[2]):
        return None
    return sweep.make(weight_matmul, x, integers, scale)
