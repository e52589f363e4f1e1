"""Random programs as Python text: each seed gives a function that people can read and run.

A program grows statement by statement; each one is tried eagerly, with two batch sizes, and kept
if it works and its numbers stay moderate. Programs read and assign Variables, draw random
numbers, branch, loop, call captured functions and take gradients.
"""

import linecache
import random

import numpy as np

import eagerflow as ef
from eagerflow import tree
from eagerflow.errors import EagerflowError

SMOOTH = """
ef.tanh({a}) | ef.sin({a}) | ef.cos({a} * 0.5) | ef.sigmoid({a}) | ef.exp(ef.tanh({a}))
ef.gelu({a}) | ef.softplus({a}) | ef.silu({a}) | ef.erf({a}) | ef.square({a}) * 0.5 | -{a}
ef.sqrt(ef.abs({a}) + 0.5) | ef.log(ef.abs({a}) + 1.5) | 1.0 / (ef.abs({a}) + 1.0) | {a} ** 2
ef.log1p(ef.square({a})) | ef.atan({a}) | ef.expm1(ef.tanh({a})) | {a} * 0.5 + scale | {a} * k
{a} + {b} | {a} - {b} | {a} * {b} | {a} / (ef.abs({b}) + 1.0) | {a} + {b} * scale | 2 - {a}
ef.atan2({a}, ef.abs({b}) + 0.5) | ef.hypot({a}, {b} + 0.1) | ef.logaddexp({a}, {b}) | {a} - k
ef.sum({a}) * 0.1 | ef.sum({a}, axis=0) | ef.mean({a}, axis=-1, keepdims=True) | ef.mean({a})
ef.var({a}, axis=-1) | ef.std({a} + ef.arange(4) * 0.5) | ef.logsumexp({a}, axis=0)
ef.prod(ef.cos({a}), axis=-1)
ef.cumulative_sum({a}, axis=-1) | ef.linalg.vector_norm({a} + 0.5, axis=-1)
ef.tanh({a} @ {b}) | ef.tanh({a} @ state.W) | {a} @ state.w
ef.einsum("...i,...j->...ij", {a}, {b})
ef.einsum("ij,kj->ik", {a}, {b}) | ef.tensordot({a}, state.W, axes=1) | ef.matmul({a}, {b}.mT) * 0.3
ef.reshape({a}, (-1,)) | ef.reshape({a}, (2, -1)) | ef.reshape({a}, ({a}.shape[0], -1)) | {a}.mT
ef.permute_dims({a}) | ef.expand_dims({a}, axis=0) | ef.squeeze(ef.expand_dims({a}, axis=1), axis=1)
ef.broadcast_to({a}, (2, *{a}.shape)) | ef.flip({a}, axis=-1) | ef.roll({a}, 1, axis=-1)
ef.tile({a}, (2, 1)) | ef.repeat({a}, 2, axis=-1) | ef.concat([{a}, {b}], axis=0)
ef.concat([{a}, {a} * 2.0, {b}], axis=-1) | ef.stack([{a}, {b}]) | ef.unstack({a}, axis=-1)[1]
ef.split({a}, 2, axis=-1)[0] | ef.pad({a}, ((0, 0), (1, 2))) | ef.moveaxis({a}, 0, -1)
{a}[0] | {a}[..., -1] | {a}[::2] | {a}[1:] | {a}[..., 1:3] | {a}[None] | {a}[[0, 1]]
{a}[:, ::-1] | {a}[..., ef.tensor([2, 0, 1])] | ef.take({a}, ef.tensor([1, 0]), axis=-1)
{a}.at[0].set(0.5) | {a}.at[..., 0].add({b}[..., 1]) | {a}.at[..., 1].multiply(scale)
ef.softmax({a}, axis=-1) | ef.log_softmax({a}, axis=-1) | ef.layer_norm({a}) | ef.rms_norm({a})
ef.softmax({a}) * state.b | {a} * state.w | {a} + state.w * state.b | {a} * state.b.value
{a} * OFFSET | {a} + TABLE["bias"] * 0.5 | ef.stop_gradient({a}) + {b} | ef.tril({a})
state.rng.normal({a}.shape, dtype="float32").astype({a}.dtype) * 0.1 + {a}
ef.random.uniform({a}.shape, dtype="float32").astype({a}.dtype) + {a}
ef.cond(ef.sum({a}) > -1e6, lambda v: ef.tanh(v) * state.b, lambda v: v * 2.0, {a})
ef.cond(k > 2, lambda: {a} * 2.0, lambda: {a} - 1.5)
ef.switch(k, [lambda v: v + 1.0, lambda v: ef.sin(v), lambda v: v * 0.5], {a} * 1.0)
ef.fori_loop(0, 3, lambda i, c: ef.tanh(c * 0.9 + {b}), {a} + {b})
ef.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, ef.sin(c[1]) * scale), (ef.tensor(0), \
{a}), maximum_iterations=5)[1]
ef.scan(lambda c, r: (ef.tanh(c + r), c * r), {a}[0], {a})[0]
ef.scan(lambda c, r: (c * 0.5 + r, (c, r * state.b)), {a}[0], {a})[1][1]
ef.scan(lambda c, r: (ef.cond(ef.sum(r) > -1e6, lambda: c + r, lambda: c), c), {a}[0], {a}, \
reverse=True)[1]
ef.map(lambda r: ef.softmax(r) * 2.0, {a}) | ef.map(lambda r: ef.sum(r) * state.b, {a})
ef.vmap(lambda r: ef.tanh(r) * ef.mean(r))({a})
ef.vmap(lambda r, s: r @ s, in_axes=(0, None))({a}, state.w)
ef.grad(lambda v: ef.sum(ef.tanh(v) * v))({a}) | ef.checkpoint(lambda v: ef.sin(ef.tanh(v)))({a})
ef.grad(lambda v: ef.sum(ef.checkpoint(lambda u: ef.tanh(u * state.b))(v)))({a})
ef.grad(lambda v: ef.sum(ef.scan(lambda c, r: (ef.tanh(c + r), c), v[0], v)[1]))({a})
ef.jvp(lambda v: ef.sin(v) * v, ({a},), ({a} * 0.5,))[1]
ef.vmap(ef.grad(lambda r: ef.sum(ef.square(r) * r)))({a}) | state.inner({a})
state.inner({a} * scale)
ef.grad(lambda v: ef.sum(state.inner(v)))({a}) | state.method({a})
ef.dropout({a}, 0.3, generator=state.rng)
"""
"""Expressions without steps, so that a rounding error stays one."""

ROUGH = """
ef.floor({a} * 2.0) | ef.sign({a}) * {b} | {a} // 0.7 | {a} % 0.9 | ef.round({a} * 3.0)
ef.relu({a}) | ef.abs({a}) | ef.maximum({a}, {b}) | ef.minimum({a}, 0.3) | ef.clip({a}, -0.5, 0.5)
ef.where({a} > {b}, {a}, {b} * 2.0) | ef.where({a} > 0, {a}, 0.0) | ef.max({a}, axis=-1)
ef.min({a})
ef.sort({a}, axis=-1) | ef.argsort({a}, axis=-1) * 0.5 | ef.argmax({a}, axis=-1) * 1.5
ef.one_hot(ef.argmax({a}, axis=-1) % 4, 4) | ef.top_k({a}, 2)[0]
ef.take_along_axis({a}, ef.argsort({a}, axis=-1), axis=-1)
ef.astype({a} > 0.1, "float32") | {a}.astype("float64") * 0.3 | {a}.astype("float16")
{a}.astype("bfloat16") * 1.5
({a} * 3.0).astype("int32") | ef.sum({a} > 0) * 0.5 | ef.any({a} > 0.3, axis=-1) | ef.all({a} < 9.0)
ef.logical_and({a} > 0, {b} < 0.5) | ef.isnan({a}) | ef.nextafter({a}, 1.0) | ef.copysign({a}, {b})
ef.searchsorted(ef.sort({a}[0]), 0.1) | ef.count_nonzero({a} > 0) | ef.diff({a}, axis=-1)
ef.abs({a} + 1j * {b}) | ef.real(ef.conj({a} + 2j) * {b}) | ef.trunc({a} * 2.0) | ef.ceil({a})
ef.cond(ef.sum({a}) > 0, lambda: {a} * 2.0, lambda: ef.sin({a}))
ef.switch(ef.astype(ef.sum({a}), "int32"), [lambda v: v, lambda v: v * 2.0, ef.negative], \
{a} * 1.0)
ef.while_loop(lambda c: ef.sum(ef.abs(c)) > 1.0, lambda c: c * 0.5, {a} * 1.0)
ef.while_loop(lambda c: ef.max(c) > 0.2, lambda c: ef.cond(ef.min(c) < 0, lambda: c * 0.5, \
lambda: c - 0.4), {a} * 1.0)
ef.gather({a}, ef.astype(ef.abs({b}[..., 0]), "int32") % 2)
ef.segment_sum({a}, ef.arange({a}.shape[0]) % 2, 2)
state.rng.integers(0, 5, {a}.shape) * {a} | ef.random.bernoulli(0.5, {a}.shape)
state.rng.permutation({a})
ef.max_pool({a}[None, :, :, None], 2)[0, ..., 0]
ef.where(state.rng.uniform({a}.shape) < 0.5, {a}, -{a})
"""
"""Expressions with steps, of other dtypes, and with results that a last bit decides."""

EFFECTS = """
state.w.assign(ef.tanh(state.w + {a}.mean() * 0.1))
state.b.assign_add(ef.mean({a}) * 0.01)
state.b.assign(ef.sin(state.b) + scale * 0.1)
state.w.assign_sub(0.1 * ef.tanh(state.w))
state.W.assign(state.W * 0.9 + ef.reshape(state.w, (4, 1)) * 0.1)
state.count.assign_add(1)
state.count.assign(state.count * 2 + k)
ef.cond(ef.sum({a}) > -1e6, lambda: state.b.assign_add(0.5).value, lambda: state.b * 1.0)
ef.cond(k > 2, lambda: (state.count.assign_add(k), state.w.assign(state.w * 0.5), None)[2], \
lambda: None)
ef.fori_loop(0, 3, lambda i, c: (state.w.assign(ef.cos(state.w + c)), c * 0.5)[1], scale + \
ef.zeros(()))
ef.scan(lambda c, r: (state.b.assign(ef.sin(state.b + ef.mean(r))), (c + 1, c))[1], ef.tensor(0), \
{a})
state.update({a})
state.step({a})
"""
"""Statements with effects on Variables."""

TAPES = """
    with ef.GradientTape() as tape:
        tape.watch({a})
        loss = ef.mean(ef.square(ef.tanh({a}) * state.b + ef.sum(state.w)))
    {r}, gradient = tape.gradient(loss, [{a}, state.w])
    state.w.assign_sub(0.1 * gradient)
|
    with ef.GradientTape(persistent=True) as tape:
        tape.watch({a})
        u = state.inner({a}) * ef.sin({b})
        z = ef.sum(u * u)
    {r} = tape.gradient(z, {a}) + ef.sum(tape.gradient(u, {a}))
|
    with ef.GradientTape() as outer:
        outer.watch({a})
        with ef.GradientTape() as tape:
            tape.watch({a})
            z = ef.sum(ef.sin({a}) * {a})
        first = tape.gradient(z, {a})
    {r} = outer.gradient(first, {a})
|
    {r} = {a}
    for i in range(3):
        {r} = ef.tanh({r} + {b} * (i + 0.5))
|
    if {a}.ndim > 1 and TABLE["flag"]:
        {r} = {a} * TABLE["bias"]
    else:
        {r} = {a} - len(TABLE)
|
    columns = [ef.sin(column) for column in ef.unstack({a}, axis=-1)]
    {r} = sum(columns[1:], columns[0])
|
    parts = {{"a": {a}, "b": ({b}, [{a} * 2.0])}}
    {r} = parts["b"][1][0] + parts["a"]
|
    {r} = ef.vmap(ef.vmap(lambda s: ef.cond(s > -9.0, lambda: s * 2.0, lambda: s)))({a})
"""

RESULTS = (
    "{last}",
    "({last}, {before})",
    '{{"last": {last}, "rest": [{before}, {first}]}}',
    "[{last}, {{'n': 3, 'w': state.w}}, ({before}, None)]",
    "({last}, ef.sum({before}), k)",
)


def listed(text):
    """The expressions of a table: one each between bars and ends of lines."""
    return [part.strip() for line in text.strip().splitlines() for part in line.split(" | ")]


EXPRESSIONS = {"smooth": listed(SMOOTH), "rough": listed(ROUGH)}
STATEMENTS = [part.strip("\n") for part in TAPES.split("\n|\n")]
LARGEST = 50.0
HUGE = 400  # elements


class State:
    """State kept between the calls of a program; ``capture`` says to capture its parts."""

    def __init__(self, seed, dtype="float32", capture=False):
        rng = np.random.default_rng(seed)
        self.w = ef.Variable(rng.uniform(-1, 1, 4).astype("float32").astype(dtype), name="w")
        self.W = ef.Variable(rng.uniform(-1, 1, (4, 4)).astype("float32").astype(dtype), name="W")
        self.b = ef.Variable(np.asarray(0.75, dtype), name="b")
        self.count = ef.Variable(np.asarray(1, "int64"), name="count")
        self.momentum = [
            ef.Variable(np.zeros(s, dtype), name=f"momentum_{i}", trainable=False)
            for i, s in enumerate([(4,), (4, 4)])
        ]
        self.rng = ef.random.Generator(seed)
        self.rate = 0.05
        if capture:
            self.inner = ef.function(self.inner, numerics="exact")
            self.method = ef.function(self.method, numerics="exact")

    @property
    def variables(self):
        return [self.w, self.W, self.b, self.count, *self.momentum]

    def inner(self, v):
        return ef.tanh(v * self.b) + ef.sum(v) * self.rate

    def method(self, v):
        return ef.sin(v) * self.rate + self.b

    def update(self, a):
        """Moving averages."""
        for variable, momentum in zip((self.w, self.W), self.momentum, strict=True):
            momentum.assign(0.9 * momentum + 0.1 * variable * ef.mean(a))

    def step(self, a):
        """One step of gradient descent with momentum."""
        with ef.GradientTape() as tape:
            loss = ef.mean(ef.square(ef.tanh(ef.mean(a) + self.w @ self.W) * self.b))
        pairs = zip((self.w, self.W), self.momentum, strict=True)
        for (variable, momentum), g in zip(
            pairs, tape.gradient(loss, [self.w, self.W]), strict=True
        ):
            momentum.assign(0.9 * momentum - self.rate * g)
            variable.assign_add(momentum)


def names_of(state):
    """The global names of a program."""
    return {"ef": ef, "state": state, "OFFSET": 1.25, "TABLE": {"bias": 0.5, "flag": True}}


class Program:
    """The text of a program; ``function(state)`` makes a function of it."""

    def __init__(self, seed, lines, result):
        self.seed = seed
        self.lines = lines
        self.result = result
        self.file = f"<program {seed}>"

    @property
    def text(self):
        body = "\n".join(self.lines)
        return f"def program(x, y, scale, k):\n{body}\n    return {self.result}\n"

    def function(self, state, name="program"):
        """The program as a function; its Variables are those of ``state``."""
        names = {"__name__": "programs"} | names_of(state)
        text = self.text
        linecache.cache[self.file] = (len(text), None, text.splitlines(keepends=True), self.file)
        exec(compile(text, self.file, "exec"), names)
        return names[name]


def inputs(seed, size, dtype="float32"):
    """Arguments for a batch of this size."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1.5, 1.5, (size, 4)).astype("float32").astype(dtype)
    y = rng.uniform(-1.5, 1.5, (size, 4)).astype("float32").astype(dtype)
    scale, k = float(np.float32(rng.uniform(0.5, 1.5))), int(rng.integers(1, 5))
    return [ef.tensor(x), ef.tensor(y), scale, k]


def is_moderate(value):
    """Whether a result is a tensor that a program goes on with."""
    if not isinstance(value, ef.Tensor) or value.size > HUGE or value.size == 0:
        return False
    array = np.asarray(value.numpy(), dtype=complex)
    return bool(np.isfinite(array).all() and np.abs(array).max() < LARGEST)


class Writer:
    """Grows one program."""

    def __init__(self, seed, steps, kind, sizes):
        self.random = random.Random(seed)
        self.seed = seed
        self.kind = kind
        self.sizes = sizes
        self.names = ["x", "y"]
        self.lines = []
        self.states = [State(seed) for _ in sizes]
        self.spaces = []
        for n, state in zip(sizes, self.states, strict=True):
            given = zip(("x", "y", "scale", "k"), inputs(seed, n), strict=True)
            self.spaces.append(names_of(state) | dict(given))
        ef.random.seed(seed)
        tries = 0
        while len(self.names) < steps + 2 and tries < 60 * steps:
            tries += 1
            self.grow()

    def grow(self):
        """Try one more statement."""
        pick = self.random
        name = f"v{len(self.names) - 2}"
        a, b = (pick.choice(self.names[-4:]) for _ in range(2))
        what = pick.random()
        if what < 0.12:
            line, made = f"    {pick.choice(listed(EFFECTS))}".format(a=a, b=b), None
        elif what < 0.24:
            line, made = pick.choice(STATEMENTS).format(a=a, b=b, r=name), name
        else:
            kind = "smooth" if self.kind == "smooth" or pick.random() < 0.6 else "rough"
            line, made = f"    {name} = {pick.choice(EXPRESSIONS[kind])}".format(a=a, b=b), name
        scalar = any(space[n].ndim == 0 for space in self.spaces for n in (a, b))
        if "axis" in line and scalar:
            return  # eager calls take axis -1 of a tensor without axes, as NumPy does
        if self.works(line, made):
            self.lines.append(line)
            if made:
                self.names.append(made)

    def works(self, line, made):
        """Whether a statement runs with all batch sizes and its results are moderate."""
        code = compile("if True:\n" + line, "<trial>", "exec")
        for space, state in zip(self.spaces, self.states, strict=True):
            try:
                exec(code, space)
            except (EagerflowError, TypeError, IndexError, ValueError):
                return False
            if made and not is_moderate(space[made]):
                return False
            if not all(is_moderate(v.value) for v in state.variables):
                return False
        return True

    def program(self):
        """The program as it is now."""
        last, before, first = self.names[-1], self.names[-2], self.names[2 % len(self.names)]
        result = self.random.choice(RESULTS).format(last=last, before=before, first=first)
        return Program(self.seed, self.lines, result)


def program(seed, kind="smooth", steps=8, sizes=(3, 5)):
    """A random program of a seed; ``kind`` is ``"smooth"`` or ``"rough"``."""
    return Writer(seed, steps, kind, sizes).program()


def leaves(nest):
    """All tensors of a result as arrays, and its other leaves."""
    found = []
    for x in tree.flatten(nest)[0]:
        if isinstance(x, ef.Variable):
            x = x.value
        found.append(x.numpy() if isinstance(x, ef.Tensor) else x)
    return found
