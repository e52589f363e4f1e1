"""Graphs over tasks, and their results on one device."""

import numpy as np

import eagerflow as ef
from eagerflow.errors import EagerflowError
from eagerflow.plan.replay import replay_of
from tests.capture.placement.several_devices import bits, given_back, random_program


def check_random_programs(cluster, seeds):
    """Random programs over random places have the bits of one device, over several runs."""
    names = [str(d) for d in cluster.devices()]
    for seed in seeds:
        graph, inputs, variables = random_program(seed, names)
        whole = replay_of(graph, "exact")
        begin = [v.value for v in variables]
        wanted = given_back(variables, lambda: [*whole.run(inputs), *whole.run(inputs)])  # noqa: B023
        feeds = dict(zip(graph.inputs, inputs, strict=True))
        with ef.capture.Session(graph, cluster=cluster, numerics="exact") as session:
            found = []
            for _ in range(2):
                got = session.run(["last", "middle"], feeds, targets=graph)
                found += [got[("last", "middle").index(name)] for name in graph.outputs.names]
            found += [session.variables.get(v.name, v) for v in variables]
        assert bits(found) == bits(wanted), seed
        for v, value in zip(variables, begin, strict=True):
            v.current = value


def training_step(hidden="/job:worker/task:0", output="/job:ps/task:0", size=16):
    """A step of a network of two layers, whose second lies elsewhere; graph and Variables."""
    rng = np.random.default_rng(1)

    def weights(name, *shape):
        return ef.Variable((rng.standard_normal(shape) * 0.2).astype("float32"), name=name)

    with ef.device(hidden):
        w1, b1 = weights("w1", 64, size), weights("b1", size)
    with ef.device(output):
        w2, b2 = weights("w2", size, 10), weights("b2", 10)
    variables = [w1, b1, w2, b2]

    def step(x, labels):
        with ef.GradientTape() as tape:
            with ef.device(hidden):
                h = ef.tanh(x @ w1 + b1)
            with ef.device(output):
                logits = h @ w2 + b2
                loss = -ef.mean(ef.sum(ef.log_softmax(logits, axis=-1) * labels, axis=-1))
        for v, g in zip(variables, tape.gradient(loss, variables), strict=True):
            v.assign_sub(0.5 * g)
        return {"loss": loss}

    batch = 60
    graph = ef.capture.trace(
        step, ef.TensorSpec((batch, 64), "float32"), ef.TensorSpec((batch, 10), "float32")
    )
    return graph, variables


def error_of(f):
    """The error of ours that a call raises."""
    try:
        f()
    except EagerflowError as error:
        return error
    raise AssertionError("it has not failed")


def trained_on(make, batches, own=None):
    """A model after steps on batches, by a strategy or without one, and its numbers."""
    model = make()
    model(batches[0][0])
    step = model.python_step("train")[0]
    if own is not None:
        step = own.step(step)
    for x, y in batches:
        step(x, y)
    if own is not None:
        own.merge()
    return model, model.logs()
