"""Optimizers: they keep their state in Variables and change weights by public ops.

So a training step can be captured, saved and resumed like any other function.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any

import numpy as np

from eagerflow import ops
from eagerflow.convert import as_tensor
from eagerflow.devices import Kind
from eagerflow.errors import ArgumentError
from eagerflow.nn import schedules
from eagerflow.nn.arguments import Count, require
from eagerflow.nn.configured import Configured, arguments, snake_case
from eagerflow.nn.module import Module
from eagerflow.nn.optimizers.gradients import Gradient, Pair, clipped, pairs_of
from eagerflow.nn.optimizers.groups import Group, Groups
from eagerflow.nn.optimizers.options import LearningRate, Limit, Momentum, rate_from, steps
from eagerflow.nn.optimizers.row_writes import RowWrite, assign_with_rows, copied
from eagerflow.nn.replicas import averaged_gradients
from eagerflow.nn.schedules import Schedule
from eagerflow.ops.absent import explain
from eagerflow.ops.indexing.slices import IndexedSlices
from eagerflow.ops.other_names import table
from eagerflow.recorder import prepared, recording
from eagerflow.tape import GradientTape
from eagerflow.tensor import Tensor, new_tensor
from eagerflow.variable import Variable, assign_together

__all__ = ["Optimizer"]

Values = dict[Variable, Tensor]
"""The next values of Variables."""


def _number(tensor: Tensor, kind: Kind) -> Tensor:
    """A number as one of this kind."""
    if tensor._kind.device is kind.device and kind.device.backend.host and not recording():
        return new_tensor(tensor._array.astype(kind.dtype), kind)
    return as_tensor(tensor, kind.dtype, kind.device)


def _numbers(
    rate: Any, step: Tensor, kind: Kind, multiplier: float | None
) -> tuple[Tensor, Tensor]:
    """The learning rate and the step of variables of this kind in a group."""
    rate = rate if multiplier is None else rate * multiplier
    return _number(rate, kind), _number(step, kind)


class Optimizer(Configured):
    """Base of optimizers: ``apply`` changes variables along their gradients.

    ``learning_rate`` is a number, a schedule, or a function that returns the rate. ``weight_decay``
    shrinks every variable by its product with the learning rate in each step. ``clipnorm`` bounds
    the norm of each gradient, ``global_clipnorm`` that of all together, ``clipvalue`` each element;
    one of them at most. With ``use_ema``, running means of the variables are kept, with the decay
    rate ``ema_momentum``; the variables are replaced by their means every
    ``ema_overwrite_frequency`` steps, and in ``finalize_variable_values``. Gradients are divided by
    ``loss_scale_factor``, which ``scale_loss`` multiplies the loss by. With
    ``gradient_accumulation_steps``, that many calls of ``apply`` are one step, along the mean of
    their gradients. A subclass defines ``slots``, in groups (names of the state kept for each
    variable), and ``update``. Copies and pickles have state for copies of the Variables: copy an
    optimizer together with these, ``copy.deepcopy((model, optimizer))``.

    >>> w = ef.Variable([1.0, 2.0])
    >>> optimizer = ef.nn.optimizers.SGD(learning_rate=0.5)
    >>> optimizer.apply([ef.tensor([1.0, 1.0])], [w])
    >>> w.value, int(optimizer.iterations)
    (Tensor([0.5, 1.5], float32, cpu:0), 1)
    """

    slots: tuple[str, ...] = ()
    late_slots: tuple[str, ...] = ()  # those at the end of ``variables``
    _is_copy = False
    by_rows = False  # whether a step may update some rows only, independently

    weight_decay: float | None
    clipnorm: float | None
    clipvalue: float | None
    global_clipnorm: float | None
    use_ema: bool
    ema_momentum: float
    ema_overwrite_frequency: int | None
    loss_scale_factor: float | None
    gradient_accumulation_steps: int | None

    @arguments
    def __init__(
        self,
        learning_rate: LearningRate = 0.01,
        weight_decay: Annotated[float, float] | None = None,
        clipnorm: Limit = None,
        clipvalue: Limit = None,
        global_clipnorm: Limit = None,
        use_ema: Annotated[bool, bool] = False,
        ema_momentum: Momentum = 0.99,
        ema_overwrite_frequency: Count | None = None,
        loss_scale_factor: Limit = None,
        gradient_accumulation_steps: Annotated[int, steps] | None = None,
        name: str | None = None,
    ) -> None:
        self.name = name or snake_case(type(self).__name__)
        limits = [clipnorm, clipvalue, global_clipnorm]
        require(
            limits.count(None) >= 2,
            limits,
            "more than one limit",
            self.name,
            "clipnorm",
            "one of clipnorm, clipvalue, global_clipnorm at most",
        )
        if isinstance(self._rate, Variable):
            self._rate.name = f"{self.name}/learning_rate"
        self._iterations = Variable(0, f"{self.name}/iterations", trainable=False)
        # Tables of Variables are keyed by the Variables themselves: copies and pickles keep them.
        self._state: dict[Variable, dict[str, Variable]] = {}
        self._changed_so_far: set[Variable] = set()
        self._excluded: tuple[frozenset[Variable], tuple[str, ...]] = (frozenset(), ())
        self._groups = Groups()

    # Numbers ---------------------------------------------------------------------------------

    @property
    def iterations(self) -> Any:
        """The number of steps: a Variable; a Tensor if steps take several calls."""
        if self.gradient_accumulation_steps is None:
            return self._iterations
        return ops.floor_divide(self._iterations.value, self.gradient_accumulation_steps)

    @property
    def _counter(self) -> tuple[Variable, int]:
        """The Variable that counts calls, and the number of calls per step."""
        return self._iterations, self.gradient_accumulation_steps or 1

    @property
    def learning_rate(self) -> Any:
        """The next step's learning rate: a Variable, or the value of a schedule or function."""
        if isinstance(self._rate, Schedule):
            return self._rate(self._iterations.value)
        return self._rate() if callable(self._rate) else self._rate

    @learning_rate.setter
    def learning_rate(self, value: LearningRate) -> None:
        held = getattr(self, "_rate", None)
        if isinstance(value, Mapping):
            value = schedules.get(value)
        if callable(value) and not isinstance(value, Module):
            self._rate: Any = value
        elif held is None:
            self._rate = Variable(rate_from(self._label, value), trainable=False)
        elif isinstance(held, Variable):
            held.assign(rate_from(self._label, value))
        else:
            raise ArgumentError(
                "the learning rate follows a schedule",
                op=self._label,
                argument="learning_rate",
                hint="an optimizer made with a number",
            )

    @property
    def schedule(self) -> Schedule | None:
        """The schedule that the learning rate follows, if any."""
        return self._rate if isinstance(self._rate, Schedule) else None

    def get_config(self) -> dict[str, Any]:
        config = super().get_config()
        if "learning_rate" in config and isinstance(self._rate, Variable):
            config["learning_rate"] = float(str(self._rate.numpy()))  # 0.1, as float32 shows it
        return config

    # State -----------------------------------------------------------------------------------

    @property
    def variables(self) -> list[Variable]:
        """The whole state: the count of steps, the learning rate, and the slots of each weight."""
        own = [self._iterations] + ([self._rate] if isinstance(self._rate, Variable) else [])
        groups = (("average",), ("gradient_accumulator",), self.slots)
        for group in (*groups, *((name,) for name in self.late_slots)):
            own += [s[name] for s in self._state.values() for name in group if name in s]
        return own

    def build(self, variables: Iterable[Variable]) -> None:
        """Create the state for these variables, unless it exists."""
        variables = list(variables)
        self._groups.fix([variable for variable in variables if variable not in self._state])
        for variable in variables:
            if variable not in self._state:
                if self._is_copy:
                    self._refuse_original(variable)
                slots = {}
                if self.use_ema:
                    slots["average"] = self._slot(variable, "average")
                if self.gradient_accumulation_steps is not None:
                    slots["gradient_accumulator"] = self._slot(variable, "gradient_accumulator")
                self._state[variable] = slots | self.state_for(variable)

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._is_copy = True

    def _refuse_original(self, variable: Variable) -> None:
        """Raise for a Variable whose copy has the state, as when an optimizer is copied alone."""
        alike = variable.name, variable.shape, variable.dtype
        require(
            all((v.name, v.shape, v.dtype) != alike for v in self._state),
            variable.name,
            "not the Variable that this copy of an optimizer has state for",
            self.name,
            "variables",
            "the copies made with it: copy.deepcopy((model, optimizer))",
        )

    def state_for(self, variable: Variable) -> dict[str, Variable]:
        """New state for one variable; all zeros, unless a subclass has it otherwise."""
        return {name: self._slot(variable, name) for name in (*self.slots, *self.late_slots)}

    def _slot(
        self, variable: Variable, name: str, value: float = 0.0, shape: Any = None
    ) -> Variable:
        whole = np.full(variable.shape if shape is None else shape, value, variable.dtype)
        label = f"{self.name}/{variable.name}/{name}"
        return Variable(whole, label, trainable=False, device=variable.device)

    def has_changed(self, variable: Variable) -> bool:
        """Whether a step has changed this variable."""
        return variable in self._changed_so_far

    def _begin(self, pairs: list[Pair], variables: Sequence[Variable]) -> None:
        """Create the state for these variables, unless an earlier step did."""
        if any(variable not in self._changed_so_far for _, variable in pairs):
            self.build(variables)
            self._changed_so_far |= {variable for _, variable in pairs}

    def _slots(self, variable: Variable) -> dict[str, Variable]:
        return self._state[variable]

    # Groups ----------------------------------------------------------------------------------

    def add_group(
        self,
        parts: Any,
        multiplier: float | None = None,
        weight_decay: float | None = None,
    ) -> None:
        """Give some variables a learning rate and a weight decay of their own.

        ``parts`` is a layer (all weights in it), a Variable, a regular expression of names, or a
        list of these. Their learning rate is ``multiplier`` times that of the optimizer, so
        schedules and callbacks change both; ``weight_decay`` replaces the optimizer's. None keeps
        the optimizer's number; where groups overlap, the last one with a number counts.
        ``model.save`` keeps groups, ``get_config`` does not. Raises ArgumentError for other parts
        and numbers, and once the optimizer has state.

        >>> body, head = ef.Variable(1.0), ef.Variable(1.0)
        >>> optimizer = ef.nn.optimizers.SGD(0.5)
        >>> optimizer.add_group(body, multiplier=0.1)
        >>> optimizer.apply([ef.tensor(1.0), ef.tensor(1.0)], [body, head])
        >>> body.value, head.value
        (Tensor(0.95, float32, cpu:0), Tensor(0.5, float32, cpu:0))
        """
        require(not self._state, self.name, "built already", self.name, "parts", "a new one")
        self._groups.add(self.name, parts, multiplier, weight_decay)

    def group_of(self, variable: Variable) -> Group:
        """The numbers that ``add_group`` has given a variable, None for the optimizer's own."""
        return self._groups.of(variable)

    # Weights that shrink ---------------------------------------------------------------------

    def exclude_from_weight_decay(
        self, var_list: Iterable[Variable] = (), var_names: Iterable[str] = ()
    ) -> None:
        """Exclude some variables, such as biases, from ``weight_decay``.

        These are the ones in ``var_list``, and those with names that match one of the regular
        expressions ``var_names``. Raises ArgumentError once the optimizer has state.

        >>> optimizer = ef.nn.optimizers.AdamW()
        >>> optimizer.exclude_from_weight_decay(var_names=["bias", "gamma"])
        >>> optimizer.decay_of(ef.Variable(1.0, name="dense/bias"))
        0.0
        """
        require(not self._state, self.name, "built already", self.name, "var_list", "a new one")
        self._excluded = frozenset(var_list or ()), tuple(var_names or ())

    def is_excluded(self, variable: Variable) -> bool:
        """Whether ``exclude_from_weight_decay`` has named a variable."""
        listed, names = self._excluded
        return variable in listed or any(re.search(name, variable.name) for name in names)

    def decay_of(self, variable: Variable) -> float:
        """The weight decay of a variable, 0 if it is excluded."""
        own = self._groups.of(variable).weight_decay
        decay = self.weight_decay if own is None else own
        return decay if decay and not self.is_excluded(variable) else 0.0

    # Steps -----------------------------------------------------------------------------------

    def apply(
        self, grads: Sequence[Gradient | None], variables: Sequence[Variable] | None = None
    ) -> None:
        """Change each variable along its gradient, by one step.

        ``grads`` are tensors of the variables' shapes; None skips a variable. For an
        ``ef.IndexedSlices``, an optimizer with ``by_rows`` updates only its rows. ``variables``
        default to those that the optimizer was built with. Raises GradientError for lists of
        different lengths, ShapeError for other shapes.
        """
        if recording() or type(self).next_values is not Optimizer.next_values:
            assign_together(self.next_values(grads, variables))
        else:
            assign_with_rows(self._next(grads, variables))

    def apply_gradients(self, grads_and_vars: Iterable[tuple[Gradient | None, Variable]]) -> Any:
        """``apply`` for pairs of a gradient and its variable; returns the count of steps."""
        pairs = list(grads_and_vars)
        self.apply([gradient for gradient, _ in pairs], [variable for _, variable in pairs])
        return self._iterations

    def next_values(
        self, grads: Sequence[Gradient | None], variables: Sequence[Variable] | None = None
    ) -> Values:
        """The values that ``apply`` would assign to the variables and the state, by Variable."""
        return copied(self._next(averaged_gradients(grads), variables))

    def _next(
        self, grads: Sequence[Gradient | None], variables: Sequence[Variable] | None = None
    ) -> dict[Variable, Any]:
        """As above, or only rows if a few rows change."""
        if variables is None:
            variables = list(self._state)
        pairs = pairs_of(self.name, list(grads), list(variables))
        prepared(self._begin, pairs, variables)
        if self.loss_scale_factor is not None:
            pairs = [(g / self.loss_scale_factor, v) for g, v in pairs]
        calls = ops.add(self._iterations.value, 1)
        if self.gradient_accumulation_steps is None:
            new = self._step(pairs, calls)
        else:
            new = self._step_in_turn(pairs, calls, self.gradient_accumulation_steps)
        if self.use_ema or any(variable.constraint is not None for _, variable in pairs):
            new = copied(new)
        if self.use_ema:
            new |= self._averaged(new)
        for _, variable in pairs:
            if variable.constraint is not None:
                new[variable] = variable.constraint(new[variable])
        new[self._iterations] = calls
        return new

    def _step(self, pairs: list[Pair], step: Tensor) -> dict[Variable, Any]:
        """The next values after a whole step, of this number."""
        pairs = clipped(pairs, self.clipvalue, self.clipnorm, self.global_clipnorm)
        rate = as_tensor(self.learning_rate)
        multipliers = self._groups.multipliers
        alike: dict[tuple[Kind, float | None], list[Pair]] = {}
        sparse: list[Pair] = []
        for gradient, variable in pairs:
            if type(gradient) is IndexedSlices:
                if self._goes_by_rows():
                    sparse.append((gradient, variable))
                    continue
                gradient = gradient.to_dense()
            multiplier = None
            if multipliers:
                multiplier = multipliers.get(variable)
            alike.setdefault((variable.current._kind, multiplier), []).append((gradient, variable))
        new: dict[Variable, Any] = self.shared_values(step)
        for (kind, multiplier), members in alike.items():
            numbers = _numbers(rate, step, kind, multiplier)
            new.update(self._changed(members, *numbers))
        for slices, variable in sparse:
            kind = variable.current._kind
            numbers = _numbers(rate, step, kind, multipliers.get(variable))
            new.update(self._changed_rows(slices, variable, *numbers))
        return new

    def _goes_by_rows(self) -> bool:
        return self.by_rows and type(self).update.__module__.startswith("eagerflow.")

    def _changed_rows(
        self, slices: IndexedSlices, variable: Variable, rate: Tensor, step: Tensor
    ) -> dict[Variable, Any]:
        """The next rows of a variable and of its state; their next values for recorders."""
        cells = [variable, *self._cells(variable)]
        value, *state = [ops.take(cell.value, slices.indices, axis=0) for cell in cells]
        if decay := self.decay_of(variable):
            value = value - value * decay * rate
        # Rows of one index are the same; so it does not matter which of them is written last.
        rows = self.update(value, slices.totals(), state, rate, step)
        if recording():
            return {
                cell: ops.index_set(cell.value, row, slices.indices, index=("array",))
                for cell, row in zip(cells, rows, strict=True)
            }
        return {
            cell: RowWrite(cell, slices.indices, row) for cell, row in zip(cells, rows, strict=True)
        }

    def _step_in_turn(self, pairs: list[Pair], calls: Tensor, steps: int) -> Values:
        """The next values where a step is made in every call of a number of them."""
        due = ops.equal(ops.remainder(calls, steps), 0)
        sums = {v: g + self._slots(v)["gradient_accumulator"].value for g, v in pairs}
        means = [(total / float(steps), v) for v, total in sums.items()]
        new = self._step(means, ops.add(self.iterations, 1))
        new = {v: ops.where(due, value, v.value) for v, value in new.items()}
        for variable, total in sums.items():
            slot = self._slots(variable)["gradient_accumulator"]
            new[slot] = ops.where(due, ops.zeros_like(total), total)
        return new

    def _averaged(self, new: Values) -> Values:
        """The next running means of all variables, and the variables if these replace them."""
        count: Any = as_tensor(self.iterations)
        stays = ops.where(ops.equal(count, 0), 0.0, self.ema_momentum)
        found: Values = {}
        for variable, slots in self._state.items():
            value = new.get(variable, variable.value)
            part = stays.astype(value.dtype)
            mean = part * slots["average"].value + (1 - part) * value
            found[slots["average"]] = mean
            if self.ema_overwrite_frequency is not None:
                due = ops.equal(ops.remainder(count + 1, self.ema_overwrite_frequency), 0)
                found[variable] = ops.where(due, mean, value)
        return found

    def shared_values(self, step: Tensor) -> Values:
        """The next values of state shared by all variables; most optimizers have none."""
        return {}

    def _changed(self, pairs: list[Pair], rate: Tensor, step: Tensor) -> Values:
        """The next values of variables of one dtype on one device, and of their state."""
        found: Values = {}
        for gradient, variable in pairs:
            cells = self._cells(variable)
            state = [cell.value for cell in cells]
            value: Any = variable.value
            if decay := self.decay_of(variable):
                value = value - value * decay * rate
            new = self.update(value, gradient, state, rate, step)
            found.update(zip((variable, *cells), new, strict=True))
        return found

    def _cells(self, variable: Variable) -> list[Variable]:
        """The state of a variable that ``update`` changes."""
        slots = self._slots(variable)
        return [slots[name] for name in (*self.slots, *self.late_slots) if name in slots]

    def update(self, value: Any, gradient: Any, state: list[Tensor], rate: Any, step: Any) -> Any:
        """The next value and state of one variable, as a tuple; every subclass has its own."""
        raise ArgumentError("the class does not define update", op=type(self).__name__)

    @property
    def averages(self) -> dict[Variable, Variable]:
        """The running mean of each variable, where ``use_ema`` keeps one."""
        return {v: slots["average"] for v, slots in self._state.items() if "average" in slots}

    def scale_loss(self, loss: Any) -> Any:
        """The loss to differentiate: multiplied by ``loss_scale_factor``, if any."""
        return loss if self.loss_scale_factor is None else loss * self.loss_scale_factor

    def minimize(
        self, loss: Callable[[], Tensor], variables: Sequence[Variable] | None = None
    ) -> Tensor:
        """Call ``loss``, apply one step along its gradient, and return its value.

        ``variables`` defaults to the trainable ones that ``loss`` reads.

        >>> w = ef.Variable(3.0)
        >>> ef.nn.optimizers.SGD(0.1).minimize(lambda: w * w)
        Tensor(9., float32, cpu:0)
        >>> w.value
        Tensor(2.4, float32, cpu:0)
        """
        if not callable(loss):
            raise ArgumentError(
                f"a {type(loss).__name__} is not a function",
                op=self._label,
                argument="loss",
                hint="minimize(lambda: loss_of(model(x)), variables), or tape.gradient and apply",
            )
        with GradientTape() as tape:
            value = loss()
            scaled = self.scale_loss(value)
        wanted = list(tape.watched_variables() if variables is None else variables)
        self.apply(tape.gradient(scaled, wanted), wanted)
        return value

    def finalize_variable_values(self, variables: Iterable[Variable]) -> None:
        """Replace variables by their running means, as at the end of training with ``use_ema``."""
        if self.use_ema:
            assign_together({v: self._slots(v)["average"].value for v in variables})

    def __repr__(self) -> str:
        known = isinstance(self._rate, Variable)
        rate = f"{float(self._rate.current):g}" if known else "a schedule"
        return (
            f"<{type(self).__name__}: learning_rate={rate}, step {int(self._iterations.current)}>"
        )


explain(Optimizer, table("Optimizer"))
