"""Optimizers: they keep their state in Variables and change weights by public ops.

So a training step can be captured, saved and resumed like everything else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any, TypedDict, Unpack

from eagerflow import ops
from eagerflow.convert import as_tensor
from eagerflow.devices import Kind
from eagerflow.display import summary
from eagerflow.errors import ArgumentError, GradientError, ShapeError
from eagerflow.nn import schedules
from eagerflow.nn.arguments import Float, number, require
from eagerflow.nn.configured import Configured, arguments, from_config, named_classes, snake_case
from eagerflow.nn.schedules import Schedule
from eagerflow.ops.nn.optimizer_updates import adam_update, adam_updates, momentum_update
from eagerflow.recorder import recording, unrecorded
from eagerflow.tape import GradientTape
from eagerflow.tensor import Tensor
from eagerflow.variable import Variable, assign_together

__all__ = ["Adam", "AdamW", "Optimizer", "SGD", "get"]


MAX_SMALL_ELEMENTS = 1 << 14  # of a variable that Adam changes together with others
MIN_SMALL_VARIABLES = 6  # for which that pays


Pair = tuple[Any, Variable]
"""A gradient, a Tensor, and its Variable."""

LearningRate = float | Schedule | Mapping[str, Any]
"""A number, a schedule, or the configuration of one."""


class ClippingOptions(TypedDict, total=False):
    """The arguments that every optimizer takes last."""

    clipnorm: float | None
    clipvalue: float | None
    global_clipnorm: float | None
    name: str | None


class OptimizerOptions(ClippingOptions, total=False):
    """The arguments that every optimizer takes beside its learning rate."""

    weight_decay: float | None


class Optimizer(Configured):
    """Base of optimizers: ``apply`` changes variables along their gradients.

    ``learning_rate`` is a number or a schedule. ``weight_decay`` shrinks every variable by its
    product with the learning rate in each step. ``clipnorm`` bounds the norm of each gradient,
    ``global_clipnorm`` that of all together, ``clipvalue`` each element; one of them at most.
    A subclass gives ``slots`` (names of the state it keeps for each variable) and ``update``.

    >>> w = ef.Variable([1.0, 2.0])
    >>> optimizer = ef.nn.optimizers.SGD(learning_rate=0.5)
    >>> optimizer.apply([ef.tensor([1.0, 1.0])], [w])
    >>> w.value, int(optimizer.iterations)
    (Tensor([0.5, 1.5], float32, cpu:0), 1)
    """

    slots: tuple[str, ...] = ()

    def __init__(
        self,
        learning_rate: LearningRate = 0.01,
        weight_decay: float | None = None,
        clipnorm: float | None = None,
        clipvalue: float | None = None,
        global_clipnorm: float | None = None,
        name: str | None = None,
    ) -> None:
        self.name = name or snake_case(type(self).__name__)
        self.weight_decay = float(weight_decay or 0.0)
        self.clipping = {
            key: float(value)
            for key, value in (
                ("clipnorm", clipnorm),
                ("clipvalue", clipvalue),
                ("global_clipnorm", global_clipnorm),
            )
            if value is not None
        }
        if len(self.clipping) > 1 or any(limit <= 0 for limit in self.clipping.values()):
            raise ArgumentError(
                f"{self.clipping} cannot be kept",
                op=self.name,
                argument="clipnorm",
                expected="one of clipnorm, clipvalue, global_clipnorm, and a positive number",
            )
        self.iterations = Variable(0, f"{self.name}/iterations", trainable=False)
        scheduled = isinstance(learning_rate, Schedule | Mapping)
        self.schedule = schedules.get(learning_rate) if scheduled else None
        if self.schedule is None:
            self._rate = Variable(
                _positive(self.name, learning_rate), f"{self.name}/learning_rate", trainable=False
            )
        self._slots: dict[int, tuple[Variable, list[Variable]]] = {}

    @property
    def learning_rate(self) -> Any:
        """The learning rate of the next step: a Variable, or what the schedule says."""
        return self._rate if self.schedule is None else self.schedule(self.iterations.value)

    @learning_rate.setter
    def learning_rate(self, value: Any) -> None:
        if self.schedule is not None:
            raise ArgumentError(
                "the learning rate follows a schedule",
                op=self.name,
                argument="learning_rate",
                hint="an optimizer made with a number",
            )
        self._rate.assign(_positive(self.name, value))

    @property
    def variables(self) -> list[Variable]:
        """The whole state: the count of steps, the learning rate, and what each weight has."""
        own = [self.iterations] + ([] if self.schedule else [self._rate])
        return own + [slot for _, slots in self._slots.values() for slot in slots]

    def build(self, variables: Iterable[Variable]) -> None:
        """Make the state for these variables, where there is none yet."""
        for variable in variables:
            if id(variable) not in self._slots:
                self._slots[id(variable)] = (variable, self.state_for(variable))

    def has_changed(self, variable: Variable) -> bool:
        """Whether there is state for this variable, as from the first step that changes it."""
        return id(variable) in self._slots

    def state_for(self, variable: Variable) -> list[Variable]:
        """New state, all zeros, for one variable."""
        return [
            Variable(
                ops.zeros(variable.shape, variable.dtype, str(variable.device)),
                f"{self.name}/{variable.name}/{slot}",
                trainable=False,
            )
            for slot in self.slots
        ]

    def apply(self, grads: Sequence[Tensor | None], variables: Sequence[Variable]) -> None:
        """Change each variable along its gradient, by one step.

        ``grads`` are tensors of the variables' shapes; None leaves a variable alone. Raises
        GradientError for lists of different lengths, ShapeError for other shapes.
        """
        pairs = self._pairs(list(grads), list(variables))
        for _, variable in pairs:
            if id(variable) not in self._slots:
                unrecorded(f"state of {self.name!r}", self.build, [variable])
        if self.clipping:
            pairs = self._clipped(pairs)
        rate, step = as_tensor(self.learning_rate), ops.add(self.iterations.value, 1)
        new: dict[Variable, Tensor] = {self.iterations: step}
        kinds: dict[Kind, list[Pair]] = {}
        for pair in pairs:
            kinds.setdefault(pair[1].current._kind, []).append(pair)
        for kind, members in kinds.items():
            numbers = (as_tensor(n, kind.dtype, kind.device) for n in (rate, step))
            new.update(self._changed(members, *numbers))
        for _, variable in pairs:
            if variable.constraint is not None:
                new[variable] = variable.constraint(new[variable])
        assign_together(new)

    def _changed(self, pairs: list[Pair], rate: Tensor, step: Tensor) -> dict[Variable, Tensor]:
        """The next values of variables of one dtype on one device, and of their state."""
        found: dict[Variable, Tensor] = {}
        for gradient, variable in pairs:
            slots = self._slots[id(variable)][1]
            state = [slot.value for slot in slots]
            new = self.update(variable.value, gradient, state, rate, step)
            found.update(zip((variable, *slots), new, strict=True))
        return found

    def update(self, value: Any, gradient: Any, state: list[Tensor], rate: Any, step: Any) -> Any:
        """The next value and state of one variable, as a tuple; every subclass has its own."""
        raise ArgumentError("the class has no update", op=type(self).__name__)

    def scale_loss(self, loss: Any) -> Any:
        """What gradients are taken of: the loss, unless a scale keeps them from vanishing."""
        return loss

    def finalize_variable_values(self, variables: Sequence[Variable]) -> None:
        """Called at the end of training, for optimizers that keep other values for it."""

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
        with GradientTape() as tape:
            value = loss()
        wanted = list(tape.watched_variables() if variables is None else variables)
        self.apply(tape.gradient(value, wanted), wanted)
        return value

    def _pairs(self, grads: list[Tensor | None], variables: list[Variable]) -> list[Pair]:
        if len(grads) != len(variables):
            raise GradientError(
                f"{len(grads)} gradients for {len(variables)} variables",
                op=self.name,
                argument="grads",
                expected="one gradient, or None, for each variable",
            )
        for gradient, variable in zip(grads, variables, strict=True):
            if not isinstance(variable, Variable):
                raise GradientError(
                    "only Variables can be changed",
                    op=self.name,
                    argument="variables",
                    received=summary(variable),
                    expected="Variables",
                )
            if gradient is not None and tuple(gradient.shape) != variable.shape:
                raise ShapeError(
                    "the gradient has another shape than its variable",
                    op=self.name,
                    argument=variable.name,
                    received=summary(gradient),
                    expected=summary(variable),
                )
        return [(as_tensor(g), v) for g, v in zip(grads, variables, strict=True) if g is not None]

    def _clipped(self, pairs: list[Pair]) -> list[Pair]:
        ((how, limit),) = self.clipping.items()
        if how == "clipvalue":
            return [(ops.clip(g, -limit, limit), v) for g, v in pairs]
        if how == "clipnorm":
            return [(g * _factor((g * g).sum(), limit), v) for g, v in pairs]
        total = pairs[0][0].sum() * 0.0 if pairs else None
        for gradient, _ in pairs:
            total = total + (gradient * gradient).sum()
        return [(g * _factor(total, limit), v) for g, v in pairs]

    def __repr__(self) -> str:
        rate = "a schedule" if self.schedule is not None else f"{float(self._rate.current):g}"
        return f"<{type(self).__name__}: learning_rate={rate}, step {int(self.iterations.current)}>"


def _factor(square: Any, limit: float) -> Any:
    """What a gradient with this sum of squares is multiplied by to keep its norm below a limit."""
    return limit / ops.maximum(ops.sqrt(square), limit)


def _positive(name: str, rate: Any) -> Any:
    value = as_tensor(rate, "float32")
    ok = not value.ndim and float(value) >= 0
    expected = "a number of at least 0, or a schedule"
    require(ok, rate, "not a learning rate", name, "learning_rate", expected)
    return value


Momentum = Annotated[float, number(lambda x: 0 <= x <= 1, "not a momentum", "a number from 0 to 1")]


class SGD(Optimizer):
    """Gradient descent, perhaps with ``momentum``, perhaps looking ahead (``nesterov``).

    Source: Sutskever and others, 2013. Other arguments are those of ``Optimizer``.

    >>> w = ef.Variable([1.0])
    >>> optimizer = ef.nn.optimizers.SGD(0.1, momentum=0.9)
    >>> for _ in range(2):
    ...     loss = optimizer.minimize(lambda: (w * w).sum())
    >>> w.value
    Tensor([0.46], float32, cpu:0)
    """

    momentum: float
    nesterov: bool

    @arguments
    def __init__(
        self,
        learning_rate: LearningRate = 0.01,
        momentum: Momentum = 0.0,
        nesterov: Annotated[bool, bool] = False,
        **options: Unpack[OptimizerOptions],
    ) -> None:
        self.slots = ("velocity",) if self.momentum else ()

    def update(self, value: Any, gradient: Any, state: list[Tensor], rate: Any, step: Any) -> Any:
        if self.momentum:
            return momentum_update(
                value,
                gradient,
                state[0],
                rate,
                momentum=self.momentum,
                nesterov=self.nesterov,
                weight_decay=self.weight_decay,
            )
        if self.weight_decay:
            gradient = gradient + value * self.weight_decay
        return (value - gradient * rate,)


Beta = Annotated[float, number(lambda x: 0 <= x < 1, "out of range", "a number from 0 to below 1")]


class AdamOptions(ClippingOptions, total=False):
    """The arguments of ``Adam`` beside its learning rate and weight decay."""

    beta_1: Beta
    beta_2: Beta
    epsilon: Float


class Adam(Optimizer):
    """Steps scaled by running means of the gradient and of its square.

    ``beta_1`` and ``beta_2`` say how slowly the means change, ``epsilon`` bounds the scale.
    Other arguments are those of ``Optimizer``. Source: Kingma and Ba, "Adam", 2015.

    >>> w = ef.Variable([1.0, -2.0])
    >>> optimizer = ef.nn.optimizers.Adam(learning_rate=0.1)
    >>> loss = optimizer.minimize(lambda: (w * w).sum())
    >>> w.value
    Tensor([ 0.9, -1.9], float32, cpu:0)
    """

    slots = ("mean", "square")

    beta_1: float
    beta_2: float
    epsilon: float

    @arguments
    def __init__(
        self,
        learning_rate: LearningRate = 0.001,
        beta_1: Beta = 0.9,
        beta_2: Beta = 0.999,
        epsilon: Float = 1e-7,
        **options: Unpack[OptimizerOptions],
    ) -> None:
        self._options = {
            "beta_1": self.beta_1,
            "beta_2": self.beta_2,
            "epsilon": self.epsilon,
            "weight_decay": self.weight_decay,
        }

    def update(self, value: Any, gradient: Any, state: list[Tensor], rate: Any, step: Any) -> Any:
        return adam_update(value, gradient, *state, rate, step, **self._options)

    def _changed(self, pairs: list[Pair], rate: Tensor, step: Tensor) -> dict[Variable, Tensor]:
        small = [pair for pair in pairs if pair[1].size < MAX_SMALL_ELEMENTS]
        # Steps are recorded one by one, and a subclass may have its own.
        alone = recording() or type(self).update is not Adam.update
        if alone or len(small) < MIN_SMALL_VARIABLES:
            return super()._changed(pairs, rate, step)
        large = [pair for pair in pairs if pair[1].size >= MAX_SMALL_ELEMENTS]
        rows = [(v, *self._slots[id(v)][1]) for _, v in small]
        arrays = [
            x
            for (gradient, _), (value, *state) in zip(small, rows, strict=True)
            for x in (value.value, gradient, *(slot.value for slot in state))
        ]
        found = adam_updates(rate, step, *arrays, **self._options)
        cells = [cell for row in rows for cell in row]
        return super()._changed(large, rate, step) | dict(zip(cells, found, strict=True))


class AdamW(Adam):
    """Adam with weights that decay by themselves; Loshchilov and Hutter, 2019.

    >>> ef.nn.optimizers.AdamW().weight_decay
    0.004
    """

    @arguments
    def __init__(
        self,
        learning_rate: LearningRate = 0.001,
        weight_decay: float | None = 0.004,
        **options: Unpack[AdamOptions],
    ) -> None: ...


_TABLE = named_classes(Optimizer, adamw=AdamW)


def get(identifier: Any) -> Any:
    """The optimizer that a name, a configuration or an optimizer stands for.

    >>> ef.nn.optimizers.get("adam")
    <Adam: learning_rate=0.001, step 0>
    """
    return from_config("optimizer", identifier, _TABLE, lambda x: isinstance(x, Optimizer))
