"""An Op: a primitive operation with all of its facts, and the registry of them all.

Every fact is given or is ``Missing("reason")``; the registry rejects an incomplete Op.
The readers of facts, as in DESIGN: eager and plans read ``kernel``, ``direct``
and ``dtypes``; capture reads ``infer``; the tape reads ``partials`` or ``vjp`` and
``saves``; forward mode reads ``jvp``; vmap reads ``batch``; partition reads ``split``;
placement reads ``cost``; regions read ``scalar``; the contract tests read all of them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from operator import index
from typing import Any, ClassVar, NamedTuple

import numpy as np

from eagerflow.devices import Device
from eagerflow.dims import Dim
from eagerflow.dtypes import DType, as_dtype
from eagerflow.errors import CaptureError, DTypeError, EagerflowError, KeywordError, short_repr
from eagerflow.handlers import raised_here
from eagerflow.records import Frozen, Record, fresh
from eagerflow.spec import TensorSpec, known_spec

Rule = Callable[..., Any]


class Missing(Frozen):
    """The reason why an op does not have a fact."""

    reason: str


class Onnx(Frozen):
    """The equivalent ONNX operator.

    ``attributes`` has ONNX's names of attributes with other names there. ``rule``, as that of an
    op, writes the operator if other arguments differ.
    """

    name: str
    attributes: Mapping[str, str] = fresh(default_factory=dict)
    rule: Rule | None = None


class Cost(NamedTuple):
    """Floating-point operations of one call, and bytes it reads and writes."""

    flops: Any
    bytes: Any


class Split(NamedTuple):
    """One way to divide the work: each input along its axis (None: whole), results combined.

    ``combine`` is ``"concat"`` along ``axis`` of the result, or the name of the op that
    joins partial results (``"add"``, ``"maximum"``, ``"logical_and"`` ...).
    """

    inputs: tuple[int | None, ...]
    axis: int | None
    combine: str = "concat"


class Into(NamedTuple):
    """Functions that write results into given memory, which is in row-major order.

    ``call(*arrays, out)`` does it in Python. ``native(*arrays, *outs)`` returns the machine
    code call for arrays like these, in a segment of a plan, or None. If ``call`` is None,
    that is a ``StagedCall`` on exactly these arrays. ``types`` are NumPy's characters of the
    supported dtypes. With ``like_first`` the axes of the first result may have the memory order
    of those of the first argument.
    """

    call: Callable[..., Any] | None
    native: Callable[..., Any]
    types: str = "fd"
    like_first: bool = False


_PLAIN: set[type] = {type(None), int, float, bool, str, complex, Dim}

MAX_DEPTH = 64  # of nested lists, as in NumPy

REQUIRED: Any = object()
"""The default of an attribute without a default."""


def plain(cls: type) -> type:
    """Let attributes hold objects of a class unchanged; such objects are immutable."""
    _PLAIN.add(cls)
    return cls


def freeze(value: Any, depth: int = 0) -> Any:
    """An attribute in recorded form: lists as tuples, NumPy numbers as Python numbers."""
    cls = type(value)
    if cls in _PLAIN:
        return value
    if isinstance(value, (tuple, list)) and depth < MAX_DEPTH:  # torch.Size is a tuple too
        return tuple(freeze(item, depth + 1) for item in value)
    if isinstance(value, np.dtype | type):
        return as_dtype(value)
    if cls is Device:
        return str(value)
    if cls is slice:
        return slice(*(freeze(part, depth) for part in (value.start, value.stop, value.step)))
    if value is Ellipsis:
        return value
    if isinstance(value, bool | np.bool_):
        return bool(value)
    if isinstance(value, np.floating | float):
        return float(value)
    try:
        return index(value)  # NumPy's integers, and 0-d integer tensors
    except CaptureError:
        raise  # the error of a value that is not known while tracing
    except raised_here(TypeError):
        pass
    raise DTypeError(
        f"a {cls.__name__} cannot be an attribute" + (" so deep" if depth >= MAX_DEPTH else ""),
        expected="numbers, strings, dtypes, None, slices or tuples of these",
        hint="x.item() for the one number in x; no gradient passes"
        if hasattr(value, "item")
        else None,
    )


class Op(Record):
    """A primitive operation with all of its facts.

    ``kernel(xp, *arrays, **attributes)`` computes with the array namespace ``xp``.
    ``ufunc`` names an equivalent function of the namespace, which is called directly.
    ``direct`` is called as ``direct(xp)`` and returns a function of the first array and of the
    attributes given by the user, for the hot path. ``partials`` (one per argument: a number, or a
    function of result and arguments) or ``vjp`` (one rule per argument, or one for all, which
    may return a function in place of a rarely needed gradient) give the gradient; rules get the
    values named in ``saves`` ("y" is the result) and a TensorSpec in place of each other value.
    If ``on_tensors`` is true, the kernel is made of ops: it takes and returns Tensors, unconverted,
    and None in place of a namespace.

    Effects: a result may share memory with an argument according to ``aliases``: False, True for
    those of the same dtype and for parts of complex numbers, or a function of the specs of the
    argument and the result (``may_share``). With ``views`` "all" it returns all
    elements of the first argument in their order, so that nothing is computed, with
    "some" a part of them. An op that ``fills`` returns one number everywhere, for any arguments.
    One that ``fails`` may raise errors for values of its arguments, not only for shapes and dtypes.
    Results of an op that ``keeps_order`` are in row-major order in memory if all arguments
    are. ``into(*arguments, **attributes)``, of specs, returns an ``Into``, or None. An op that
    copies its first argument with a part overwritten has ``writes(*arguments, **attributes)``, of
    specs: it returns a function of the arrays that gives the starts of runs of elements in the
    flattened copy, and a row of values for each, or raises as the kernel does; or None. For many
    floats the ufunc of one array is machine code if it is ``compiled``. ``threaded`` says if bits
    may depend on the libraries' number of threads: a bool, or a function of the arguments' specs.

    ``onnx`` is the equivalent operator, or a rule ``(w, *inputs, **attributes)`` that
    writes operators by ``w`` (``onnx/writing/writer.py``), which also has the ``results``;
    without either, ``"body"``, an op is exported as the ops of its body, also if
    its operator is unavailable. ``Missing`` raises an error.

    ``since`` is the ``version`` that added each attribute: graphs saved before have their
    defaults. All versions from the first of these on have no other differences. ``also`` has
    keywords of the Array API standard, and their defaults, that calls accept beside attributes:
    ``copy``, which has no effect, and ``device``, for the result.

    ``recorded`` is the op recorded by a tape in its place: an op of the same arguments, whose first
    results are this one's, and whose others are kept for the gradient.
    """

    name: str
    family: str
    kernel: Rule
    doc: str
    data: tuple[str, ...]
    attributes: dict[str, Any]
    variadic: bool
    dtypes: tuple[frozenset[DType], ...]
    together: tuple[int, ...]
    infer: Rule
    partials: tuple[Any, ...] | Missing
    vjp: tuple[Any, ...] | Rule | Missing
    jvp: Rule | str | Missing
    saves: frozenset[str]
    batch: Rule | Missing
    split: Rule | Missing
    cost: Rule
    onnx: Onnx | Rule | str | Missing
    scalar: Rule | str | Missing
    ufunc: str | None = None
    direct: Rule | None = None
    arrange: Rule | None = None
    overrides: dict[str, Rule] = fresh(default_factory=dict)
    trusted: bool = False
    on_tensors: bool = False
    singular: bool | Rule = False
    aliases: bool | Rule = True
    views: str = ""
    fills: bool = False
    fails: bool = False
    keeps_order: bool = False
    into: Rule | None = None
    writes: Rule | None = None
    threaded: bool | Rule = False
    recorded: Op | None = None
    optional: frozenset[int] = frozenset()
    also: Mapping[str, Any] = fresh(default_factory=dict)
    outputs: int = 1
    compiled: bool = False
    ulp: int = 4
    version: int = 1
    shorter: tuple[int, ...] = ()  # older versions, with only the first of the current results
    since: dict[str, int] = fresh(default_factory=dict)  # the versions that added attributes
    call: Any = None
    # Caches of calls: hot paths by kind, kernels by kind, valid arguments.
    table: dict[Any, Any] = fresh(default_factory=dict)
    kernels: dict[Any, Rule] = fresh(default_factory=dict)
    many: dict[Any, Rule] = fresh(default_factory=dict)  # functions for many elements, by kind
    fitting: set[Any] = fresh(default_factory=set)  # kinds of arguments that need no conversion
    # Caches that copies do not share: valid shapes, kinds and attributes; all attributes of
    # calls that give some of them; rules of the tape.
    passed: set[Any] = fresh(default_factory=set, init=False)
    bound: dict[Any, dict[str, Any]] = fresh(default_factory=dict, init=False)
    rules: list[Any] = fresh(default_factory=lambda: [None] * 4, init=False)
    # Derived facts that each call reads.
    kept: tuple[bool, ...] = ()
    keeps_all: bool = False  # no entry of a tape holds only the shape of an argument
    required: tuple[str, ...] = ()
    uniform: bool = True
    differentiable: bool = False

    translate: ClassVar[Rule]  # interprets arguments of other libraries; see ops/keywords.py

    def __init__(self, *facts: Any, **named: Any) -> None:
        super().__init__(*facts, **named)
        self.kept = tuple(name in self.saves for name in self.data)
        single = self.family == "elementwise" and len(self.data) == 1
        self.keeps_all = single or all(self.kept)
        self.uniform = len(set(self.dtypes)) == 1 and len(self.together) == len(self.data)
        self.required = tuple(n for n, value in self.attributes.items() if value is REQUIRED)
        self.differentiable = not (
            isinstance(self.partials, Missing) and isinstance(self.vjp, Missing)
        )

    @property
    def in_place(self) -> bool:
        """Whether NumPy can write the result over an argument of its shape and dtype."""
        return self.family == "elementwise"

    def __repr__(self) -> str:
        return f"<Op {self.name}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return registered, (self.name,)

    def bind(self, args: tuple[Any, ...], named: dict[str, Any]) -> tuple[tuple[Any, ...], Any]:
        """Data arguments, and all attributes in recorded form, of a user's call."""
        if self.arrange is not None:
            args, named = self.arrange(*args, **named)
        count = len(args) if self.variadic else len(self.data)
        data = args[:count]
        attributes = self.attributes.copy()
        if len(args) > count:
            if len(args) - count > len(attributes):
                raise KeywordError(
                    f"{count + len(attributes)} arguments at most, {len(args)} given",
                    op=self.name,
                    expected=self._usage(),
                )
            for name, value in zip(self.attributes, args[count:], strict=False):
                attributes[name] = self._freeze(name, value)
        given = len(data)
        for name, value in named.items():
            if name not in attributes and name not in self.data:
                meant = Op.translate(self.name, name, value, (*self.data, *self.attributes))
                if meant is None:
                    continue
                name, value = meant
            if name in attributes:
                attributes[name] = self._freeze(name, value)
            elif (at := self.data.index(name)) >= given:
                data = (*data, *(None,) * (at + 1 - len(data)))
                data = (*data[:at], value, *data[at + 1 :])
            else:
                raise KeywordError("this argument was given twice", op=self.name, argument=name)
        for name in self.required:
            if attributes[name] is REQUIRED:
                raise KeywordError(
                    "this argument is missing", op=self.name, argument=name, expected=self._usage()
                )
        return self._complete(data), attributes

    def _freeze(self, name: str, value: Any) -> Any:
        if type(self.attributes[name]) is bool and type(value) is not bool:
            return self._switch(name, value)
        if type(value) in _PLAIN and name != "dtype":
            return value
        try:
            return as_dtype(value) if name == "dtype" and value is not None else freeze(value)
        except EagerflowError as error:
            error.op, error.argument = self.name, name
            raise

    def _switch(self, name: str, value: Any) -> bool:
        if isinstance(value, np.bool_ | int | np.integer) and value in (0, 1):
            return bool(value)
        raise DTypeError(
            f"{short_repr(value)} is no bool", op=self.name, argument=name, expected="True or False"
        )

    def _complete(self, data: tuple[Any, ...]) -> tuple[Any, ...]:
        if len(data) < len(self.data) and not self.variadic:
            data += (None,) * (len(self.data) - len(data))
        for position, value in enumerate(data):
            if value is None and position not in self.optional:
                raise DTypeError(
                    "None is not a tensor, an array or a number",
                    op=self.name,
                    argument=self.argument(position),
                    expected=self._usage(),
                )
        return data

    def _usage(self) -> str:
        return f"{self.name}({', '.join((*self.data, *self.attributes))})"

    def argument(self, position: int) -> str:
        """The name of a data argument."""
        if self.variadic and position >= len(self.data) - 1:
            return f"{self.data[-1]}[{position - len(self.data) + 1}]"
        return self.data[position]

    def may_share(self, given: Any, made: Any) -> bool:
        """Whether a result may share memory with an argument; both have a shape and a dtype."""
        if callable(self.aliases):
            return bool(self.aliases(given, made))
        if not self.aliases:
            return False
        if self.family == "custom":
            return True  # nothing is known about its kernel
        if self.family == "reduction" and made.size < given.size:
            return False
        if self.family == "elementwise" and made.shape != given.shape:
            return False
        return bool(made.dtype == given.dtype or given.dtype.kind == "c")

    def allowed(self, position: int) -> frozenset[DType]:
        """The dtypes that a data argument may have when the kernel is called."""
        return self.dtypes[min(position, len(self.dtypes) - 1)]


_FACTS = (
    "dtypes",
    "infer",
    "partials",
    "vjp",
    "jvp",
    "saves",
    "batch",
    "split",
    "cost",
    "onnx",
    "scalar",
)


class LateSignature(inspect.Signature):
    """A signature computed by ``find`` on demand, since computing all of them is slow."""

    def __init__(self, find: Callable[[], inspect.Signature]) -> None:
        self._find = find
        self._return_annotation = self.empty

    @property
    def parameters(self) -> Any:
        """The parameters by name."""
        return self._find().parameters

    def replace(self, **changes: Any) -> inspect.Signature:  # type: ignore[override]
        """A plain signature, such as that of a method without ``self``."""
        return self._find().replace(**changes)


def signature_of(op: Op) -> inspect.Signature:
    """The kernel's signature without the namespace; optional tensors have names for callers."""
    kernel, first = declared(op.kernel)
    own = list(inspect.signature(kernel).parameters.values())[first:]
    for i in () if op.variadic else op.optional:
        own[i] = own[i].replace(kind=inspect.Parameter.POSITIONAL_OR_KEYWORD)
    kind = inspect.Parameter.KEYWORD_ONLY
    own += [inspect.Parameter(name, kind, default=value) for name, value in op.also.items()]
    return inspect.Signature([p.replace(annotation=p.empty) for p in own])


class _Registry(Mapping[str, Op]):
    """All ops by name."""

    def __init__(self) -> None:
        self._ops: dict[str, Op] = {}
        # Loads the module of a name, or all unloaded modules; returns whether some are left.
        self.late: Callable[[str | None], bool] | None = None

    def __getitem__(self, name: str) -> Op:
        return self._ops[name] if name in self._ops else self._loaded(name)[name]

    # A Mapping's own would take the KeyError of a signal handler for that of a missing name.
    def get(self, name: Any, default: Any = None) -> Any:
        return (self._ops if name in self._ops else self._loaded(name)).get(name, default)

    def __contains__(self, name: object) -> bool:
        return self.get(name) is not None

    def __iter__(self) -> Iterator[str]:
        return iter(self._loaded())

    def __len__(self) -> int:
        return len(self._loaded())

    def _loaded(self, name: str | None = None) -> dict[str, Op]:
        late = self.late
        if late is not None and not late(name):
            self.late = None  # not before: other threads wait for the modules, as for all imports
        return self._ops

    def add(self, op: Op) -> None:
        """Register a complete op under a free name."""
        if op.name in self._ops:
            raise ValueError(f"there is an op {op.name!r} already")
        if not op.doc:
            raise ValueError(f"op {op.name!r} has no docstring")
        for fact in ("kernel", *_FACTS):
            if getattr(op, fact) is None:
                raise ValueError(f"op {op.name!r} lacks {fact!r}: give it, or Missing('why')")
        self._ops[op.name] = op


ops = _Registry()


def registered(name: str) -> Op:
    """The op of this name; copies and pickles of an Op are the Op itself."""
    return ops[name]


def register(kernel: Rule, facts: dict[str, Any]) -> Op:
    """Make and register the Op of a kernel; its signature gives arguments and attributes.

    After the namespace ``xp`` come the data arguments, up to ``/`` (``*name`` for any
    number of them; a default of None makes one optional); all later ones are attributes.
    """
    facts = dict.fromkeys(_FACTS) | facts  # missing facts are None, and then rejected
    data, attributes, optional, variadic = _signature(kernel)
    facts.setdefault("together", tuple(range(len(data))))
    op = Op(
        name=facts.pop("name", None) or kernel.__name__.strip("_"),
        kernel=kernel,
        doc=kernel.__doc__ or "",
        data=data,
        attributes=attributes,
        variadic=variadic,
        optional=optional,
        **facts,
    )
    ops.add(op)
    return op


def declared(kernel: Any) -> tuple[Any, int]:
    """The function with the parameters of an op, and the index of the first: 1 behind ``xp``."""
    formula = getattr(kernel, "formula", None)
    return (kernel, 1) if formula is None else (formula, 0)


def _signature(
    kernel: Rule,
) -> tuple[tuple[str, ...], dict[str, Any], frozenset[int], bool]:
    # inspect.signature returns the same, ten times slower, and import time matters.
    kernel, first = declared(kernel)
    code = kernel.__code__
    names = code.co_varnames
    total = code.co_argcount
    variadic = bool(code.co_flags & inspect.CO_VARARGS)
    data = names[first : code.co_posonlyargcount or first]
    keyword_only = names[total : total + code.co_kwonlyargcount]
    values = kernel.__defaults__ or ()
    defaults = dict(zip(names[total - len(values) : total], values, strict=True))
    defaults |= kernel.__kwdefaults__ or {}
    optional = frozenset(i for i, name in enumerate(data) if name in defaults)
    if variadic:
        data = (*data, names[total + code.co_kwonlyargcount])
    attributes = {
        name: defaults.get(name, REQUIRED)
        for name in names[max(code.co_posonlyargcount, first) : total] + keyword_only
    }
    return data, attributes, optional, variadic


def custom_op(name: str, vjp: Rule) -> Op:
    """An op for one recorded call of a user's function, with only a backward rule."""
    none = Missing("a function of the user's")
    return Op(
        name=name,
        family="custom",
        kernel=vjp,
        doc=name,
        data=("args",),
        attributes={},
        variadic=True,
        dtypes=(frozenset(),),
        together=(),
        infer=vjp,
        partials=none,
        vjp=vjp,
        jvp=none,
        saves=frozenset(),
        batch=none,
        split=none,
        cost=vjp,
        onnx=none,
        scalar=none,
        outputs=2,
    )


def spec_of(value: Any) -> TensorSpec:
    """The spec of a tensor; its shape and dtype need no check."""
    return known_spec(value.shape, value.dtype, value.device)
