"""Functions with custom gradients, for all recorders of a thread.

Such a function is run once, and every recorder sees its ops. Its results then become separate
tensors, and each recorder notes that the rule gives their gradient. So a rule may use
intermediate values of the function: derivatives of the rule pass through those ops.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from eagerflow import tree
from eagerflow.convert import as_tensor
from eagerflow.display import function_name, summary
from eagerflow.errors import GradientError, ShapeError
from eagerflow.masks import keeping_mask
from eagerflow.recorder import recorder_state, with_recorder
from eagerflow.tensor import Tensor, new_tensor


class Rule:
    """A backward function of flat gradients: from those of results to those of argument leaves."""

    def __init__(
        self,
        function: Callable[..., Any],
        args: Sequence[Any],
        structure: tree.Structure,
        backward: Callable[..., Any],
    ) -> None:
        self.function, self._name = function, function_name(function)
        leaves, self._nest = tree.flatten(args)
        self.args = tuple(leaves)
        self._structure, self._backward = structure, backward
        self.takes_none = getattr(backward, "takes_none", False)
        self.kept = getattr(backward, "kept", ())  # for the memory report

    def __call__(self, gradients: Sequence[Any]) -> tuple[Any, ...]:
        """The gradients by the leaves of the arguments, None if there is none."""
        parts = self._backward(tree.unflatten(self._structure, gradients))
        parts = tuple(parts) if isinstance(parts, tuple | list) else (parts,)
        nests = self._nest.children
        if len(parts) != len(nests):
            raise GradientError(
                f"backward gave {len(parts)} gradients",
                op=self._name,
                expected=f"{len(nests)}, one for each argument (None where there is none)",
            )
        if self.takes_none:  # an internal rule, which may return slices
            return parts
        flat = [pair for i, nest in enumerate(nests) for pair in self._by_leaf(i, nest, parts[i])]
        return tuple([self._fitting(*pair, x) for pair, x in zip(flat, self.args, strict=True)])

    def _by_leaf(self, position: int, nest: tree.Structure, part: Any) -> list[tuple[int, Any]]:
        """The gradient of each leaf of an argument, with the argument's position."""
        if nest.container is None:
            return [(position, part)]
        paths = tree.paths(nest, "g")
        leaves, own = tree.flatten(part)
        found = dict(zip(tree.paths(own, "g"), leaves, strict=True))
        if part is not None and found.keys() != set(paths):
            raise GradientError(
                f"backward returned a gradient of a different structure for argument {position}",
                op=self._name,
                received=", ".join(found),
                expected=", ".join(paths),
            )
        return [(position, found.get(path)) for path in paths]

    def _fitting(self, position: int, part: Any, x: Any) -> Tensor | None:
        if part is None or type(x) is not Tensor:
            return None
        found = as_tensor(part, x.dtype, x.device)
        if _known(found.shape) and _known(x.shape) and found.shape != x.shape:
            raise ShapeError(
                f"backward returned a gradient of a different shape for argument {position}",
                op=self._name,
                received=summary(found),
                expected=summary(x),
                hint="sum it over the axes along which the argument was broadcast",
            )
        return found


def _known(shape: Any) -> bool:
    return all(isinstance(size, int) for size in shape)


def custom_call(f: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    """The value of ``f``, which returns it together with a custom backward function."""
    recorder = recorder_state()[1]
    if recorder is None:
        return f(*args)[0]
    y, backward = with_recorder(recorder.of_custom(), f, *args)
    leaves, structure = tree.flatten(y)
    rule = Rule(f, args, structure, backward)
    results = tuple([same(as_tensor(leaf)) for leaf in leaves])
    results = recorder.customized(rule._name, rule.args, results, rule)
    return tree.unflatten(
        structure, [keeping_mask(x, y) for x, y in zip(leaves, results, strict=True)]
    )


def same(tensor: Tensor) -> Tensor:
    """The same value as a new Tensor, unknown to all recorders."""
    return new_tensor(tensor._array, tensor._kind)
