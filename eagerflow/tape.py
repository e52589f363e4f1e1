"""GradientTape: records op calls on watched values and walks them backwards.

The reverse loop is here once, for every op: it multiplies by partial derivatives or
calls the op's vjp rules, sums over axes that were broadcast, and accumulates. Rules are
written with public ops, so a tape around a tape gives higher derivatives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from eagerflow import batching, provenance, tree
from eagerflow.backends.base import LARGE
from eagerflow.convert import as_tensor
from eagerflow.dispatch import first_results, from_here, record, recorded_for
from eagerflow.display import summary
from eagerflow.errors import GradientError, ShapeError, printable
from eagerflow.handlers import raised_here
from eagerflow.op import Op, custom_op
from eagerflow.ops.creation.filled import eye, ones, ones_like, zeros, zeros_like
from eagerflow.ops.elementwise.arithmetic import multiply, negative
from eagerflow.ops.elementwise.complexes import conj
from eagerflow.ops.shapes.reshaping import broadcast_to
from eagerflow.products import Products, of_many
from eagerflow.pulls import FUNCTION, KERNEL, OPPOSITE, PLAIN, SAME, VALUE, WATCHED, WHOLE, rules_of
from eagerflow.recorder import (
    ATTRIBUTES,
    CODE,
    FIRST_KEY,
    FIRST_VALUE,
    INSTRUCTION,
    OP,
    OUT,
    RESULT,
    Append,
    Recorder,
    below,
    next_key,
    recorder_state,
    with_recorder,
)
from eagerflow.scopes import scope
from eagerflow.sources import check_target, sources_in
from eagerflow.spec import known_spec
from eagerflow.tensor import Tensor
from eagerflow.variable import Variable

_claims: dict[int, tuple[Tensor, int]] = {}  # keys about to be assigned, by the tensor's id


class GradientTape(Recorder):
    """Records computations from watched values, to give gradients afterwards.

    Trainable Variables are watched when they are read, unless
    ``watch_accessed_variables=False``; tensors are watched by ``watch``. A tape gives one
    gradient and then releases its records; ``persistent=True`` keeps them. Tapes nest;
    each thread has its own.

    >>> x = ef.tensor(3.0)
    >>> with ef.GradientTape() as tape:
    ...     tape.watch(x)
    ...     y = x * x
    >>> tape.gradient(y, x)
    Tensor(6., float32, cpu:0)
    """

    derives = True

    def __init__(self, persistent: bool = False, watch_accessed_variables: bool = True) -> None:
        self.persistent = persistent
        self._watch_variables = watch_accessed_variables
        self._entries: list[Any] = []
        self._watched: dict[int, Tensor] = {}
        self._reads: dict[int, tuple[Variable, set[int]]] = {}
        self._left: list[Any] = []
        self._used = False

    # Recording ---------------------------------------------------------------------------

    def opened(self) -> None:
        """Let the hot path append by itself if no other recorder needs to see the calls."""
        if self.outer is None:
            self.append = self._entries.append
        elif self.outer.append is not None:
            self.append = _to_both(self.outer.append, self._entries.append)

    def closed(self) -> None:
        self.append = None
        self.outer = None

    def call(self, op: Op, args: tuple[Any, ...], attributes: dict[str, Any]) -> Any:
        taken = recorded_for(op, args)
        out = below(self.outer, taken, args, attributes)
        record(self._entries.append, taken, args, attributes, out)
        return out if taken is op else first_results(op, out)

    def read(self, variable: Any) -> Tensor:
        value: Tensor = super().read(variable)
        self.saw(variable, value)
        return value

    def saw(self, variable: Variable, value: Tensor) -> None:
        """Watch ``value`` as the value of ``variable`` when it was read."""
        if (variable.trainable and self._watch_variables) or id(variable) in self._reads:
            self._note(variable, value)

    def of_custom(self) -> Recorder | None:
        # A tape for one gradient, which does not record that gradient, only needs the rule.
        return self if self.persistent else self.outer

    def customized(
        self, name: str, args: tuple[Any, ...], results: tuple[Any, ...], rule: Any
    ) -> Any:
        outs = super().customized(name, args, results, rule)
        self.record_custom(name, args, outs, rule)
        return outs

    def record_custom(
        self, name: str, args: tuple[Any, ...], outs: tuple[Any, ...], rule: Callable[..., Any]
    ) -> None:
        """Record ``outs``, new Tensors, with the rule of their gradient by ``args``."""

        def vjp(g: Any, *_: Any) -> Any:
            return rule(g)

        vjp.kept = getattr(rule, "kept", ())  # type: ignore[attr-defined]
        vjp.takes_none = getattr(rule, "takes_none", False)  # type: ignore[attr-defined]
        vjp.function = getattr(rule, "function", None)  # type: ignore[attr-defined]
        record(self._entries.append, custom_op(name, vjp), args, {}, outs)

    def leave(self, tensor: Any, how: str) -> None:
        self._left.append((tensor._key, how, *provenance.caller()))
        super().leave(tensor, how)

    def watch(self, values: Any) -> None:
        """Watch tensors or Variables (one, or a nest) from now on.

        Raises GradientError for values without a gradient: integers, bools, non-tensors.

        >>> x = ef.tensor(2.0)
        >>> with ef.GradientTape() as tape:
        ...     tape.watch(x)
        ...     y = ef.exp(x)
        >>> float(tape.gradient(y, x)) == float(y)
        True
        """
        for value in sources_in(values)[0]:
            if isinstance(value, Variable):
                self._reads.setdefault(id(value), (value, set()))
                self._note(value, value.current)
            else:
                self._watched[_keyed(value)] = value

    def _note(self, variable: Variable, value: Tensor) -> None:
        self._reads.setdefault(id(variable), (variable, set()))[1].add(_keyed(value))

    def watched_variables(self) -> tuple[Variable, ...]:
        """The Variables watched so far, in the order in which they were first read."""
        return tuple(variable for variable, _ in self._reads.values())

    def reset(self) -> None:
        """Drop all records."""
        self._entries.clear()
        self._watched.clear()
        self._reads.clear()
        self._left.clear()

    # Gradients ---------------------------------------------------------------------------

    def gradient(
        self,
        target: Any,
        sources: Any,
        output_gradients: Any = None,
        unconnected: str = "raise",
    ) -> Any:
        """Gradient of the sum of ``target`` with respect to ``sources``, in their nest.

        ``target`` is a tensor or a nest of tensors; ``output_gradients`` has its structure and
        weights its elements (default: ones). ``unconnected`` is the treatment of a source
        that the target does not depend on: ``"raise"``, ``"none"`` or ``"zero"``. For complex
        values the result is the conjugate of the derivative, as in TensorFlow: the direction
        of steepest ascent. Raises GradientError with the reason if there is no gradient.

        >>> w = ef.Variable([1.0, 2.0])
        >>> with ef.GradientTape() as tape:
        ...     loss = (w * w).sum()
        >>> tape.gradient(loss, {"w": w})
        {'w': Tensor([2., 4.], float32, cpu:0)}
        """
        return self._gradient(target, sources, output_gradients, unconnected, self.persistent)

    def _gradient(self, *given: Any) -> Any:
        """The gradient; in a scope of its own if its ops are recorded."""
        if recorder_state()[1] is None:
            return self._walk_back(*given)
        with scope("gradient"):
            return self._walk_back(*given)

    def _walk_back(
        self, target: Any, sources: Any, output_gradients: Any, unconnected: str, keep: bool
    ) -> Any:
        if unconnected not in ("raise", "none", "zero"):
            raise GradientError(
                f"{unconnected!r} is not a choice",
                argument="unconnected",
                expected="'raise', 'none' or 'zero'",
            )
        if self._used:
            raise GradientError(
                "this tape has computed its gradient, and its record is gone",
                hint="ef.GradientTape(persistent=True) for several gradients",
            )
        leaves, structure = sources_in(sources)
        start = self._start(target, output_gradients)
        if unconnected == "raise":
            for i, source in enumerate(leaves):
                if not start or not self._keys_of(source):
                    why = self.why(target, source)
                    raise provenance.unconnected(source, why, structure, i)
        is_later = bool(start) and provenance.made_later(self._entries, start)
        ends: list[Any] = []
        found = self._collect(start, leaves, ends, keep)
        for i, (source, g) in enumerate(zip(leaves, found, strict=True)):
            if g is None and unconnected == "raise":
                keys = self._keys_of(source)
                why = provenance.broken_path(ends, self._left, keys, target, is_later)
                raise provenance.unconnected(source, why, structure, i)
            if g is None and unconnected == "zero":
                found[i] = zeros_like(source)
        if not keep:
            self.reset()
        return tree.unflatten(structure, found)

    def _start(self, target: Any, output_gradients: Any) -> dict[int, Tensor]:
        """The gradient of each target with respect to itself, by key."""
        if type(target) is Tensor and output_gradients is None:
            check_target(target)
            return {} if target._key is None else {target._key: _ones(target)}
        targets, structure = tree.flatten(target)
        weights: list[Any] = [None] * len(targets)
        if output_gradients is not None:
            try:
                weights = tree.flatten_up_to(structure, output_gradients)
            except raised_here(ValueError) as error:
                raise GradientError(
                    f"it has another structure than the target: {error}",
                    argument="output_gradients",
                ) from None
        start: dict[int, Tensor] = {}
        for value, weight in zip(targets, weights, strict=True):
            tensor = value.value if isinstance(value, Variable) else value
            check_target(tensor)
            g = _ones(tensor) if weight is None else as_tensor(weight, tensor.dtype)
            if g.shape != tensor.shape:
                raise ShapeError(
                    "a gradient has the shape of its target",
                    argument="output_gradients",
                    received=summary(g),
                    expected=summary(tensor),
                )
            if tensor._key is not None:
                start[tensor._key] = _total([start.get(tensor._key), g])
        return start

    def _collect(
        self, start: dict[int, Tensor], sources: Sequence[Any], ends: list[Any], keep: bool
    ) -> list[Tensor | None]:
        keys = [self._keys_of(source) for source in sources]
        wanted: set[int] = set().union(*keys)
        # Without a watched source, the entries belong to values watched by other tapes.
        watched = (self._watched.keys(), *[read for _, read in self._reads.values()])
        all_wanted = bool(wanted) and all(keys <= wanted for keys in watched)
        reached = None if all_wanted else _reached(self._entries, wanted)
        entries, is_open = self._entries, False
        if keep:
            entries = entries[:]
        else:
            # The walk consumes the entries, so that memory is freed meanwhile, and a
            # one-shot tape that is still open does not record its own gradient.
            self._entries, self._used = [], True
            is_open = recorder_state()[1] is self
        given = entries, start, wanted, reached, ends
        if recorder_state()[1] is None:
            grads = pull_back(*given)
        elif is_open:
            grads = with_recorder(self.outer, from_here, pull_back, *given)
        else:
            grads = from_here(pull_back, *given)
        return [_total([grads[k] for k in sorted(own) if k in grads]) for own in keys]

    def _keys_of(self, source: Any) -> set[int]:
        if isinstance(source, Variable):
            return self._reads.get(id(source), (source, set()))[1]
        return set() if source._key is None else {source._key}

    def jacobian(self, target: Any, sources: Any, unconnected: str = "raise") -> Any:
        """Derivative of each element of ``target``, in the nest of ``sources``.

        ``target`` is a tensor; each result has the shape ``target.shape + source.shape``.
        Raises GradientError as ``gradient`` does.

        >>> x = ef.tensor([1.0, 2.0])
        >>> with ef.GradientTape(persistent=True) as tape:
        ...     tape.watch(x)
        ...     y = x * x
        >>> tape.jacobian(y, x)
        Tensor([[2., 0.],
                [0., 4.]], shape=(2, 2), float32, cpu:0)
        """
        units = eye(target.size, dtype=target.dtype, device=str(target.device))
        rows = batching.vmap(
            lambda g: self._gradient(target, sources, g.reshape(target.shape), unconnected, True)
        )(units)
        if not self.persistent:
            self._used = True
            self.reset()
        return tree.map_leaves(
            lambda row: row if row is None else row.reshape((*target.shape, *row.shape[1:])), rows
        )

    # Explanations --------------------------------------------------------------------------

    def why(self, target: Any, source: Any) -> str:
        """How ``target`` depends on ``source``, or where the path between them breaks.

        >>> x = ef.tensor([1.0, 2.0])
        >>> with ef.GradientTape(persistent=True) as tape:
        ...     tape.watch(x)
        ...     y = ef.argmax(x)
        >>> print(tape.why(y, x))
        the path breaks at argmax (...): the result is an index, ...
        """
        return provenance.why(self._entries, self._left, target, source, self._keys_of(source))

    def memory(self) -> provenance.MemoryReport:
        """Bytes that the tape keeps for the gradient, by the user's source line.

        >>> x = ef.tensor([1.0, 2.0])
        >>> with ef.GradientTape() as tape:
        ...     tape.watch(x)
        ...     y = ef.sin(x) + 2.0
        >>> tape.memory().total
        8
        """
        return provenance.MemoryReport(self._entries)

    def __repr__(self) -> str:
        status = "used up" if self._used else "recording" if self._before else "closed"
        return (
            f"<GradientTape {status}: {len(self._entries)} ops, {len(self._watched)} tensors and "
            f"{len(self._reads)} variables watched>"
        )


def _keyed(tensor: Tensor) -> int:
    """The key of ``tensor``, assigned now if it has none."""
    if tensor._key is None:
        # Another thread's tape may watch the same tensor: the first claim holds for both.
        _, key = _claims.setdefault(id(tensor), (tensor, next_key()))
        if tensor._key is None:
            tensor._key = key
        _claims.pop(id(tensor), None)
    return tensor._key


MIN_REPEATED_ELEMENTS = 1 << 12
"""Elements from which a single 1 is broadcast in place of an array of ones."""


def _ones(tensor: Tensor) -> Tensor:
    """Ones like a tensor, which rules read and never change."""
    array = tensor._array
    many = array.__class__ is np.ndarray and array.size >= MIN_REPEATED_ELEMENTS
    if many and recorder_state()[1] is None:
        one = ones((), tensor.dtype, str(tensor.device))
        return broadcast_to(one, array.shape)  # type: ignore[no-any-return]
    return ones_like(tensor)  # type: ignore[no-any-return]


def _reached(entries: Iterable[Any], keys: set[int]) -> set[int]:
    """``keys`` and the keys of everything computed from them."""
    reached = set(keys)
    for entry in entries:
        if not reached.isdisjoint(entry[FIRST_KEY::2]):
            out = entry[OUT]
            reached.update(out) if type(out) is tuple else reached.add(out)
    return reached


def _to_both(outer: Append, inner: Append) -> Append:
    """A function that appends an entry for two recorders, one inside the other."""

    def append(entry: Any) -> None:
        outer(entry)
        inner(entry)

    return append


# The reverse loop ---------------------------------------------------------------------------


def pull_back(
    entries: list[Any],
    grads: dict[int, Any],
    keep: set[int],
    reached: set[int] | None,
    ends: list[Any],
) -> dict[int, Any]:
    """Gradients with respect to the values with keys ``keep``, from those in ``grads``.

    ``entries`` is consumed from the end, so that memory is freed meanwhile. ``reached``
    limits the walk to values computed from ``keep``; None means that all are. Entries
    through which no gradient passes are added to ``ends``.
    """
    recorder = recorder_state()[1]
    lost: set[int] = set()  # values behind a link without a gradient, such as a cast
    product, mode = multiply, PLAIN if recorder is None else WATCHED
    products: Products | None = None
    while entries or not (products is None or products.hold()):
        entry = entries.pop()
        out = entry[OUT]
        if out.__class__ is tuple:
            g: Any = _gather(grads, entry, keep)
        else:
            g = grads.get(out) if out in keep else grads.pop(out, None)
        if g is None:
            if lost and not lost.isdisjoint(out if out.__class__ is tuple else (out,)):
                _follow_lost(entry, lost, ends)
            continue
        op = entry[OP]
        if recorder is not None:
            recorder.follow((entry[CODE], entry[INSTRUCTION]))
        if products is None and (singular := op.singular) and _is_singular(singular, entry):
            # From here on a gradient may be 0 where a derivative is infinite, or the
            # reverse: the other branch of a where, the end of a clip, sqrt at 0.
            products = Products(entries, (grads, ends, lost), recorder is None)
        if products is not None:
            if not products.fit(entry, g):
                continue
            product, mode = products.times, products.mode
        try:
            rules = op.rules[mode]
            if rules is None:
                rules = rules_of(op, mode)
            if rules is not False:
                _multiply_partials(grads, entry, g, product, reached, rules)
            elif op.differentiable:
                _apply_rules(grads, entry, g, reached, lost)
            else:
                _follow_lost(entry, lost, ends)
        except raised_here(Exception) as error:
            where = f"while computing the gradient of {op.name}, {provenance.place(entry)}"
            error.add_note(printable(where))
            raise
    if recorder is not None:
        recorder.follow(None)
    return grads


def _is_singular(fact: Any, entry: Any) -> bool:
    """Whether a derivative may be infinite or 0 by the op's fact, for the arguments of a call."""
    return fact is True or fact(*entry[FIRST_VALUE::2])


def _gather(grads: dict[int, Any], entry: Any, keep: set[int]) -> tuple[Any, ...] | None:
    """Gradients of all results of an op, zeros for those that the target does not depend on."""
    found = [grads.get(k) if k in keep else grads.pop(k, None) for k in entry[OUT]]
    if all(g is None for g in found):
        return None
    if getattr(entry[OP].vjp, "takes_none", False):
        return tuple(found)
    return tuple(
        zeros(y.shape, y.dtype, device=str(y.device)) if g is None else g
        for g, y in zip(found, entry[RESULT], strict=True)
    )


def _multiply_partials(
    grads: dict[int, Any], entry: Any, g: Any, product: Callable[..., Any], reached: Any, rules: Any
) -> None:
    """Add the gradient of each watched argument of an element-wise op: g times its partial."""
    for what, rule, at in rules:
        key = entry[at]
        if key is None or (reached is not None and key not in reached):
            continue
        if what is SAME:
            part = g
        elif what is VALUE:
            p, a = entry[rule], g._array
            times = product if a.__class__ is not np.ndarray or a.size < LARGE else of_many(product)
            part = times(g, _conjugate(p) if g._kind.is_complex else p)
        elif what is KERNEL:
            part = rule.of(g, entry)
            if part is None:
                part = _product(entry, g, product, rule.partial)
        elif what is WHOLE:
            value = conj(entry[rule[1]]) if g._kind.is_complex else entry[rule[1]]
            part = rule[0](value, g, **(entry[ATTRIBUTES] or {}))
        elif what is FUNCTION:
            part = _product(entry, g, product, rule)
        else:
            part = negative(g) if what is OPPOSITE else multiply(g, rule)
        x = entry[at + 1]
        if x is not None:  # otherwise the only argument, which has the shape of the result
            shape = (
                x if x.__class__ is tuple else x._array.shape if x.__class__ is Tensor else x.shape
            )
            if part._array.shape != shape:
                part = reduce_to(part, shape)
        known = grads.get(key)
        grads[key] = part if known is None else known + part


def _product(entry: Any, g: Any, product: Callable[..., Any], partial: Callable[..., Any]) -> Any:
    """A gradient times a partial derivative, op by op."""
    attributes, y, args = entry[ATTRIBUTES], entry[RESULT], _arguments(entry, g)
    p = partial(y, *args, **attributes) if attributes else partial(y, *args)
    return product(g, _conjugate(p) if g._kind.is_complex else p)


def _arguments(entry: Any, g: Any) -> Any:
    """The arguments of a recorded call, with a spec for each value that was not kept."""
    kept = entry[FIRST_VALUE::2]
    if entry[OP].keeps_all:
        return kept
    return [known_spec(x, g.dtype, g.device) if x.__class__ is tuple else x for x in kept]


def _conjugate(p: Any) -> Any:
    # A Python number stays one: it is exact, and as a tensor would be complex64.
    return conj(p) if type(p) is Tensor else p.conjugate()


def _follow_lost(entry: Any, lost: set[int], ends: list[Any]) -> None:
    """Continue without a gradient, to find the op that ended it for the error message."""
    if not entry[OP].differentiable:
        ends.append(entry)
    else:
        lost.update(key for key in entry[FIRST_KEY::2] if key is not None)


def _apply_rules(grads: dict[int, Any], entry: Any, g: Any, reached: Any, lost: set[int]) -> None:
    """Add the gradient of each watched argument of an op that has vjp rules."""
    vjp, y, attributes = entry[OP].vjp, entry[RESULT], entry[ATTRIBUTES]
    keys, args = entry[FIRST_KEY::2], _arguments(entry, g)
    parts = vjp(g, y, *args, **attributes) if callable(vjp) else vjp
    for key, part in zip(keys, parts, strict=True):
        if key is None or part is None or (reached is not None and key not in reached):
            continue
        if parts is vjp:
            part = part(g, y, *args, **attributes)
            if part is None:
                lost.add(key)
                continue
        elif callable(part):
            part = part()
        known = grads.get(key)
        grads[key] = part if known is None else known + part


def _total(parts: list[Any]) -> Any:
    total = None
    for part in parts:
        total = part if total is None else total + part
    return total


def reduce_to(g: Any, shape: tuple[Any, ...]) -> Any:
    """``g`` summed over the axes along which ``shape`` was broadcast to ``g.shape``."""
    extra = g.ndim - len(shape)
    axes = tuple(range(extra)) + tuple(
        i + extra
        for i, size in enumerate(shape)
        if isinstance(size, int) and size == 1 and g.shape[i + extra] != 1
    )
    total = g.sum(axis=axes) if axes else g
    return total if total.shape == shape else total.reshape(shape)
