"""The arguments of ``compile``, for each output of a model: losses with weights, and metrics.

A loss, a weight, metrics, targets and sample weights are given for all outputs at once, in a list
in their order, or in a dict by their names. Names are those of a dict of outputs, those of the
layers of a model from symbolic tensors, else ``output_0``, ``output_1`` ...
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from eagerflow import tree
from eagerflow.errors import ArgumentError
from eagerflow.nn import losses
from eagerflow.nn.arguments import Nest
from eagerflow.nn.metrics import Mean, metric_for
from eagerflow.nn.module import Module
from eagerflow.recorder import unrecorded

__all__ = ["CompiledLosses", "CompiledMetrics", "losses_of", "output_names"]


def output_names(y_pred: Nest, known: Sequence[str] = ()) -> list[str]:
    """A name for each output; ``known`` ones are used if their number matches.

    >>> from eagerflow.nn.compiled import output_names
    >>> output_names({"age": 0, "name": 1}), output_names([0, 1]), output_names([0, 1], ["a", "b"])
    (['age', 'name'], ['output_0', 'output_1'], ['a', 'b'])
    """
    leaves, structure = tree.flatten(y_pred)
    if isinstance(y_pred, dict) and len(y_pred) == len(leaves):
        return [str(key) for key in structure.keys]
    if len(known) == len(leaves):
        return list(known)
    return [f"output_{i}" for i in range(len(leaves))]


def for_outputs(
    given: Any, names: Sequence[str], argument: str, all_alike: bool = False
) -> list[Any]:
    """The value given for each output, or None.

    ``all_alike`` means that a value that is neither a list nor a dict applies to every output.
    """
    if isinstance(given, dict):
        unknown = [key for key in given if key not in names]
        if not unknown:
            return [given.get(name) for name in names]
        received = ", ".join(map(repr, given))
    elif isinstance(given, list | tuple):
        if len(given) == len(names):
            return list(given)
        received = f"{len(given)} items"
    elif given is None or all_alike or len(names) == 1:
        return [given] * len(names)
    else:
        received = type(given).__name__
    raise ArgumentError(
        f"{argument} does not fit the model's outputs",
        argument=argument,
        received=received,
        expected="a list of as many, or a dict by their names: " + ", ".join(map(repr, names)),
    )


class CompiledLosses(Module):
    """The losses of all outputs, and their sum, which training minimizes."""

    def __init__(self, loss: Any, weights: Any) -> None:
        self.given = losses_of(loss)
        self.loss_weights = weights
        self.trackers: list[Mean] = []
        self.names: list[str] = []

    @property
    def single(self) -> Any:
        """The loss, if there is a single one for all outputs; else None."""
        return None if isinstance(self.given, list | tuple | dict) else self.given

    def __call__(self, y: Nest, y_pred: Nest, sample_weight: Nest, names: Sequence[str]) -> Any:
        """The weighted sum of the losses of all outputs."""
        if len(names) == 1 and not isinstance(self.given, list | tuple | dict):
            loss = self.given(y, y_pred, sample_weight)
            return loss if self.loss_weights is None else loss * _only(self.loss_weights)
        found = for_outputs(self.given, names, "loss", all_alike=True)
        weights = for_outputs(self.loss_weights, names, "loss_weights")
        targets = for_outputs(y, names, "y")
        shares = for_outputs(sample_weight, names, "sample_weight", all_alike=True)
        total: Any = None
        several = sum(loss is not None for loss in found) > 1
        rows = zip(names, found, tree.flatten(y_pred)[0], targets, shares, weights, strict=True)
        for name, loss, prediction, target, share, weight in rows:
            if loss is None:
                continue
            value = loss(target, prediction, share)
            if several:
                self._track(f"{name}_loss", value, prediction)
            value = value if weight is None else value * weight
            total = value if total is None else total + value
        return total

    def _track(self, name: str, value: Any, prediction: Any) -> None:
        if name not in self.names:
            self.names.append(name)
            unrecorded(f"state of {name!r}", lambda: self.trackers.append(Mean(name)))
        self.trackers[self.names.index(name)].update_state(value, float(prediction.shape[0]))


def losses_of(given: Any) -> Any:
    """A loss for each name, configuration or function in a nest; None stays None."""
    if isinstance(given, list | tuple):
        return [losses_of(item) for item in given]
    if isinstance(given, dict) and set(given) != {"class_name", "config"}:
        return {key: losses_of(item) for key, item in given.items()}
    return None if given is None else losses.get(given)


def _only(weights: Any) -> Any:
    return weights if not isinstance(weights, list | tuple | dict) else tree.flatten(weights)[0][0]


class CompiledMetrics(Module):
    """The metrics of all outputs; ``weighted`` ones heed the weights of examples."""

    def __init__(self, plain: Any, weighted: Any, losses: CompiledLosses) -> None:
        self._given = [plain, weighted]
        self._losses = losses
        self.rows: list[tuple[int, bool, Any]] = []  # the output, whether weighted, the metric
        self.made = False
        if not any(isinstance(given, dict) or _is_nested(given) for given in self._given):
            self._make([""])

    @property
    def metrics(self) -> list[Any]:
        """All metrics, in the order of the outputs."""
        return [metric for _, _, metric in self.rows]

    def update(self, y: Nest, y_pred: Nest, sample_weight: Nest, names: Sequence[str]) -> None:
        """Take a batch into every metric."""
        if not self.made:
            unrecorded("metrics", self._make, list(names))
        if not self.rows:
            return
        if len(names) == 1:
            targets, predictions, shares = [y], tree.flatten(y_pred)[0], [sample_weight]
        else:
            targets, predictions = for_outputs(y, names, "y"), tree.flatten(y_pred)[0]
            shares = for_outputs(sample_weight, names, "sample_weight", all_alike=True)
            if self.rows and len({i for i, _, _ in self.rows}) == 1 and not self._by_output:
                raise ArgumentError(
                    "metrics do not say which output they are of",
                    argument="metrics",
                    expected="a list for each output, or a dict by name: "
                    + ", ".join(map(repr, names)),
                )
        for i, weighted, metric in self.rows:
            metric.update_state(targets[i], predictions[i], shares[i] if weighted else None)

    def _make(self, names: list[str]) -> None:
        self.made = True
        self._by_output = names != [""]
        found = (
            for_outputs(self._losses.given, names, "loss", all_alike=True)
            if names != [""]
            else [self._losses.single]
        )
        for weighted, given in enumerate(self._given):
            for i, (name, own, loss) in enumerate(
                zip(names, self._of_outputs(given, names), found, strict=True)
            ):
                for item in own if isinstance(own, list | tuple) else [own]:
                    if item is not None:
                        metric = metric_for(item, loss)
                        if len(names) > 1:
                            metric.name = f"{name}_{metric.name}"
                        if weighted and any(m.name == metric.name for m in self.metrics):
                            metric.name = f"weighted_{metric.name}"
                        self.rows.append((i, bool(weighted), metric))
        self.rows.sort(key=lambda row: row[0])

    def _of_outputs(self, given: Any, names: list[str]) -> list[Any]:
        if len(names) == 1 and not isinstance(given, dict):
            return [given[0] if _is_nested(given) and len(given) == 1 else given]
        return for_outputs(given, names, "metrics")


def _is_nested(given: Any) -> bool:
    return isinstance(given, list | tuple) and any(isinstance(x, list | tuple) for x in given)
