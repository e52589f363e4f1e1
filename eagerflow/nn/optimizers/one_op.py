"""Optimizers with one op per step: variables are updated together, in one call."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from eagerflow.nn.optimizers.base import Optimizer, Values
from eagerflow.nn.optimizers.gradients import Pair
from eagerflow.nn.optimizers.joint_steps import joint_step
from eagerflow.op import Op
from eagerflow.ops.family import op_of
from eagerflow.ops.nn.update_family import joined_update
from eagerflow.recorder import recording
from eagerflow.tensor import Tensor, new_tensor
from eagerflow.variable import Variable

__all__ = ["OneOpOptimizer"]

MAX_SMALL_ELEMENTS = 1 << 14  # of a variable that is updated together with others
MIN_SMALL_VARIABLES = 6  # from which that pays


@cache
def _names(step_op: Callable[..., Any]) -> tuple[list[str], list[str]]:
    """The operands of an op, and its attributes except weight decay, which depends on variables."""
    op = op_of(step_op)
    return list(op.data), [name for name in op.attributes if name != "weight_decay"]


class OneOpOptimizer(Optimizer):
    """Base of optimizers with the step ``step_op``, an op of the family ``update``.

    The op takes variable, gradient, state, and those of ``numbers`` in its signature; its
    attributes are the optimizer's of the same names, and the ``weight_decay`` of the variable. If
    it is None, ``update`` computes the step, also if a subclass overrides it.
    """

    step_op: Callable[..., Any] | None

    def numbers(self, rate: Tensor, step: Tensor) -> dict[str, Tensor]:
        """Values shared by all variables in a step, by the op's names."""
        return {"learning_rate": rate, "step": step}

    def _arguments(self, rate: Tensor, step: Tensor) -> tuple[list[Tensor], dict[str, Any]]:
        """The op's numbers, and its attributes but for the weight decay."""
        assert self.step_op is not None
        data, attributes = _names(self.step_op)
        numbers = self.numbers(rate, step)
        given = [numbers[name] for name in data if name in numbers]
        return given, {name: getattr(self, name) for name in attributes}

    def update(self, value: Any, gradient: Any, state: list[Tensor], rate: Any, step: Any) -> Any:
        numbers, options = self._arguments(rate, step)
        return self.step_op(value, gradient, *state, *numbers, **options)  # type: ignore[misc]

    def _changed(self, pairs: list[Pair], rate: Tensor, step: Tensor) -> Values:
        op, own = self.step_op, type(self).update.__module__
        if op is None or not own.startswith("eagerflow."):  # a subclass may have its own
            return super()._changed(pairs, rate, step)
        numbers, options = self._arguments(rate, step)
        found: Values = {}
        for decay, members in self._by_decay(pairs).items():
            options["weight_decay"] = decay
            # Steps are recorded one by one.
            if len(members) > 1 and not recording():
                made = self._at_once(op_of(op), members, numbers, options)
                if made is not None:
                    found |= made
                    continue
            small = [pair for pair in members if pair[1].size < MAX_SMALL_ELEMENTS]
            if len(small) >= MIN_SMALL_VARIABLES and not recording():
                found |= self._together(op_of(op).name, small, numbers, options)
                members = [pair for pair in members if pair[1].size >= MAX_SMALL_ELEMENTS]
            for gradient, variable in members:
                cells = self._cells(variable)
                state = [cell.value for cell in cells]
                new = op(variable.value, gradient, *state, *numbers, **options)
                found.update(zip((variable, *cells), new, strict=True))
        return found

    def _by_decay(self, pairs: list[Pair]) -> dict[float, list[Pair]]:
        if not self.weight_decay and not self._groups.given:
            return {0.0: pairs}
        found: dict[float, list[Pair]] = {}
        for pair in pairs:
            found.setdefault(self.decay_of(pair[1]), []).append(pair)
        return found

    def _at_once(
        self, op: Op, pairs: list[Pair], numbers: list[Tensor], options: dict[str, Any]
    ) -> Values | None:
        """The next values by one call of machine code; None if unsupported."""
        kind = pairs[0][1].current._kind
        if not kind.device.backend.host or any(g._kind is not kind for g, _ in pairs):
            return None
        cells = [(variable, *self._cells(variable)) for _, variable in pairs]
        first = [variable.current._array for _, variable in pairs]
        step = joint_step(op, op.attributes | options, kind.dtype, tuple([x.size for x in first]))
        if step is None or any(n._array.ndim for n in numbers):
            return None
        columns = [
            (x.reshape(-1), g._array.reshape(-1), *[c.current._array.reshape(-1) for c in own[1:]])
            for x, (g, _), own in zip(first, pairs, cells, strict=True)
        ]
        outs = step(columns, [n._array for n in numbers])
        return {
            cell: new_tensor(y.reshape(x.shape), kind)
            for own, x, made in zip(cells, first, outs, strict=True)
            for cell, y in zip(own, made, strict=True)
        }

    def _together(
        self, update: str, pairs: list[Pair], numbers: list[Tensor], options: dict[str, Any]
    ) -> Values:
        cells: list[Variable] = []
        arrays: list[Tensor] = []
        for gradient, variable in pairs:
            own = self._cells(variable)
            cells += (variable, *own)
            arrays += (variable.value, gradient, *(cell.value for cell in own))
        new = joined_update(*numbers, *arrays, update=update, options=tuple(options.items()))
        return dict(zip(cells, new, strict=True))
