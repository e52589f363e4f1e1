"""Updates of optimizers: state that is shared or lost, and rates that no longer change."""

import copy
import pickle

import numpy as np

import eagerflow as ef
from tests.silent_bugs.index import cases
from tests.silent_bugs.ways import compare, floats

STEPS = 6


def gradients(n=7):
    return [floats(n, seed=s) for s in range(1, STEPS + 1)]


def trained(optimizer, value, grads, apply=lambda f: f):
    """The values of a Variable after each step."""
    v = ef.Variable(value)
    optimizer.build([v])
    step = apply(lambda g: optimizer.apply([g], [v]))
    found = []
    for g in grads:
        step(ef.tensor(g))
        found.append(v.numpy().copy())
    return found


def pytorch_196083():
    """Two optimizers shared their moments after the state of one was given to the other."""
    value, grads = floats(7), gradients()
    alone = trained(ef.nn.optimizers.Adam(0.1), value, grads)
    for clone in (copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))):
        v = ef.Variable(value)
        first = ef.nn.optimizers.Adam(0.1)
        first.build([v])
        first.apply([ef.tensor(grads[0])], [v])
        second, w = clone((first, v))
        for k in range(1, STEPS):
            for _ in range(3):
                second.apply([ef.tensor(grads[k] * 5 + 1)], [w])
            first.apply([ef.tensor(grads[k])], [v])
            compare(v, alone[k])
    x = ef.Variable(value)
    other = ef.nn.optimizers.Adam(0.1)
    other.build([x])
    source = ef.nn.optimizers.Adam(0.1)
    y = ef.Variable(value)
    source.build([y])
    for own, theirs in zip(other.variables, source.variables, strict=True):
        own.assign(theirs)
    for k in range(STEPS):
        source.apply([ef.tensor(grads[k] * 2)], [y])
        other.apply([ef.tensor(grads[k])], [x])
        compare(x, alone[k])


def pytorch_121186():
    """Making the state of an optimizer moved the weights by their decay."""
    value = floats(5)
    for kind in ("Adam", "AdamW", "SGD", "RMSprop", "Lion", "Adagrad", "Nadam", "Adamax", "Lamb"):
        v = ef.Variable(value)
        optimizer = getattr(ef.nn.optimizers, kind)(learning_rate=0.1, weight_decay=0.5)
        optimizer.build([v])
        np.testing.assert_array_equal(v.numpy(), value)
        assert int(np.asarray(optimizer.iterations)) == 0


def pytorch_74424():
    """The number of steps of a restored optimizer had another dtype, and stopped counting."""
    value, grads = floats(7), gradients()
    alone = trained(ef.nn.optimizers.Adam(0.1), value, grads)
    v = ef.Variable(value)
    optimizer = ef.nn.optimizers.Adam(0.1)
    optimizer.build([v])
    for k, g in enumerate(grads):
        optimizer.apply([ef.tensor(g)], [v])
        compare(v, alone[k])
        assert int(np.asarray(optimizer.iterations)) == k + 1
        optimizer, v = pickle.loads(pickle.dumps((optimizer, v)))


def tensorflow_53064():
    """A loaded model began with empty moments, without a word."""
    x, y = floats(16, 3), floats(16, 2, seed=1)

    def model():
        made = ef.nn.Sequential([ef.nn.Dense(4, activation="tanh"), ef.nn.Dense(2)])
        made.compile(optimizer=ef.nn.optimizers.Adam(0.05), loss="mse")
        return made

    first = model()
    first.fit(x, y, batch_size=8, epochs=2, shuffle=False, verbose=0)
    second = pickle.loads(pickle.dumps(first))
    third = copy.deepcopy(first)
    for other in (first, second, third):
        other.fit(x, y, batch_size=8, epochs=2, shuffle=False, verbose=0)
    for a, b, c in zip(first.weights, second.weights, third.weights, strict=True):
        compare((b, c), (a.numpy(), a.numpy()), rtol=0, atol=0)


@cases("optimizers", globals())
def test_case(case):
    case()
