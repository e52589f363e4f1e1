"""Training steps of a large table along the rows that were looked up, against PyTorch's.

The peer has `Embedding(sparse=True)` with SGD and SparseAdam. Also a step that writes a slice of a
large Variable, and one that writes scattered elements, against NumPy's own indexed writes. And rows
of a table in a task of a cluster (a process that Ray starts), against those of a small one.
"""

import numpy as np
import torch
from harness import agree, arguments, compare, report, save

import eagerflow as ef

ROWS, WIDTH, LOOKUPS = 1_000_000, 64, 256
TASK_ROWS, TASK_WIDTH, TASK_LOOKUPS = (100_000, 5_000), 32, 64
RATE = 0.01
IDS = np.random.default_rng(0).permutation(ROWS)[:LOOKUPS]
OPTIMIZERS = {
    "SGD": (ef.nn.optimizers.SGD, torch.optim.SGD),
    "Adam": (ef.nn.optimizers.Adam, torch.optim.SparseAdam),
}


def ours(optimizer, captured):
    """A step that gives the loss."""
    table, ids = ef.Variable(np.ones((ROWS, WIDTH), "float32")), ef.tensor(IDS)

    def step(ids):
        with ef.GradientTape() as tape:
            rows = ef.embedding_lookup(table, ids, sparse_gradient=True)
            loss = (rows * rows).sum()
        optimizer.apply([tape.gradient(loss, table)], [table])
        return loss

    run = ef.function(step) if captured else step
    return lambda: run(ids)


def pytorch(make):
    """The same of PyTorch."""
    table = torch.nn.Embedding(ROWS, WIDTH, sparse=True)
    torch.nn.init.ones_(table.weight)
    optimizer, ids = make(table.parameters(), lr=RATE), torch.from_numpy(IDS)

    def step():
        optimizer.zero_grad()
        rows = table(ids)
        loss = (rows * rows).sum()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def training(name, rounds):
    """The row of an optimizer."""
    own, peer = OPTIMIZERS[name]
    steps = {
        "captured": ours(own(RATE), True),
        "eager": ours(own(RATE), False),
        "PyTorch": pytorch(peer),
    }
    agree(name, {who: [step() for _ in range(3)] for who, step in steps.items()}, 1e-3)
    return compare(name, steps, "captured", "PyTorch", rounds, target=1.0)


def writes(name, index, count, rounds):
    """The row of a step that writes to a part of a Variable."""
    variable = ef.Variable(np.zeros(400_000, "float32"))
    plain, values = np.zeros(400_000, "float32"), np.ones(count, "float32")
    own = ef.tensor(values)

    @ef.function
    def step(values):
        variable.assign(variable.value.at[index].set(values))
        return values

    def numpy_step():
        plain[index] = values
        return values

    steps = {"captured": lambda: step(own), "NumPy": numpy_step}
    agree(name, {who: [step()] for who, step in steps.items()}, 0)
    agree(name, {"captured": [variable.numpy()], "NumPy": [plain]}, 0)
    return compare(name, steps, "captured", "NumPy", rounds)


def in_task(cluster, rows):
    """A run of one worker that writes rows of a table in another task, and gives their old sum."""
    place = str(cluster.devices()[1])
    with ef.device(place):
        table = ef.Variable(np.ones((rows, TASK_WIDTH), "float32"), name="table")

    def step(ids, new):
        with ef.device(place):
            old = ef.take(table, ids, axis=0).sum()
            table.assign(table.value.at[ids].set(new))
        return {"old": old}

    specs = ((TASK_LOOKUPS,), "int64"), ((TASK_LOOKUPS, TASK_WIDTH), "float32")
    graph = ef.capture.trace(step, *[ef.TensorSpec(*spec) for spec in specs])
    session = ef.capture.Session(graph, cluster=cluster)
    new = np.full((TASK_LOOKUPS, TASK_WIDTH), 2.0, "float32")
    feeds = {"ids": np.random.default_rng(0).permutation(rows)[:TASK_LOOKUPS], "new": new}
    return lambda: session.run("old", feeds, targets=graph).numpy()


def task_writes(rounds):
    """The row of tables in a task."""
    with ef.cluster.Cluster({"worker": 2}) as cluster:
        steps = {f"{rows:,} rows": in_task(cluster, rows) for rows in TASK_ROWS}
        large, small = steps
        agree("in a task", {who: [step() for _ in range(2)] for who, step in steps.items()}, 0)
        return compare("a table in a task", steps, large, small, rounds, target=1.25)


def main():
    """All tables."""
    given = arguments(__doc__)
    rows = [training(name, given.rounds) for name in OPTIMIZERS]
    scattered = np.random.default_rng(1).permutation(400_000)[:5_000]
    rows += [
        writes("a slice of 200,000", slice(0, 200_000), 200_000, given.rounds),
        writes("5,000 elements", scattered, 5_000, given.rounds),
    ]
    rows.append(task_writes(given.rounds))
    report("steps along rows", rows)
    if given.json:
        save("row_steps", rows, {"torch": torch.__version__})


if __name__ == "__main__":
    main()
