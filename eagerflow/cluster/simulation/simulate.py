"""``ef.cluster.simulate``: step time, efficiency, cost and bottleneck over numbers of machines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from eagerflow.cluster.simulation.asynchronous import asynchronous_step
from eagerflow.cluster.simulation.data_parallel import AllReduce, ParameterServers
from eagerflow.cluster.simulation.machines import Machines, require_number
from eagerflow.cluster.simulation.pipeline import Pipeline
from eagerflow.cluster.simulation.result import Estimate, Simulation
from eagerflow.cluster.simulation.step import Step, with_failures
from eagerflow.cluster.simulation.workload import Workload
from eagerflow.errors import ArgumentError, KeywordError, short_repr

MANY = 256  # machines
METHODS: dict[str, Any] = {
    "all-reduce": AllReduce,
    "parameter-servers": ParameterServers,
    "pipeline": Pipeline,
}


def simulate(
    step_or_model: Any,
    machines: Machines,
    *,
    method: str = "all-reduce",
    batch: float | None = None,
    sizes: Mapping[str, int] | None = None,
    seed: int = 0,
    **options: Any,
) -> Simulation:
    """The predicted training step on these machines, and on fewer of them.

    ``step_or_model`` is a captured ``ef.function`` or its graph, a Model after a step of
    training, or a ``Workload``. ``batch`` are the examples of a step over all devices, by
    default as many for each device as the step itself has; ``sizes`` are numbers for named
    dimensions of the graph, ``seed`` that of random numbers. Methods and their ``options``:

    - ``"all-reduce"``: ``algorithm`` (``"ring"``, ``"tree"``, ``"halving"``, ``"hierarchical"``, by
      default the fastest), ``bucket`` in bytes, ``overlap`` with the backward pass, ``sharded``
      state of the optimizer;
    - ``"parameter-servers"``: ``servers``, ``mode`` (``"synchronous"``, ``"asynchronous"``),
      ``staleness``, ``backup_workers``, ``own_machines``, ``bucket``, ``overlap``;
    - ``"pipeline"``: ``stages``, ``microbatches``, ``schedule`` (``"fill-drain"``,
      ``"one-forward-one-backward"``).

    Raises ArgumentError for an invalid step and for invalid numbers, KeywordError for
    options that a method does not have.

    >>> work = ef.cluster.Workload(compute_seconds=0.2, gradients=[1e7] * 10, batch=32)
    >>> found = ef.cluster.simulate(work, ef.cluster.Machines(64))
    >>> found.last.machines, found.last.bottleneck
    (64, 'compute')
    """
    work = Workload.of(step_or_model, machines, sizes)
    chosen = _options(method, options, machines)
    require_batch("simulate", batch, machines)
    kept = [n for n in _counts(machines.count) if _fits(chosen, machines.of(n))]
    rows = [estimate(work, machines.of(n), chosen, batch, seed) for n in kept]
    return Simulation(work.name, _words(method, chosen), machines, rows)


def require_batch(op: str, batch: Any, machines: Machines) -> None:
    """Raise ArgumentError for an invalid batch, or one with fewer examples than devices."""
    if batch is None:
        return
    require_number(op, "batch", batch, beyond=True)
    if batch < machines.devices:
        raise ArgumentError(
            "there are more devices than examples",
            op=op,
            argument="batch",
            received=f"{batch:g}",
            expected=f"at least {machines.devices}",
        )


def estimate(
    work: Workload, machines: Machines, options: Any, batch: float | None, seed: int = 0
) -> Estimate:
    """A step on all of these machines, compared with one device for the whole batch."""
    own = work.batch if batch is None else batch / machines.devices
    later = isinstance(options, ParameterServers) and options.mode == "asynchronous"
    step: Step = (
        asynchronous_step(options, work, machines, own, seed)
        if later
        else options.checked(machines).step(work, machines, own)
    )
    failures = machines.failures
    if failures is not None:
        # A failure stops all others, unless none waits for it.
        lost = 1 + failures.restart / failures.mean_time
        step = with_failures(step, lost if later else failures.factor(machines.count))
    alone = work.batch if batch is None else batch
    one = alone / (work.seconds(alone) + work.update)
    return Estimate.of(step, machines, one)


def _options(method: str, given: Mapping[str, Any], machines: Machines) -> Any:
    """The options of a method, checked."""
    kind = METHODS.get(method) if isinstance(method, str) else None
    if kind is None:
        raise ArgumentError(
            f"there is no {short_repr(method)}",
            op="simulate",
            argument="method",
            expected="one of " + ", ".join(METHODS),
        )
    unknown = [name for name in given if name not in kind._fields]
    if unknown:
        raise KeywordError(
            f"{method} has no such option",
            op="simulate",
            argument=unknown[0],
            expected="one of " + ", ".join(kind._fields),
        )
    made = kind(**given)
    made.checked(machines)
    return made


def _counts(count: int) -> list[int]:
    """The powers of two up to a number, of four if there are many, and the number."""
    powers = (1 << i for i in range(count.bit_length()))
    return sorted({n for n in powers if n <= MANY or n.bit_length() % 2} | {count})


def _fits(options: Any, machines: Machines) -> bool:
    """Whether the options are also valid for these, fewer, machines."""
    try:
        options.checked(machines)
    except ArgumentError:
        return False
    return True


def _words(method: str, options: Any) -> str:
    """The method with the options that were given."""
    plain = type(options)()
    given = [
        f"{name} {value}"
        for name, value in options._asdict().items()
        if value != getattr(plain, name)
    ]
    return f"{method} ({', '.join(given)})" if given else method
