"""L-BFGS: for a loss that is the same whenever its variables are, down to its minimum."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any

from eagerflow import ops
from eagerflow.dtypes import as_dtype, promote
from eagerflow.errors import ArgumentError
from eagerflow.nn.arguments import Count, choice, number
from eagerflow.nn.configured import Configured, arguments, snake_case
from eagerflow.nn.optimizers.line_searches import SEARCHES, Point
from eagerflow.tape import GradientTape
from eagerflow.tensor import Tensor
from eagerflow.variable import Variable, assign_together

__all__ = ["LBFGS"]

Tolerance = Annotated[float, number(lambda x: x >= 0, "negative", "a number of at least 0")]
Vector = Any
"""A Tensor of one axis, or a scalar."""
MIN_CURVATURE = 1e-10  # of a remembered pair, relative to the square of its step


class LBFGS(Configured):
    """Limited-memory BFGS, for full batches: ``minimize`` iterates until it has found a minimum.

    It approximates the curvature by the changes of the gradient in the last ``history`` steps. The
    length of each step is determined by ``line_search``, "strong_wolfe" or "backtracking". It ends
    after ``max_iterations`` steps, or when no element of the gradient exceeds
    ``gradient_tolerance``, or when the relative change of the loss is at most ``tolerance``.
    Source: Liu and Nocedal, 1989.

    >>> w = ef.Variable([-1.0, 2.0])
    >>> def rosenbrock():
    ...     x, y = w
    ...     return (1 - x) ** 2 + 100 * (y - x * x) ** 2
    >>> loss = ef.nn.optimizers.LBFGS().minimize(rosenbrock)
    >>> np.round(w.numpy(), 2), float(loss) < 1e-6
    (array([1., 1.], dtype=float32), True)
    """

    history: int
    line_search: str
    max_iterations: int
    gradient_tolerance: float
    tolerance: float

    @arguments
    def __init__(
        self,
        history: Count = 10,
        line_search: Annotated[str, choice("not a line search", *SEARCHES)] = "strong_wolfe",
        max_iterations: Count = 100,
        gradient_tolerance: Tolerance = 1e-5,
        tolerance: Tolerance = 1e-9,
        name: str | None = None,
    ) -> None:
        self.name = name or snake_case(type(self).__name__)
        self.iterations = Variable(0, f"{self.name}/iterations", trainable=False)

    def minimize(
        self, loss: Callable[[], Tensor], variables: Sequence[Variable] | None = None
    ) -> Tensor:
        """Change ``variables`` until ``loss()`` is least, and return its value there.

        ``variables`` are floats of one dtype and default to the trainable ones that ``loss`` reads.
        ``loss`` gives one number, and may be a captured function; ``minimize`` itself depends on
        values and cannot be captured. After an error, the variables have the values of the last
        step. Raises ArgumentError if the initial loss or a gradient at a step is not finite, or
        there are no variables.
        """
        if variables is None:
            with GradientTape() as tape:
                loss()
            variables = tape.watched_variables()
        problem = _Problem(self.name, loss, list(variables))
        try:
            for x in self._steps(problem):
                problem.best = x
        finally:  # also where a loss raises, or Ctrl-C interrupts
            problem.move_to(problem.best)
        return loss()

    def _steps(self, problem: _Problem) -> Iterator[Vector]:
        """The points of the steps, each lower than the previous one."""
        memory, x = _Memory(self.history), problem.best
        point = problem.at(x)
        if not math.isfinite(point.value):
            raise ArgumentError(f"it is {point.value}", op=self.name, argument="loss")
        for _ in range(self.max_iterations):
            steepest = float(ops.max(ops.abs(point.gradient)))
            if not math.isfinite(steepest):
                raise ArgumentError(
                    f"its gradient has an element of {steepest}",
                    op=self.name,
                    argument="loss",
                    expected="gradients that the dtype of the variables holds",
                    hint="a smaller loss, or variables of float32",
                )
            if steepest <= self.gradient_tolerance:
                break
            line = _Line(problem, x, point, memory.direction(point.gradient))
            if not line.start.slope < 0:  # rounding has made nonsense of the curvature
                memory.pairs.clear()
                line = _Line(problem, x, point, memory.direction(point.gradient))
            first = 1.0 if memory.pairs else min(1.0, 1.0 / float(_norm(point.gradient)))
            found = SEARCHES[self.line_search](line.at, line.start, first)
            if found is line.start:
                break
            step = line.direction * found.step
            memory.add(step, found.gradient - point.gradient)
            change = point.value - found.value
            x, point = x + step, found
            yield x
            self.iterations.assign_add(1)
            if change <= self.tolerance * max(abs(point.value), 1.0):
                break


class _Problem:
    """A loss as a function of one vector, the concatenation of all variables."""

    def __init__(self, name: str, loss: Callable[[], Tensor], variables: list[Variable]) -> None:
        if not variables:
            raise ArgumentError("there are none", op=name, argument="variables")
        self.loss, self.variables = loss, variables
        self.best = _joined([v.value for v in variables])

    def move_to(self, x: Vector) -> None:
        """Assign the parts of a vector to the variables."""
        begin, new = 0, {}
        for variable in self.variables:
            end = begin + variable.size
            new[variable] = x[begin:end].reshape(variable.shape).astype(variable.dtype)
            begin = end
        assign_together(new)

    def at(self, x: Vector) -> Point:
        """Loss and gradient at a vector."""
        self.move_to(x)
        with GradientTape() as tape:
            for variable in self.variables:
                tape.watch(variable)
            loss = self.loss()
        return Point(0.0, float(loss), 0.0, _joined(tape.gradient(loss, self.variables)))


class _Line:
    """A problem along a line from where its loss and gradient are known, the ``start``."""

    def __init__(self, problem: _Problem, x: Vector, point: Point, direction: Vector) -> None:
        self.problem, self.x, self.direction = problem, x, direction
        self.start = self._with_slope(point, 0.0)

    def at(self, step: float) -> Point:
        """The point at some step."""
        return self._with_slope(self.problem.at(self.x + self.direction * step), step)

    def _with_slope(self, point: Point, step: float) -> Point:
        slope = float(ops.sum(point.gradient * self.direction))
        return point._replace(step=step, slope=slope)


class _Memory:
    """The last steps, and how the gradient has turned in each of them."""

    def __init__(self, history: int) -> None:
        self.pairs: deque[tuple[Vector, Vector, Vector]] = deque(maxlen=history)

    def add(self, step: Vector, turned: Vector) -> None:
        """Remember a step, if the function is curved along it as a valley is."""
        curvature = ops.sum(step * turned)
        if float(curvature) > MIN_CURVATURE * float(ops.sum(step * step)):
            self.pairs.append((step, turned, curvature))

    def direction(self, gradient: Vector) -> Vector:
        """Against the gradient, times the inverse of the curvature."""
        found, shares = -gradient, []
        for step, turned, curvature in reversed(self.pairs):
            shares.append(ops.sum(step * found) / curvature)
            found = found - turned * shares[-1]
        if self.pairs:
            _, turned, curvature = self.pairs[-1]
            found = found * (curvature / ops.sum(turned * turned))
        for (step, turned, curvature), share in zip(self.pairs, reversed(shares), strict=True):
            found = found + step * (share - ops.sum(turned * found) / curvature)
        return found


def _joined(tensors: Sequence[Tensor]) -> Vector:
    """One vector, in float32 or wider: half precision does not hold squares of gradients."""
    found = ops.concat([t.reshape((-1,)) for t in tensors])
    return found.astype(promote(found.dtype, as_dtype("float32")))


def _norm(x: Vector) -> Vector:
    return ops.sqrt(ops.sum(x * x))
