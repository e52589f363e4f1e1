"""The hot path: from a user's call to the kernel, and to the recorders.

``bind`` makes the function that users call. It checks once for recorders. Without a
recorder, or with one that only appends, it calls the kernel at once; other arguments
(Variables, arrays, mixed dtypes, unknown kinds) take the slow path through ``canonical``,
and errors are explained after they happened, never checked for in advance.
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Iterable
from functools import partial, reduce
from operator import is_
from typing import Any

from eagerflow.backends.base import LARGE, MANY
from eagerflow.backends.numpy import quietly
from eagerflow.convert import SCALARS, as_tensor, join_numbers, number_type, own_dtype, plain_number
from eagerflow.devices import Device, Kind, SymbolicKind, as_device, current_device
from eagerflow.dims import Dim, symbolic
from eagerflow.display import summary
from eagerflow.dtypes import BOOL, INTEGERS, DType, default_dtype, join_scalar, promote
from eagerflow.errors import DeviceError, DTypeError, EagerflowError, IndexRangeError, ShapeError
from eagerflow.handlers import raised_here
from eagerflow.number import size_as_number
from eagerflow.op import REQUIRED, LateSignature, Op, ops, signature_of, spec_of
from eagerflow.recorder import next_key, process, recorder_state, with_recorder
from eagerflow.runtime.listeners import learned
from eagerflow.spec import TensorSpec
from eagerflow.tensor import Tensor, blank, joining, new_tensor
from eagerflow.variable import Variable
from eagerflow.visitors import secluded

_frame = sys._getframe
_blank = blank
_quick = process.run
_NONE: dict[str, Any] = {}
_FOLDER = os.path.dirname(__file__) + os.sep
_COMMAND = os.path.join(_FOLDER, "cli", "")


class _Internal(dict[str, bool]):
    """Whether a file belongs to this package: its lines are not the user's.

    Files of the command do not count, as they are written like user code.
    """

    def __missing__(self, file: str) -> bool:
        if len(self) >= MAX_PASSED:  # generated code has an unbounded number of names
            self.clear()
        return self.setdefault(file, file.startswith(_FOLDER) and not file.startswith(_COMMAND))


internal = _Internal()

Call = Callable[..., Any]
OF_OPERATORS = inspect.signature(lambda self, other, /: None)
MAX_PASSED = 1024  # arguments that an op remembers as valid


# The three shapes of a bound op ------------------------------------------------------------


def bind_unary(op: Op) -> Call:
    """The function for one array and no attributes."""
    table = op.table
    keep_x, keep_y = op.kept[0], "y" in op.saves
    keep_shape = op.family != "elementwise"  # otherwise it is that of the result

    def call(x: Any, /) -> Any:
        if not process.recorders:
            try:
                fn, kind, many = table[x._kind]
                a = x._array
                out = _quick(fn if many is None or a.size < MANY else many, a)
                y = _blank()
                y._array = out if out.__class__ is kind.array_type else kind.wrap(out)
                y._kind = kind
                y._key = None
                return y
            except raised_here(Exception):  # the slow path succeeds, or explains
                pass
        append, recorder, run = recorder_state()
        if append is None and recorder is not None:
            return _watched(recorder, op, (x,), {})
        try:
            fn, kind, many = table[x._kind]
        except raised_here(AttributeError, KeyError):
            return _misfit(op, (x,), {})
        a = x._array
        try:
            out = run(fn if many is None or a.size < MANY else many, a)
        except raised_here(Exception) as error:
            out = explain_failure(error, op, (x,), {}, fn)
        y = _blank()
        y._array = out if out.__class__ is kind.array_type else kind.wrap(out)
        y._kind = kind
        k = x._key
        if append is None or k is None:
            y._key = None
            return y
        y._key = key = next_key()
        frame = _frame(1)
        code, line = frame.f_code, frame.f_lasti
        if code is not _latest[0]:
            code, line = _place_of(frame)
        x_kept = x if keep_x else a.shape if keep_shape else None
        append((op, _NONE, code, line, key, y if keep_y else None, k, x_kept))
        return y

    return call


def bind_binary(op: Op, operator: bool = False, watched: Call | None = None) -> Call:
    """The function for two arrays and no attributes; an ``operator`` may defer to other types.

    ``watched`` passes the call to a recorder, if that needs more than ``_watched``.
    """
    table, (keep_1, keep_2), keep_y = op.table, op.kept, "y" in op.saves

    def call(x1: Any, x2: Any, /) -> Any:
        if not process.recorders:
            try:
                if x1.__class__ is x2.__class__ is Tensor:
                    fn, kind = table[x2._kind if x1._kind is x2._kind else None]
                    out = _quick(fn, x1._array, x2._array)
                elif x1.__class__ is Variable and own_recorder((x2,)) is None:
                    return call(x1.value, x2)
                elif x2.__class__ is Variable and own_recorder((x1,)) is None:
                    return call(x1, x2.value)
                elif x2.__class__ is Tensor:
                    fn, kind, numbers = table[x2._kind, x1.__class__]
                    out = _quick(fn, numbers[x1], x2._array)
                else:
                    fn, kind, numbers = table[x1._kind, x2.__class__]
                    out = _quick(fn, x1._array, numbers[x2])
                y = _blank()
                y._array = out if out.__class__ is kind.array_type else kind.wrap(out)
                y._kind = kind
                y._key = None
                return y
            except raised_here(Exception):  # the slow path succeeds, or explains
                pass
        append, recorder, run = recorder_state()
        if append is None and recorder is not None:
            joins = not operator or joining[type(x2)]
            return (watched or _watched)(recorder, op, (x1, x2), {}) if joins else NotImplemented
        try:
            if x2.__class__ is x1.__class__ is Tensor and (kind := x1._kind) is x2._kind:
                a, b, (fn, own) = x1._array, x2._array, table[kind]
                fn, k1, k2 = fn if a.size < LARGE else op.many[kind], x1._key, x2._key
                kind = own
            else:
                x1, x2, a, b, k1, k2, fn, kind = _meet(op, x1, x2)
        except raised_here(AttributeError, KeyError):
            joins = not operator or joining[type(x2)]
            return _misfit(op, (x1, x2), {}) if joins else NotImplemented
        try:
            out = run(fn, a, b)
        except raised_here(Exception) as error:
            out = explain_failure(error, op, (x1, x2), {}, fn)
        y = _blank()
        y._array = out if out.__class__ is kind.array_type else kind.wrap(out)
        y._kind, y._key = kind, None
        if append is None or (k1 is None and k2 is None):
            return y
        y._key = key = next_key()
        code, line = (frame := _frame(1)).f_code, frame.f_lasti
        if code is not _latest[0]:
            code, line = _place_of(frame)
        s1 = x1 if keep_1 or k1 is None else a.shape
        s2 = x2 if keep_2 or k2 is None else b.shape
        append((op, _NONE, code, line, key, y if keep_y else None, k1, s1, k2, s2))
        return y

    return call


def bind_attribute(op: Op) -> Call:
    """The function for one array and one attribute, which may be given by position or name."""
    table = op.table

    def call(x: Any, value: Any, **more: Any) -> Any:
        if more:
            return _with_keywords(op, x, value, more)
        if not process.recorders:
            try:
                kind = x._kind
                out = _quick(table[kind], x._array, value)
                y = _blank()
                y._array = out if out.__class__ is kind.array_type else kind.wrap(out)
                y._kind = kind if out.dtype is kind.dtype else kind.device.kind(out.dtype)
                y._key = None
                return y
            except raised_here(Exception):  # the slow path succeeds, or explains
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
                y = _blank()
                y._array = out if out.__class__ is kind.array_type else kind.wrap(out)
                y._kind = kind.device._kinds[out.dtype]
                y._key = None
                return y
            except raised_here(Exception):  # the slow path succeeds, or explains
                pass
        return _long(op, args, attributes)

    return call


def bind(op: Op) -> Call:
    """The function that users call, with the op's name, documentation and facts."""
    op.call = call = _shape_of_call(op)(op)
    return _named(op, call)


def bind_operator(op: Op, in_place: bool = False) -> Call:
    """The method for Python's operator: objects with priority over tensors may handle it."""
    if _shape_of_call(op) is not bind_binary:
        return op.call  # type: ignore[no-any-return]
    call = _named(op, bind_binary(op, True, _watched_in_place if in_place else None))
    call.__signature__ = OF_OPERATORS  # type: ignore[attr-defined]
    return call


def _named(op: Op, call: Any) -> Call:
    call.__name__ = call.__qualname__ = op.name
    call.__doc__ = op.doc
    call.__module__ = op.kernel.__module__
    call.__signature__ = LateSignature(partial(signature_of, op))
    call.op = op
    return call  # type: ignore[no-any-return]


def _shape_of_call(op: Op) -> Callable[[Op], Call]:
    if op.variadic or op.optional or op.outputs != 1:
        return bind_general
    if not op.attributes and op.arrange is None and len(op.together) == len(op.data):
        return {1: bind_unary, 2: bind_binary}.get(len(op.data), bind_general)
    if len(op.attributes) == 1 and len(op.data) == 1:
        return bind_attribute
    return bind_general


def _with_keywords(op: Op, x: Any, value: Any, more: dict[str, Any]) -> Any:
    """A call with keywords of other libraries, and possibly with a device for the result."""
    place = more.pop("device", None) if "device" in op.also else None
    out = _long(op, (x, value), more)
    return out if place is None else ops["to_device"].call(out, str(as_device(place)))


# The slow path -------------------------------------------------------------------------------


def _long(op: Op, args: tuple[Any, ...], attributes: dict[str, Any]) -> Any:
    """A call of any form, step by step: bind, canonicalize, compute, record."""
    append, recorder, run = recorder_state()
    if append is not None and op.bound:
        try:
            return _recorded_again(op, append, run, args, attributes)
        except raised_here(Exception):  # the slow path succeeds, or explains
            pass
    if append is None and recorder is not None:
        return _watched(recorder, op, args, attributes)
    data, bound = op.bind(args, attributes)
    own = own_recorder(data)
    if own is not None:
        return secluded(own, op.call, *args, **attributes)
    data = canonical(op, data)
    taken = recorded_for(op, data) if append is not None else op
    try:
        out = compute(taken, data, bound)
    except EagerflowError:
        own = _sizes_recorder(bound)
        if own is None:
            raise
        return secluded(own, op.call, *args, **attributes)
    if append is not None:
        record(append, taken, data, bound, out)
        remember(op, args, attributes, data, bound)
    return out if taken is op else first_results(op, out)


def _recorded_again(
    op: Op, append: Any, run: Call, args: tuple[Any, ...], attributes: dict[str, Any]
) -> Any:
    """A call of one array under a tape, in a form cached in ``op.bound``; else KeyError."""
    bound = op.bound[form(args, attributes)]
    x = args[0]
    kind = x._kind
    a = x._array
    out = run(op.table[kind], a, *args[1:], **attributes)
    y = _blank()
    y._array = out if out.__class__ is kind.array_type else kind.wrap(out)
    same = out.dtype is kind.dtype
    y._kind = kind if same else kind.device._kinds[out.dtype]
    k = x._key
    if k is None:
        y._key = None
        return y
    y._key = key = next_key()
    frame = _frame(3)
    code, line = frame.f_code, frame.f_lasti
    if code is not _latest[0]:
        code, line = _place_of(frame)
    kept = x if op.kept[0] else a.shape if same else spec_of(x)
    append((op, bound, code, line, key, y if "y" in op.saves else None, k, kept))
    return y


def form(args: tuple[Any, ...], attributes: dict[str, Any]) -> Any:
    """Everything but the tensor of a call, with types, as 1, 1.0 and True are equal."""
    more = args[1:]
    if attributes:
        more = *more, *attributes.items(), *map(type, attributes.values())
    return *map(type, args), *more


def remember(
    op: Op, args: tuple[Any, ...], attributes: dict[str, Any], data: Any, bound: Any
) -> None:
    """Cache the attributes of a call in this form, if the form determines them."""
    if op.direct is None or len(op.data) != 1:
        return
    if not args or data[0] is not args[0] or 0.0 in [v for v in bound.values() if type(v) is float]:
        return  # 0.0 and -0.0 are equal as well
    if len(op.bound) >= MAX_PASSED:
        op.bound.clear()
    try:
        op.bound[form(args, attributes)] = bound
    except raised_here(TypeError):  # an unhashable attribute, such as a list
        pass


def own_recorder(args: Iterable[Any]) -> Any:
    """The recorder of tensors without values, if one of the arguments is such a tensor."""
    for x in args:
        if type(x) is Tensor and type(x._kind) is SymbolicKind:
            return x._kind.recorder
    return None


def _sizes_recorder(attributes: dict[str, Any]) -> Any:
    """The recorder for a call with sizes known by name only, if there are any."""
    given = (v if type(v) is tuple else (v,) for v in attributes.values())
    return process.of_sizes if any(symbolic(x) for x in given) else None


_latest: list[Any] = [None]
"""The most recent code of the user: the next call is likely to come from it as well."""


def user_frame(frame: Any) -> Any:
    """The innermost frame outside of the package, or the outermost one there is."""
    while internal[frame.f_code.co_filename] and frame.f_back is not None:
        frame = frame.f_back
    _latest[0] = None if internal[frame.f_code.co_filename] else frame.f_code
    return frame


_places: dict[int, tuple[Any, int]] = {}
"""The user's code and instruction of each running call of ``from_here``, by its frame's id."""


def from_here(function: Call, *args: Any) -> Any:
    """The result of a function that records many ops: their place is searched once."""
    own, user = id(_frame(0)), user_frame(_frame(1))  # the frame itself would be a cycle
    try:
        _places[own] = user.f_code, user.f_lasti
        return function(*args)
    finally:
        _places.pop(own, None)


_FROM_HERE = from_here.__code__


def _place_of(frame: Any) -> tuple[Any, int]:
    """The user's code, and its instruction, that called the package."""
    while internal[frame.f_code.co_filename] and frame.f_back is not None:
        if frame.f_code is _FROM_HERE and (found := _places.get(id(frame))):
            return found
        frame = frame.f_back
    _latest[0] = None if internal[frame.f_code.co_filename] else frame.f_code
    return frame.f_code, frame.f_lasti


def _meet(op: Op, x1: Any, x2: Any) -> tuple[Any, ...]:
    """Operands, one of them a number or a Variable; raises an error for all others."""
    x1 = x1.value if type(x1) is Variable else x1
    x2 = x2.value if type(x2) is Variable else x2
    if type(x1) is Tensor and type(x2) is Tensor:
        fn, kind = op.table[x1._kind if x1._kind is x2._kind else None]
        return x1, x2, x1._array, x2._array, x1._key, x2._key, _by_size(op, fn, x1), kind
    if type(x1) is Tensor:
        x2 = x2 if type(x2) in SCALARS else plain_number(x2)
        fn, kind, numbers = op.table[x1._kind, type(x2)]
        return x1, x2, x1._array, numbers[x2], x1._key, None, _by_size(op, fn, x1), kind
    x1 = x1 if type(x1) in SCALARS else plain_number(x1)
    fn, kind, numbers = op.table[x2._kind, type(x1)]
    return x1, x2, numbers[x1], x2._array, None, x2._key, _by_size(op, fn, x2), kind


def _by_size(op: Op, fn: Call, x: Tensor) -> Call:
    return fn if x._array.size < LARGE else op.many[x._kind]


def _misfit(op: Op, args: tuple[Any, ...], attributes: dict[str, Any]) -> Any:
    """Canonicalize the arguments, learn their kind, and call again."""
    own = own_recorder(args)
    if own is not None:
        return secluded(own, op.call, *args, **attributes)
    try:
        data = canonical(op, op._complete(args))
    except raised_here(EagerflowError) as error:
        raise error from None  # a missing kind in the table is irrelevant to the user
    if all(map(is_, data, args)):  # otherwise the table may hold what they have become
        tensor = next(x for x in data if type(x) is Tensor)
        _learn(op, tensor._kind, [type(x) for x in data if type(x) in SCALARS])
    return op.call(*data, **attributes)


def _learn(op: Op, kind: Kind, scalars: list[type]) -> None:
    """Put the kernel for operands of ``kind`` into the op's table."""
    backend = kind.device.backend
    few, many = backend.bind_by_size(op, kind.dtype)
    entry = op.table.get(kind)
    if entry is None:
        # Specs of any rank that ops accept.
        out = kind.device.kind(op.infer(*[TensorSpec((1, 1), kind.dtype)] * len(op.data)).dtype)
        op.many[kind] = many or few
        entry = op.table[kind] = (few, out, many) if len(op.data) == 1 else (few, out)
    for scalar in scalars:
        op.table[kind, scalar] = *entry, backend.numbers(few, scalar, kind.dtype)
    learned.note(op)


def canonical(op: Op, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Arguments as Tensors of dtypes that the op accepts, promoted together, on one device.

    Python scalars stay scalars in element-wise ops. Conversions of watched values are ops
    themselves, so gradients pass through them.
    """
    if not args or _kinds(args) in op.fitting:
        return args  # arguments of these kinds needed no conversion before
    plain = tuple([x.value if isinstance(x, Variable) else x for x in args])
    if op.family == "elementwise":  # beside tensors NumPy's numbers count as Python's
        meet = [i for i in range(len(plain)) if _in_group(op, i)]
        if Tensor in [type(plain[i]) for i in meet]:
            plain = tuple([plain_number(x) if i in meet else x for i, x in enumerate(plain)])
    if not all(map(is_, plain, args)):
        return canonical(op, plain)
    data = list(args)
    home = next((x.device for x in data if isinstance(x, Tensor)), None)
    for i, x in enumerate(data):
        if type(x) is not Tensor and x is not None:
            data[i] = _converted(op, i, x, home)
    args = tuple(data)
    if (key := _kinds(args)) in op.fitting:
        return args
    if op.on_tensors:  # the ops in its kernel check them
        return tuple(x if x is None else as_tensor(x) for x in data)
    tensors = [x for x in data if type(x) is Tensor]
    home = _same_device(op, data, tensors) if tensors else home
    keep_scalars = bool(tensors) and op.family == "elementwise" and len(data) > 1
    group = [i for i in range(len(data)) if _in_group(op, i) and data[i] is not None]
    meets = any(type(data[i]) is Tensor for i in group)  # otherwise NumPy numbers have their dtype
    dtype = _common(op, group, data)
    for i, x in enumerate(data):
        if x is None:
            continue
        try:
            wanted = _allowed(op, i, dtype if i in group and dtype else own_dtype(x))
        except DTypeError:
            if type(x) is not Tensor:  # report an object that is no array first
                _converted(op, i, x, home, own_dtype(x))
            raise
        if type(x) is Tensor:
            data[i] = x if x._kind.dtype == wanted else ops["astype"].call(x, wanted)
            continue
        number = plain_number(x) if meets else x
        # NumPy only promotes scalars with its own, built-in dtypes.
        keep = keep_scalars and wanted.isbuiltin == 1 and i in group and type(number) in SCALARS
        if keep and join_scalar(wanted, type(number)) == wanted:
            data[i] = number
        else:
            data[i] = _converted(op, i, number, home, wanted)
    if all(map(is_, data, args)):
        op.fitting.add(key)
        return args
    return tuple(data)


def _kinds(args: Iterable[Any]) -> tuple[Any, ...]:
    return tuple([x._kind.lasting if type(x) is Tensor else type(x) for x in args])


def _converted(op: Op, position: int, x: Any, home: Device | None, dtype: Any = None) -> Any:
    """A Tensor of ``x``; without a dtype, numbers are converted later."""
    # Values kept by a tape, and possible views, must not share memory that the user can change.
    fresh = op.ufunc is not None or op.family == "reduction"
    try:
        if dtype is None and number_type(x) is not None:
            return x
        used = fresh and recorder_state()[1] is None
        return as_tensor(x, dtype, home, copy=None if used else True, kept=not used)
    except EagerflowError as error:
        error.op, error.argument = op.name, op.argument(position)
        raise


def _in_group(op: Op, position: int) -> bool:
    return position in op.together or (op.variadic and position >= len(op.data) - 1)


def _common(op: Op, group: list[int], data: list[Any]) -> DType | None:
    """The common dtype of a group: tensors and lists decide it, single numbers adapt."""
    dtypes = {x._kind.dtype if type(x) is Tensor else None for x in [data[i] for i in group]}
    if len(dtypes) == 1 and None not in dtypes:
        return dtypes.pop()
    firm = [data[i] for i in group if isinstance(data[i], Tensor | list | tuple)]
    single = [data[i] for i in group if not isinstance(data[i], Tensor | list | tuple)]
    try:
        dtype = reduce(promote, [own_dtype(x) for x in firm]) if firm else None
        return join_numbers(dtype, single)
    except raised_here(EagerflowError) as error:
        raise with_context(error, op, tuple(data)) from None


def _allowed(op: Op, position: int, dtype: DType) -> DType:
    """``dtype``, or float32 for integers if only floats are accepted; DTypeError if neither."""
    allowed = op.allowed(position)
    if dtype in allowed:
        return dtype
    usual = default_dtype(float)
    if dtype in BOOL | INTEGERS and usual in allowed and allowed.isdisjoint(INTEGERS):
        return usual
    raise DTypeError(
        f"dtype {dtype.name} is not taken",
        op=op.name,
        argument=op.argument(position),
        expected="one of " + ", ".join(sorted(t.name for t in allowed)),
        hint=f"{op.argument(position)}.astype(...)",
    )


def _same_device(op: Op, data: list[Any], tensors: list[Tensor]) -> Device:
    device = tensors[0]._kind.device
    if all(x._kind.device is device for x in tensors):
        return device
    hint = f"x.to({str(device)!r}) moves a tensor"
    raise with_context(
        DeviceError("the operands are on different devices", hint=hint), op, tuple(data)
    )


def compute(op: Op, data: tuple[Any, ...], attributes: dict[str, Any]) -> Any:
    """Run the kernel of ``op`` on canonical arguments; a tuple of Tensors for several results."""
    if not op.trusted:
        check_once(op, data, attributes)
    if op.on_tensors:
        return with_recorder(None, op.kernel, None, *data, **attributes)
    first = next((x for x in data if type(x) is Tensor), None)
    place = as_device(attributes["device"]) if "device" in attributes else None
    kind = (place or current_device()).kind(default_dtype(float)) if first is None else first._kind
    fn = _kernel(op, kind)
    if place is not None:
        kind = place.kind(kind.dtype)
    arrays = [x._array if type(x) is Tensor else x for x in data]
    try:
        out = recorder_state()[2](fn, *arrays, **attributes)
    except raised_here(Exception) as error:
        out = explain_failure(error, op, data, attributes, fn)
    if isinstance(out, tuple):
        return tuple(_wrapped(part, kind) for part in out)
    return _wrapped(out, kind)


def _kernel(op: Op, kind: Kind) -> Call:
    if kind not in op.kernels:
        backend = kind.device.backend
        op.kernels[kind] = backend.bind(op, kind.dtype)
        if kind not in op.table and (direct := backend.bind_direct(op, kind.dtype)) is not None:
            op.table[kind] = direct
        learned.note(op)
    return op.kernels[kind]


def _wrapped(out: Any, like: Kind) -> Tensor:
    if type(out) is not like.array_type:
        out = like.wrap(out)
    return new_tensor(out, like.device.kind(out.dtype))


def _watched(recorder: Any, op: Op, args: tuple[Any, ...], attributes: dict[str, Any]) -> Any:
    """Pass the call to the recorder; tools that follow the user's lines need not follow ours."""
    hook = sys.gettrace()
    pauses = getattr(hook, "pauses", None)
    if pauses is None:
        return _hand_over(recorder, op, args, attributes)
    pauses.append(op)
    # No guard is needed: such a hook only exists in Python 3.11, which checks for signals when a
    # call has ended, and no tool traces bytecodes meanwhile.
    try:
        sys.settrace(None)
        return _hand_over(recorder, op, args, attributes)
    finally:
        sys.settrace(hook)
        pauses.clear()


def _watched_in_place(recorder: Any, op: Op, args: Any, attributes: Any) -> Any:
    """The same for an operator that would change its first operand, if that were an array."""
    recorder.changing(args[0])
    return _watched(recorder, op, args, attributes)


def _hand_over(recorder: Any, op: Op, args: tuple[Any, ...], attributes: dict[str, Any]) -> Any:
    """The recorder's answer to a call, which gets arguments in canonical form."""
    try:
        data, attributes = op.bind(args, attributes)
        if Dim in map(type, data):
            data = tuple([size_as_number(x) if type(x) is Dim else x for x in data])
        return recorder.call(op, canonical(op, data), attributes)
    except EagerflowError as error:
        recorder.explain(error)
        raise


def recorded_for(op: Op, data: tuple[Any, ...]) -> Op:
    """The op recorded by a tape in place of this one, if an argument is watched."""
    if op.recorded is None or all(type(x) is not Tensor or x._key is None for x in data):
        return op
    return op.recorded


def first_results(op: Op, out: tuple[Any, ...]) -> Any:
    """The results of an op, taken from those of the op recorded in its place."""
    return out[: op.outputs] if op.outputs > 1 else out[0]


def record(
    append: Any,
    op: Op,
    data: tuple[Any, ...],
    attributes: dict[str, Any],
    out: Any,
    origin: Any = None,
) -> None:
    """Append an entry for a call with watched arguments, and give its results keys.

    ``origin`` is the code and instruction that it belongs to, by default the caller's.
    """
    keys = [x._key if type(x) is Tensor else None for x in data]
    if keys.count(None) == len(keys):
        return
    results = out if isinstance(out, tuple) else (out,)
    for result in results:
        if result._key is None:  # otherwise an outer tape has given it one
            result._key = next_key()
    kept: Any = None
    if isinstance(out, tuple):
        named: Any = tuple(r._key for r in out)
        kept = out if "y" in op.saves else tuple([spec_of(x) for x in out])
    else:
        named, kept = out._key, out if "y" in op.saves else None
    if origin is None:
        origin = _place_of(_frame(2))
    entry = [op, attributes, origin[0], origin[1], named, kept]
    last = len(op.kept) - 1  # the fact of a variadic argument holds for all of its tensors
    for i, x in enumerate(data):
        entry += (keys[i], x if op.kept[i if i < last else last] else _spec(x))
    append(tuple(entry))


def _spec(x: Any) -> Any:
    return spec_of(x) if type(x) is Tensor else x


# Errors --------------------------------------------------------------------------------------


def check(op: Op, data: tuple[Any, ...], attributes: dict[str, Any]) -> Any:
    """The result of ``infer`` for these arguments; errors include the op and the arguments."""
    specs = [_spec(x) for x in data]
    try:
        return op.infer(*specs, **attributes)
    except raised_here(EagerflowError) as error:
        raise with_context(error, op, data) from None


def check_once(op: Op, data: tuple[Any, ...], attributes: dict[str, Any]) -> None:
    """``check``, unless arguments of these shapes and kinds have passed with these attributes."""
    given = [(x._array.shape, x._kind) if type(x) is Tensor else x for x in data]
    key = *given, *[_typed(x) for x in attributes.values()]
    try:
        if key in op.passed:
            return
    except raised_here(TypeError):  # an unhashable attribute, such as a graph
        check(op, data, attributes)
        return
    check(op, data, attributes)
    if len(op.passed) >= MAX_PASSED:
        op.passed.clear()
    if all(x is None or type(x) is Tensor for x in data):  # do not store every number
        op.passed.add(key)


def _typed(value: Any) -> Any:
    """An attribute with its type, as 1, 1.0 and True are equal."""
    if type(value) is tuple:
        return tuple([_typed(item) for item in value])
    return type(value), value


def explain_failure(
    error: Exception, op: Op, data: tuple[Any, ...], attributes: dict[str, Any], fn: Call
) -> Any:
    """The result after all, or an error that describes the failed call."""
    busy = isinstance(error, RuntimeError) and "cannot enter context" in str(error)
    if busy or (isinstance(error, MemoryError) and not isinstance(error, EagerflowError)):
        # Another thread, or a signal handler of this one, is in a kernel with the same runner; or
        # memory is short, which the garbage collector may help.
        arrays = [x._array if type(x) is Tensor else x for x in data]
        try:
            return quietly(fn, *arrays, **attributes)
        except raised_here(EagerflowError) as found:
            error = found
    if isinstance(error, EagerflowError):
        raise with_context(error, op, data) from None
    for x in data:
        if type(x) is Tensor and type(x._array) is not x._kind.array_type:
            x._array.refuse(op.name)
    check(op, data, attributes)
    raise with_context(foreign_error(error), op, data) from error


def foreign_error(error: Exception) -> EagerflowError:
    """An error of Python or NumPy about bad arguments, as an error of ours."""
    for cause, ours in (
        (IndexError, IndexRangeError),
        (OverflowError, DTypeError),
        (TypeError, DTypeError),
        (ValueError, ShapeError),
    ):
        if isinstance(error, cause):
            return ours(f"{error}")
    return EagerflowError(f"{error}")


def with_context(error: EagerflowError, op: Op, data: tuple[Any, ...]) -> EagerflowError:
    """``error`` with the op's name and a list of the arguments received."""
    error.op = error.op or op.name
    if not error.received:
        error.received = ", ".join(
            f"{op.argument(i)} {summary(x)}" for i, x in enumerate(data) if x is not None
        )
    return error
