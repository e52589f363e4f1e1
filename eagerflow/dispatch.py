"""The hot path: from a user's call to the kernel, and to whoever watches.

``bind`` makes the function that users call. It asks once who watches. Without a
recorder, or with one that only appends, it calls the kernel at once; what does not fit
(Variables, arrays, mixed dtypes, unknown kinds) takes the long way through ``canonical``,
and errors are explained after they happened, never looked for before.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from operator import is_
from typing import Any

from eagerflow.backends.numpy import quiet_runner
from eagerflow.convert import SCALARS, as_tensor
from eagerflow.devices import Device, Kind, as_device, current_device
from eagerflow.dims import Dim
from eagerflow.display import summary
from eagerflow.dtypes import BOOL, INTEGERS, DType, default_dtype, join_scalar, promote
from eagerflow.errors import (
    DeviceError,
    DTypeError,
    EagerflowError,
    OutOfMemoryError,
    ShapeError,
)
from eagerflow.number import Number, size_as_number
from eagerflow.op import REQUIRED, Op, OpSignature, ops, spec_of
from eagerflow.recorder import next_key, now, process, under
from eagerflow.spec import TensorSpec
from eagerflow.tensor import Tensor, new_tensor
from eagerflow.variable import Variable

__all__ = ["bind", "canonical", "check", "compute", "internal", "record", "user_frame"]

_frame = sys._getframe
_new = object.__new__
_quick = process.run
_NONE: dict[str, Any] = {}
internal = frozenset(
    os.path.join(folder, file)
    for folder, _, files in os.walk(os.path.dirname(__file__))
    for file in files
    if file.endswith(".py") and os.path.basename(folder) != "cli"
)
"""Files of this package: a line in one of them is not the user's, but for those of the command,
which is written as a user would write it."""

Call = Callable[..., Any]


# The three shapes of a bound op ------------------------------------------------------------


def bind_unary(op: Op) -> Call:
    """The function for one array and no attributes."""
    table = op.table
    keep_x, keep_y = op.kept[0], "y" in op.saves
    keep_shape = op.family != "elementwise"  # else it is that of the result

    def call(x: Any, /) -> Any:
        if not process.recorders:
            try:
                fn, kind = table[x._kind]
                out = _quick(fn, x._array)
                y = _new(Tensor)
                y._array = out if type(out) is kind.array_type else kind.wrap(out)
                y._kind = kind
                y._key = None
                return y
            except Exception:  # the long way succeeds, or explains
                pass
        append, recorder, run = now()
        if append is None and recorder is not None:
            return _watched(recorder, op, (x,), {})
        try:
            fn, kind = table[x._kind]
        except (AttributeError, KeyError):
            return _misfit(op, (x,), {})
        try:
            out = run(fn, x._array)
        except Exception as error:
            out = rescue(error, op, (x,), {}, fn)
        y = _new(Tensor)
        y._array = out if type(out) is kind.array_type else kind.wrap(out)
        y._kind = kind
        k = x._key
        if append is None or k is None:
            y._key = None
            return y
        y._key = key = next_key()
        frame = _frame(1)
        code = frame.f_code
        if code.co_filename in internal:
            frame = user_frame(frame)
            code = frame.f_code
        x_kept = x if keep_x else x._array.shape if keep_shape else None
        append((op, _NONE, code, frame.f_lasti, key, y if keep_y else None, k, x_kept))
        return y

    return call


def bind_binary(op: Op) -> Call:
    """The function for two arrays and no attributes."""
    table = op.table
    keep_y, keep_1, keep_2 = ("y" in op.saves, *(name in op.saves for name in op.data))

    def call(x1: Any, x2: Any, /) -> Any:
        if not process.recorders:
            try:
                if type(x2) is Tensor:
                    kind = x2._kind
                    if type(x1) is Tensor:
                        fn, kind = table[kind if x1._kind is kind else None]
                        out = _quick(fn, x1._array, x2._array)
                    else:
                        fn, kind = table[kind, type(x1)]
                        out = _quick(fn, x1, x2._array)
                else:
                    fn, kind = table[x1._kind, type(x2)]
                    out = _quick(fn, x1._array, x2)
                y = _new(Tensor)
                y._array = out if type(out) is kind.array_type else kind.wrap(out)
                y._kind = kind
                y._key = None
                return y
            except Exception:  # the long way succeeds, or explains
                pass
        append, recorder, run = now()
        if append is None and recorder is not None:
            return _watched(recorder, op, (x1, x2), {})
        try:
            if type(x2) is Tensor and type(x1) is Tensor and (kind := x1._kind) is x2._kind:
                fn, kind = table[kind]
                a, b = x1._array, x2._array
                k1, k2 = x1._key, x2._key
            else:
                x1, x2, a, b, k1, k2, fn, kind = _meet(op, x1, x2)
        except KeyError:
            return _misfit(op, (x1, x2), {})
        try:
            out = run(fn, a, b)
        except Exception as error:
            out = rescue(error, op, (x1, x2), {}, fn)
        y = _new(Tensor)
        y._array = out if type(out) is kind.array_type else kind.wrap(out)
        y._kind = kind
        if append is None or (k1 is None and k2 is None):
            y._key = None
            return y
        y._key = key = next_key()
        frame = _frame(1)
        code = frame.f_code
        if code.co_filename in internal:
            frame = user_frame(frame)
            code = frame.f_code
        s1 = x1 if keep_1 or k1 is None else a.shape
        s2 = x2 if keep_2 or k2 is None else b.shape
        append((op, _NONE, code, frame.f_lasti, key, y if keep_y else None, k1, s1, k2, s2))
        return y

    return call


def bind_attribute(op: Op) -> Call:
    """The function for one array and one attribute, which may be given by position or name."""
    table = op.table

    def call(x: Any, value: Any) -> Any:
        if not process.recorders:
            try:
                kind = x._kind
                out = _quick(table[kind], x._array, value)
                y = _new(Tensor)
                y._array = out if type(out) is kind.array_type else kind.wrap(out)
                y._kind = kind if out.dtype is kind.dtype else kind.device.kind(out.dtype)
                y._key = None
                return y
            except Exception:  # the long way succeeds, or explains
                pass
        return _long(op, (x, value), {})

    ((name, default),) = op.attributes.items()
    code = call.__code__
    call.__code__ = code.replace(co_varnames=(op.data[0], name, *code.co_varnames[2:]))
    if default is not REQUIRED:
        call.__defaults__ = (default,)
    return call


def bind_general(op: Op) -> Call:
    """The function for any arguments and attributes."""
    table = op.table

    def call(*args: Any, **attributes: Any) -> Any:
        if table and not process.recorders:
            try:
                x = args[0]
                kind = x._kind
                out = _quick(table[kind], x._array, *args[1:], **attributes)
                y = _new(Tensor)
                y._array = out if type(out) is kind.array_type else kind.wrap(out)
                y._kind = kind.device._kinds[out.dtype]
                y._key = None
                return y
            except Exception:  # the long way succeeds, or explains
                pass
        return _long(op, args, attributes)

    return call


def bind(op: Op) -> Call:
    """The function that users call, with the op's name, documentation and facts."""
    op.call = call = _shape_of_call(op)(op)
    call.__name__ = call.__qualname__ = op.name
    call.__doc__ = op.doc
    call.__module__ = op.kernel.__module__
    call.__signature__ = OpSignature(op.kernel)  # type: ignore[attr-defined]
    call.op = op  # type: ignore[attr-defined]
    return call


def _shape_of_call(op: Op) -> Callable[[Op], Call]:
    if op.variadic or op.optional or op.outputs != 1:
        return bind_general
    if not op.attributes and op.arrange is None:
        return {1: bind_unary, 2: bind_binary}.get(len(op.data), bind_general)
    if len(op.attributes) == 1 and len(op.data) == 1:
        return bind_attribute
    return bind_general


# The long way --------------------------------------------------------------------------------


def _long(op: Op, args: tuple[Any, ...], attributes: dict[str, Any]) -> Any:
    """A call of any form, step by step: bind, bring into shape, compute, record."""
    append, recorder, _ = now()
    if append is None and recorder is not None:
        return _watched(recorder, op, args, attributes)
    data, attributes = op.bind(args, attributes)
    data = canonical(op, data)
    out = compute(op, data, attributes)
    if append is not None:
        record(append, op, data, attributes, out)
    return out


def user_frame(frame: Any) -> Any:
    """The innermost frame outside of the package, or the outermost one there is."""
    while frame.f_code.co_filename in internal and frame.f_back is not None:
        frame = frame.f_back
    return frame


def _meet(op: Op, x1: Any, x2: Any) -> tuple[Any, ...]:
    """Operands of which one is a Python scalar or a Variable; KeyError for all others."""
    if type(x1) is Variable:
        x1 = x1.value
    if type(x2) is Variable:
        x2 = x2.value
    if type(x1) is not Tensor and type(x2) is not Tensor:
        raise KeyError
    if type(x1) is Tensor and type(x2) is Tensor:
        if x1._kind is not x2._kind:
            raise KeyError
        fn, out = op.table[x1._kind]
        return x1, x2, x1._array, x2._array, x1._key, x2._key, fn, out
    if type(x1) is Tensor:
        fn, out = op.table[x1._kind, type(x2)]
        return x1, x2, x1._array, x2, x1._key, None, fn, out
    fn, out = op.table[x2._kind, type(x1)]
    return x1, x2, x1, x2._array, None, x2._key, fn, out


def _misfit(op: Op, args: tuple[Any, ...], attributes: dict[str, Any]) -> Any:
    """Bring the arguments into shape, learn their kind, and call again."""
    try:
        data = canonical(op, op._complete(args))
    except EagerflowError as error:
        raise error from None  # that the table had no such kind tells nothing
    tensor = next(x for x in data if type(x) is Tensor)
    _learn(op, tensor._kind, [type(x) for x in data if type(x) in SCALARS])
    return op.call(*data, **attributes)


def _learn(op: Op, kind: Kind, scalars: list[type]) -> None:
    """Put the kernel for operands of ``kind`` into the op's table."""
    entry = op.table.get(kind)
    if entry is None:
        specs = [TensorSpec((1, 1), kind.dtype)] * len(op.data)  # any rank that ops take
        out = kind.device.kind(op.infer(*specs).dtype)
        entry = op.table[kind] = (kind.device.backend.bind(op, kind.dtype), out)
    for scalar in scalars:
        op.table[kind, scalar] = entry


def canonical(op: Op, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Arguments as Tensors of dtypes that the op takes, promoted together, on one device.

    Python scalars stay scalars in element-wise ops. Conversions of watched values are ops
    themselves, so gradients pass through them.
    """
    key = tuple([x._kind if type(x) is Tensor else type(x) for x in args])
    if key in op.fitting:
        return args  # arguments of these kinds were fine as they are
    data = list(args)
    home = next((x.device for x in data if isinstance(x, Tensor | Variable)), None)
    for i, x in enumerate(data):
        if type(x) is Tensor or x is None:
            continue
        if isinstance(x, Variable):
            data[i] = x.value
        elif type(x) not in SCALARS:
            data[i] = _converted(op, i, x, home)
    if op.on_tensors:  # what it is made of says what fits
        return tuple(as_tensor(x) if type(x) in SCALARS else x for x in data)
    tensors = [x for x in data if type(x) is Tensor]
    if not data:
        return args
    if not tensors:
        data = [x if x is None else as_tensor(x) for x in data]
        tensors = [x for x in data if x is not None]
    _same_device(op, data, tensors)
    keep_scalars = op.family == "elementwise" and len(data) > 1
    group = [i for i in range(len(data)) if _in_group(op, i) and data[i] is not None]
    dtype = _common(op, group, data)
    for i, x in enumerate(data):
        if x is None:
            continue
        wanted = _allowed(op, i, dtype if i in group and dtype else _own_dtype(x))
        if type(x) is not Tensor:
            weak = wanted.isbuiltin == 1  # NumPy knows how a scalar meets its own dtypes
            keep = keep_scalars and weak and i in group
            if not keep or join_scalar(wanted, type(x)) != wanted:
                data[i] = as_tensor(x, wanted, tensors[0].device)
        elif x._kind.dtype != wanted:
            data[i] = ops["astype"].call(x, wanted)
    if all(map(is_, data, args)):
        op.fitting.add(key)
        return args
    return tuple(data)


def _converted(op: Op, position: int, x: Any, home: Device | None) -> Tensor:
    # What a tape keeps, and what may be a view, must not share memory that the user can change.
    fresh = op.ufunc is not None or op.family == "reduction"
    try:
        return as_tensor(x, device=home, copy=None if fresh and now()[1] is None else True)
    except EagerflowError as error:
        error.op, error.argument = op.name, op.argument(position)
        raise


def _in_group(op: Op, position: int) -> bool:
    return position in op.together or (op.variadic and position >= len(op.data) - 1)


def _own_dtype(x: Any) -> DType:
    return x._kind.dtype if type(x) is Tensor else default_dtype(type(x))


def _common(op: Op, group: list[int], data: list[Any]) -> DType | None:
    dtype: DType | None = None
    try:
        for i in group:
            if type(data[i]) is Tensor:
                own = data[i]._kind.dtype
                dtype = own if dtype is None else promote(dtype, own)
        for i in group:
            if type(data[i]) is not Tensor:
                scalar = type(data[i])
                dtype = default_dtype(scalar) if dtype is None else join_scalar(dtype, scalar)
    except EagerflowError as error:
        raise _told(error, op, tuple(data)) from None
    return dtype


def _allowed(op: Op, position: int, dtype: DType) -> DType:
    """``dtype``, or float32 for integers where only floats are taken; DTypeError if neither."""
    allowed = op.allowed(position)
    if dtype in allowed:
        return dtype
    usual = default_dtype(float)
    if dtype in BOOL | INTEGERS and usual in allowed and allowed.isdisjoint(INTEGERS):
        return usual
    names = ", ".join(sorted(t.name for t in allowed))
    raise DTypeError(
        f"dtype {dtype.name} is not taken",
        op=op.name,
        argument=op.argument(position),
        expected=f"one of {names}",
        hint=f"{op.argument(position)}.astype(...)",
    )


def _same_device(op: Op, data: list[Any], tensors: list[Tensor]) -> None:
    device = tensors[0]._kind.device
    if any(x._kind.device is not device for x in tensors):
        raise _told(
            DeviceError(
                "the operands are on different devices",
                hint=f"x.to({str(device)!r}) moves a tensor",
            ),
            op,
            tuple(data),
        )


def compute(op: Op, data: tuple[Any, ...], attributes: dict[str, Any]) -> Any:
    """Run the kernel of ``op`` on canonical arguments; a tuple of Tensors for several results."""
    if not op.trusted:
        check(op, data, attributes)
    if op.on_tensors:
        return under(None, op.kernel, None, *data, **attributes)
    first = next((x for x in data if type(x) is Tensor), None)
    place = as_device(attributes["device"]) if "device" in attributes else None
    if first is None:
        kind = (place or current_device()).kind(default_dtype(float))
    else:
        kind = first._kind
    fn = _kernel(op, kind)
    if place is not None:
        kind = place.kind(kind.dtype)
    arrays = [x._array if type(x) is Tensor else x for x in data]
    try:
        out = now()[2](fn, *arrays, **attributes)
    except Exception as error:
        out = rescue(error, op, data, attributes, fn)
    if isinstance(out, tuple):
        return tuple(_wrapped(part, kind) for part in out)
    return _wrapped(out, kind)


def _kernel(op: Op, kind: Kind) -> Call:
    fn = op.kernels.get(kind)
    if fn is None:
        backend = kind.device.backend
        fn = op.kernels[kind] = backend.bind(op, kind.dtype)
        direct = backend.bind_direct(op, kind.dtype)
        if direct is not None and kind not in op.table:
            op.table[kind] = direct
    return fn


def _wrapped(out: Any, like: Kind) -> Tensor:
    if type(out) is not like.array_type:
        out = like.wrap(out)
    return new_tensor(out, like.device.kind(out.dtype))


def _watched(recorder: Any, op: Op, args: tuple[Any, ...], attributes: dict[str, Any]) -> Any:
    """Hand the call to the recorder; who follows the user's lines need not follow ours."""
    hook = sys.gettrace()
    if hook is None or not getattr(hook, "may_pause", False):
        return _hand_over(recorder, op, args, attributes)
    sys.settrace(None)
    try:
        return _hand_over(recorder, op, args, attributes)
    finally:
        sys.settrace(hook)


def _hand_over(recorder: Any, op: Op, args: tuple[Any, ...], attributes: dict[str, Any]) -> Any:
    """The recorder's answer to a call, which gets arguments in canonical form."""
    try:
        data, attributes = op.bind(args, attributes)
        if Dim in map(type, data):
            data = tuple([size_as_number(x) if type(x) is Dim else x for x in data])
        if Number in map(type, data):
            data = _known_dtypes(op, data)
        return recorder.call(op, canonical(op, data), attributes)
    except EagerflowError as error:
        recorder.explain(error)
        raise


def _known_dtypes(op: Op, data: tuple[Any, ...]) -> tuple[Any, ...]:
    """Numbers that are known at replay alone as Tensors, of the dtype that they would take on."""
    dtype: DType | None = None
    for i, x in enumerate(data):
        if x is not None and type(x) not in (Number, *SCALARS) and _in_group(op, i):
            own = as_tensor(x).dtype
            dtype = own if dtype is None else promote(dtype, own)
    return tuple(
        x.cast(dtype if _in_group(op, i) else None) if type(x) is Number else x
        for i, x in enumerate(data)
    )


def record(
    append: Any, op: Op, data: tuple[Any, ...], attributes: dict[str, Any], out: Any,
    origin: Any = None,
) -> None:  # fmt: skip
    """Append an entry for a call whose arguments are watched, and give its results keys.

    ``origin`` is the code and instruction that it belongs to, where that is not the caller.
    """
    keys = [x._key if type(x) is Tensor else None for x in data]
    if keys.count(None) == len(keys):
        return
    results = out if isinstance(out, tuple) else (out,)
    for result in results:
        if result._key is None:  # else an outer tape has named it
            result._key = next_key()
    kept: Any = None
    if isinstance(out, tuple):
        named: Any = tuple(r._key for r in out)
        kept = out if "y" in op.saves else tuple(map(spec_of, out))
    else:
        named, kept = out._key, out if "y" in op.saves else None
    if origin is None:
        frame = user_frame(_frame(2))
        origin = frame.f_code, frame.f_lasti
    entry = [op, attributes, origin[0], origin[1], named, kept]
    last = len(op.kept) - 1  # the fact of a variadic argument holds for all of its tensors
    for i, x in enumerate(data):
        entry += (keys[i], x if op.kept[i if i < last else last] else _spec(x))
    append(tuple(entry))


def _spec(x: Any) -> Any:
    return spec_of(x) if type(x) is Tensor else x


# When something goes wrong -------------------------------------------------------------------


def check(op: Op, data: tuple[Any, ...], attributes: dict[str, Any]) -> Any:
    """What ``infer`` says of these arguments; its errors get the op and what was received."""
    specs = [_spec(x) for x in data]
    try:
        return op.infer(*specs, **attributes)
    except EagerflowError as error:
        raise _told(error, op, data) from None


def rescue(
    error: Exception, op: Op, data: tuple[Any, ...], attributes: dict[str, Any], fn: Call
) -> Any:
    """The result after all, or an error that tells the story of the failed call."""
    if isinstance(error, RuntimeError) and "cannot enter context" in str(error):
        # Another thread, or a signal handler of this one, is in a kernel with the same runner.
        arrays = [x._array if type(x) is Tensor else x for x in data]
        return quiet_runner()(fn, *arrays, **attributes)
    if isinstance(error, EagerflowError):
        raise _told(error, op, data) from None
    for x in data:
        if type(x) is Tensor and type(x._array) is not x._kind.array_type:
            x._array.refuse(op.name)
    check(op, data, attributes)
    cls: type[EagerflowError] = EagerflowError
    for cause, ours in (
        (MemoryError, OutOfMemoryError),
        (OverflowError, DTypeError),
        (TypeError, DTypeError),
        (ValueError, ShapeError),
    ):
        if isinstance(error, cause):
            cls = ours
            break
    raise _told(cls(f"{error}"), op, data) from error


def _told(error: EagerflowError, op: Op, data: tuple[Any, ...]) -> EagerflowError:
    """``error`` with the op's name and a list of what was received."""
    error.op = error.op or op.name
    if not error.received:
        error.received = ", ".join(
            f"{op.argument(i)} {summary(x)}" for i, x in enumerate(data) if x is not None
        )
    return error
