"""Generates a random program from a seed: Variables, layers, an optimizer, steps, user actions.

A program has definitions, captured functions (``Body``), and a script of statements that call the
functions and do what users do between calls. Candidate statements of functions are executed
eagerly, and kept if they raise nothing and give numbers of moderate size.

To add an expression, a layer or an action between steps, add a line to the table of its kind in
``tables.py``. To add a kind of action, add a table there and name it in ``ProgramBuilder.action``.
"""

import dataclasses
import random
import re
import warnings

import numpy as np

import eagerflow as ef
from tests.programs import helpers, tables

SMALL = (1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 31, 33)
LARGE = (
    (40_000,),
    (32_769,),
    (65_537,),
    (33, 1_001),
    (181, 182),
    (64, 17, 33),
    (8, 65, 64),
    (32, 128, 64),
    (2, 20_011),
    (3, 7, 11, 160),
    (300_000,),
    (256, 128),
    (128, 257),
    (70, 31, 16),
)
"""Shapes of 128 KiB and more in float32, where values of Variables are updated in place."""
VECTORS = re.compile(r"_distance|_similarity")
ROWS = re.compile(r"ef\.(scan|map)\(")
LARGEST, HUGE = 30.0, 400_000


@dataclasses.dataclass
class Body:
    """A captured function: its statements, each with the names it makes, and its results."""

    name: str
    parameters: str
    lines: list
    result: str


@dataclasses.dataclass
class Program:
    """The parts of a program; ``text`` is what a person can run."""

    seed: int
    floats: str
    half: str
    is_object: bool
    definitions: list
    bodies: list
    script: list
    features: set

    def dialect(self, text, inside=True):
        return text.replace("$", ("self." if inside else "me.") if self.is_object else "")

    def setup(self):
        """The definitions and functions as text."""
        lines = [
            f'F, H, TORCH = "{self.floats}", "{self.half}", getattr(torch, "{self.floats}", None)',
            f"ef.random.seed({self.seed})",
            f"rng = np.random.default_rng({self.seed})",
            *(x for x in self.definitions if "$" not in x),
        ]
        own = [self.dialect(x) for x in self.definitions if "$" in x]
        if self.is_object:
            lines += ["class Program:", "    def __init__(self):", *indented(own, 8)]
            for body in self.bodies:
                lines += indented(self.function(body), 4)
            lines.append("me = Program()")
        else:
            lines += own
            for body in self.bodies:
                lines += self.function(body)
        return "\n".join(lines)

    def function(self, body):
        parameters = ", ".join((["self"] if self.is_object else []) + [body.parameters])
        how = "nested" if body.name in ("inner", "embedded") else "capture"
        lines = [f"@{how}", f"def {body.name}({parameters}):"]
        inside = [line for statement in body.lines for line in statement.split("\n")]
        if body.name == "step":
            inside.insert(0, "x, i = ef.asarray(x), ef.asarray(i)")
        elif body.name == "other":
            inside.insert(0, "x = ef.asarray(x)")
        if not self.is_object:
            rebound = [n for n in ("rate", "table") if any(f"${n} =" in s for s in inside)]
            inside = [f"global {n}" for n in rebound] + inside
        return lines + indented(map(self.dialect, [*inside, f"return {body.result}"]), 4)

    def statements(self):
        return [self.dialect(line, False) for line in self.script]


def indented(lines, count):
    return [" " * count + line for text in lines for line in text.split("\n")]


def generate(seed):
    """The program of a seed."""
    for attempt in range(50):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            made = ProgramBuilder(seed, attempt).program()
        if made is not None:
            return made
    raise AssertionError(f"no program for seed {seed}")


class ProgramBuilder:
    """Builds one program; ``env`` has the eager values of its names."""

    def __init__(self, seed, attempt):
        self.seed, self.r = seed, random.Random(f"{seed}/{attempt}")
        r = self.r
        self.floats = r.choices(("float32", "float64", "float16", "bfloat16"), (70, 8, 13, 9))[0]
        self.half = r.choice(("float16", "bfloat16", "float32"))
        self.large = r.random() < 0.45
        self.features = set()
        if self.large:
            self.shape = r.choice(LARGE)
        else:
            self.shape = tuple(r.choice(SMALL) for _ in range(r.choice((0, 1, 2, 2, 2, 3, 3, 4))))
        self.env = {}
        self.embedded = False
        self.number = 0

    def fresh(self, letter):
        self.number += 1
        return f"{letter}{self.number}"

    # Values ------------------------------------------------------------------------------------

    def shapes(self):
        """Shapes that go with the program's own: itself, its ends, and with axes of size 1."""
        whole = self.shape
        ends = [whole[k:] for k in range(len(whole) + 1)]
        thin = [tuple(1 if self.r.random() < 0.5 else n for n in whole)]
        return [*ends, *thin, whole, whole]

    def define(self):
        r, lines = self.r, []
        shape = self.shape
        rows = (
            shape if len(shape) > 1 or r.random() < 0.5 or self.large else (r.choice(SMALL), *shape)
        )
        lines.append(f"x0 = numbers(rng, {rows}, F)")
        lines.append("x1 = numbers(rng, x0.shape, F)")
        kind = r.choice(("int32", "int64", "uint8", "int8", "int16", "bool", "uint8"))
        self.ints = kind
        n = r.choice(((1,), (3,), (7, 5), (33,), (2, 8, 3)))
        high = 2 if kind == "bool" else r.choice((5, 100, 120))
        low = -high if kind.startswith("int") and r.random() < 0.5 else 0
        lines.append(f"i0 = rng.integers({low}, {high}, {n}).astype('{kind}')")
        self.variables = []
        for k in range(r.choice((1, 2, 2, 3, 4))):
            name = f"$w{k}"
            form = shape if k == 0 else r.choice(self.shapes())
            if k and r.random() < 0.25:
                u = r.choice(self.variables)
                how = r.choice(("ef.Variable({u})", "copy.deepcopy({u})", "ef.Variable({u}.value)"))
                lines.append(f"{name} = " + how.format(u=u))
                lines.append(f"{name}.name = 'w{k}'")
            else:
                lines.append(f"{name} = ef.Variable(numbers(rng, {form}, F), name='w{k}')")
            self.variables.append(name)
        lines.append("$spare = ef.Variable($w0 * 0.5, name='spare')")
        lines.append("$count = ef.Variable(np.asarray(1, 'int64'), name='count')")
        lines.append("$rate = 0.3")
        lines.append("$table = {'scale': 0.75, 'shift': 0.1}")
        lines.append(f"$keys = ef.random.Generator({self.seed})")
        lines.append("$kernel = numbers(rng, (2, 2, 1, 2), F)")
        self.definitions = lines
        self.env = self.start()
        return lines

    def start(self):
        """The names of helpers and definitions, in a module of their own."""
        env = namespace(identity, identity)
        text = [
            f'F, H, TORCH = "{self.floats}", "{self.half}", getattr(torch, "{self.floats}", None)',
            f"ef.random.seed({self.seed})",
            f"rng = np.random.default_rng({self.seed})",
            *self.definitions,
            "x, i, k = ef.asarray(x0), ef.asarray(i0), 2",
            "inner = lambda v: ef.tanh(v) * 0.5",
            "scaled = lambda v: ef.sin(v) * 0.5",
        ]
        exec("\n".join(text).replace("$", ""), env)
        return env

    # Statements of functions --------------------------------------------------------------------

    def fill(self, template, pool):
        """A template with names and axes put in."""
        r = self.r
        a = r.choice(pool[-3:]) if r.random() < 0.6 else r.choice(pool)
        rank = self.rank(a)
        axes = [*range(-rank, rank)] or [None]
        x = r.choice(axes)
        others = [y for y in axes if rank and (y - x) % rank] or axes
        xx = sorted({x % rank, r.choice(others) % rank}) if rank else ()
        made = {
            "a": a,
            "b": r.choice(pool),
            "w": r.choice(self.variables),
            "u": r.choice(self.variables),
            "m": f"ef.mean({r.choice(pool)})",
            "x": x,
            "y": r.choice(others),
            "xx": tuple(xx) or None,
            "j": r.choice((0, -1, None)),
            "d": r.choice((2, 3, 4, 5, 8, 17)),
        }
        return template.format_map(made | {"r": "{r}", "s": "{s}"})

    def ranks_of(self, text):
        """The largest rank of the values that a statement names."""
        values = [self.env.get(name) for name in re.findall(r"[A-Za-z]\w*", text)]
        return max(getattr(v, "ndim", 0) for v in values)

    def rows_of(self, text):
        """The largest number of rows of the values that a statement names."""
        values = [self.env.get(name) for name in re.findall(r"[A-Za-z]\w*", text)]
        return max((v.shape[0] for v in values if getattr(v, "ndim", 0)), default=0)

    def rank(self, name):
        value = self.env.get(name.replace("$", ""))
        return getattr(value, "ndim", 0)

    def try_statement(self, line, names):
        """Whether a statement works and what it makes is moderate."""
        before = {n: self.env.get(n) for n in names}
        try:
            exec(line.replace("$", ""), self.env)
        except Exception:
            return False
        for n in names:
            value = self.env[n]
            if not isinstance(value, ef.Tensor) or value.size > HUGE or not moderate(value):
                self.env.update(before)
                return False
        return True

    def add_statements(self, pool, count, weights):
        """Statements that make new values of the pool."""
        lines, kinds = (
            [],
            (
                tables.ELEMENTWISE,
                tables.REDUCTIONS,
                tables.PAIRS,
                tables.MOVES,
                tables.PRODUCTS,
                tables.CONTROL,
            ),
        )
        tries = 0
        while len(lines) < count and tries < 12 * count:
            tries += 1
            kind = self.r.choices(kinds, weights)[0]
            template = self.r.choice(kind)
            r, s = self.fresh("v"), self.fresh("v")
            text = self.fill(template, pool)
            if VECTORS.search(template) and not self.ranks_of(text):
                continue  # eagerly NumPy takes -1 as an axis of what has none, graphs refuse it
            if ROWS.search(template) and self.rows_of(text) > 300:
                continue  # an eager loop over many rows takes minutes
            if kind is tables.PAIRS:
                line, names = text.format(r=r, s=s), [r, s]
            else:
                line, names = f"{r} = {text}", [r]
            if self.try_statement(line, names):
                lines.append(line)
                pool += names
                self.outputs += names if kind in (tables.REDUCTIONS, tables.PAIRS) else []
        return lines

    def layer(self, pool):
        """A layer of the program, and a statement that calls it."""
        for _ in range(6):
            name = f"$layer{len(self.layers)}"
            a = self.r.choice(pool)
            text = self.fill(self.r.choice(tables.LAYERS), pool)
            made = self.fresh("v")
            call = f"{a}, {a}" if "MultiHead" in text else a
            if "BatchNormalization" in text:
                call += ", training=True"
            define = f"{name} = {text}"
            if not self.try_statement(define, []) or not self.try_statement(f"{name}({call})", []):
                continue
            if self.try_statement(f"filled({name}, rng, F)\n{made} = {name}({call})", [made]):
                shape = self.shape_of(a)
                example = f"ef.zeros({shape}, dtype=F)"
                both = f"{example}, {example}" if "MultiHead" in text else example
                self.definitions += [define, f"{name}({both})", f"filled({name}, rng, F)"]
                self.layers.append(name)
                pool.append(made)
                return [f"{made} = {name}({call})"]
        return []

    def masked(self, pool):
        """An embedding of the integers that hides zeros, and a layer that obeys, also apart.

        Apart, the embedding is called through a captured function, which hands its mask on.
        """
        r, size = self.r, self.r.choice((2, 3, 5))
        made, ids = self.fresh("v"), "ef.abs(i.reshape(i.shape[0], -1) % 5)"
        embedding = f"ef.nn.Embedding(10, {size}, mask_zero=True, dtype=F)"
        second = r.choice(("LSTM({d}", "GRU({d}", "SimpleRNN({d}", "GRU({d}, go_backwards=True"))
        second = f"ef.nn.{second.format(d=size)}, dtype=F)"
        if r.random() < 0.5:
            layers = [("$layer0", f"ef.nn.Sequential([{embedding}, {second}])")]
            call = f"$layer0({ids})"
        else:
            layers = [("$layer0", embedding), ("$layer1", second)]
            call = f"$layer1($layer0({ids}))"
        define = [f"{name} = {text}" for name, text in layers]
        define += [call.replace(ids, ids.replace("i", "i0").replace("i0nt", "int"))]
        define[-1] = define[-1].replace("ef.abs(i0.", "ef.abs(ef.asarray(i0).")
        define += [f"filled({name}, rng, F)" for name, _ in layers]
        if self.ints == "bool" or not all(self.try_statement(line, []) for line in define):
            return []
        if not self.try_statement(f"{made} = {call}", [made]):
            return []
        self.definitions += define
        self.layers += [name for name, _ in layers]
        pool.append(made)
        if len(layers) > 1 and r.random() < 0.5:
            self.embedded = True
            call = f"$layer1($embedded({ids}))"
        return [f"{made} = {call}"]

    def shape_of(self, name):
        return tuple(self.env[name.replace("$", "")].shape)

    def step(self):
        """The training step, or one that only updates."""
        r = self.r
        self.outputs, self.layers = [], []
        pool = ["x", *self.variables]
        weights = r.choice(
            (
                (6, 3, 2, 3, 2, 2),
                (2, 5, 5, 2, 1, 1),
                (4, 2, 1, 2, 1, 4),
                (10, 2, 1, 1, 0, 0),
                (2, 1, 1, 6, 1, 1),
            )
        )
        first = self.add_statements(["x", self.variables[0]], 1, (1, 0, 0, 0, 0, 0))
        if not first:
            first = ["v0 = x * 1.0"]
            self.try_statement(first[0], ["v0"])
        pool.append(re.match(r"\w+", first[0]).group())
        lines = first + self.add_statements(pool, r.choice((1, 2, 3, 4, 6)), weights)
        if r.random() < 0.12:
            lines += self.masked(pool)
        elif r.random() < 0.3:
            lines += self.layer(pool)
            lines += self.add_statements(pool, r.choice((0, 1, 2)), weights)
        results = []
        if r.random() < 0.7:
            lines, results = self.training(pool, lines)
        lines += self.updates(pool)
        results += self.integers(lines)
        names = [n for n in pool if n != "x"]
        results += [
            n if "$" not in n else f"{n}.value"
            for n in r.sample(names, min(len(names), r.choice((0, 1, 2))))
        ]
        results += r.sample(self.outputs, min(len(self.outputs), r.choice((1, 2, 3))))
        more = (
            "x",
            "x[1:]",
            "x.mT",
            "x.reshape(-1)",
            "$w0.value",
            "$w0.value[0]",
            "$w0.value.reshape(-1)",
            "$w0 * 1.0",
            "i",
            "$count.value",
            "ef.view(x, 'uint8')",
            "ef.view($w0, 'uint8')",
            "ef.view(v0, 'uint8')",
            "$w0.value.T",
        )
        results += [
            m for m in r.sample(more, r.choice((0, 1, 1, 2))) if self.try_statement(f"_ = {m}", [])
        ]
        if not results:
            results = [names[-1] if "$" not in names[-1] else "x"]
        if r.random() < 0.15:
            results.append(r.choice(results))
        r.shuffle(results)
        return Body("step", "x, i, k", lines, structured(r, results))

    def training(self, pool, lines):
        """The statements under a tape, with gradients that are used."""
        r = self.r
        chosen = []
        for _ in range(12):
            text = self.fill(r.choice(tables.LOSSES), pool)
            if self.try_statement(f"loss = {text}", ["loss"]) and self.env["loss"].ndim == 0:
                chosen = [f"loss = {text}"]
                break
        if not chosen:
            return lines, []
        sources = list(self.variables) if r.random() < 0.7 else [r.choice(self.variables)]
        if self.layers:
            sources_text = f"[{', '.join(sources)}, *{self.layers[0]}.trainable_weights]"
        else:
            sources_text = f"[{', '.join(sources)}]"
        tape = ["with ef.GradientTape() as tape:", *indented(lines + chosen, 4)]
        whole = ["\n".join(tape)]
        whole.append(f'gradients = tape.gradient(loss, {sources_text}, unconnected="zero")')
        results = ["loss"]
        if r.random() < 0.7:
            self.definitions.append(f"$optimizer = ef.nn.optimizers.{r.choice(tables.OPTIMIZERS)}")
            if "LossScale" in self.definitions[-1]:
                whole[0] += "\n    loss = $optimizer.scale_loss(loss)"
            if self.layers and "Sequential" in "".join(self.definitions) and r.random() < 0.5:
                self.definitions.append(f"{self.layers[0]}.compile($optimizer, 'mse')")
            whole.append(f"$optimizer.apply(gradients, {sources_text})")
            self.features.add("optimizer")
        else:
            whole.append(f"{sources[0]}.assign_sub(gradients[0] * 0.05)")
        if r.random() < 0.3:
            results.append(r.choice(("gradients[0]", "gradients", "gradients[-1]")))
        return whole, results

    def updates(self, pool):
        r, lines = self.r, []
        for _ in range(r.choice((0, 1, 1, 2))):
            if r.random() < 0.25 and len(self.variables) > 1:
                text = self.fill(r.choice(tables.TWO), pool)
            else:
                text = self.fill(r.choice(tables.UPDATES), pool)
            if self.try_statement(text, []):
                lines.append(text)
        return lines

    def integers(self, lines):
        r, found = self.r, []
        for _ in range(r.choice((0, 0, 1, 2))):
            text = self.fill(r.choice(tables.INTEGERS), ["x"])
            name = self.fresh("n")
            if self.try_statement(f"{name} = {text}", []):
                lines.append(f"{name} = {text}")
                found.append(name)
        return found

    def other(self):
        """A second captured function over the same Variables."""
        r = self.r
        self.outputs = []
        for name in ("i", "k"):  # which it does not get
            self.env.pop(name)
        pool = ["x", *self.variables]
        lines = self.add_statements(pool, r.choice((1, 2)), (5, 3, 2, 2, 1, 1)) + self.updates(pool)
        results = [pool[-1]] if "$" not in pool[-1] else [f"{pool[-1]}.value"]
        return Body("other", "x", lines, structured(r, results))

    # The script ---------------------------------------------------------------------------------

    def script(self, steps):
        r, lines = self.r, []
        self.rows = "x0"
        without_actions = r.random() < 0.15
        actions_per_step = 0.0 if without_actions else r.choice((0.3, 0.7, 1.2))
        usual = r.sample(
            ("hold", "copy", "foreign", "share", "call", "size", "other", "same", "bad", "more"), 3
        )
        kept = r.random() < 0.5
        for _ in range(steps):
            result = self.fresh("r") if kept and r.random() < 0.6 else "r"
            for _ in range(int(actions_per_step + r.random())):
                lines += self.action(r.choice(usual))
            f, args = self.call()
            if r.random() < 0.12 and not without_actions and "call" in usual:
                lines += self.fill_action(r.choice(tables.CALLS), r=result, f=f, args=args).split(
                    "\n"
                )
            else:
                lines.append(f"{result} = {f}({args})")
        return lines

    def call(self):
        r = self.r
        if len(self.bodies) > 1 and r.random() < 0.2:
            return "$other", f"{self.rows}"
        k = r.choice((2, 2, 2, 2, 2, 3, 0.5)) if self.integer_calls else 2
        if self.integer_calls and r.random() < 0.08:
            k = r.choice((300, 2**40, -1, 0, 2**63, -(2**31), 1e10, True, 255))
        return "$step", f"{r.choice((self.rows, self.rows, 'x1'))}, i0, {k}"

    def fill_action(self, template, **more):
        r = self.r
        like = [v for v in self.variables if self.shape_of(v) == self.shape_of(self.variables[0])]
        pairs = (r.choice(like), r.choice(like))
        w = r.choice(self.variables)
        u = pairs[1] if w in like else w
        made = {"n": self.fresh(""), "w": w, "u": u, "p": r.choice((0.1, 0.25, 0.5, 0.3))}
        return template.format_map(made | more)

    def action(self, kind):
        r = self.r
        table = {
            "hold": tables.HOLD,
            "copy": tables.COPIES,
            "foreign": tables.FOREIGN,
            "share": tables.SHARES,
            "call": tables.HOLD,
            "size": tables.SIZES,
            "other": tables.OTHER,
            "bad": tables.BAD,
            "more": self.special_actions(),
            "same": ("same",),
        }[kind]
        template = r.choice(table)
        if kind == "same":
            drawn = any("ef.random." in x for b in self.bodies for x in b.lines)
            if not self.is_object or drawn:
                return statements_of(self.fill_action(r.choice(tables.HOLD)))
            n = self.fresh("")
            how = r.choice(("copy.deepcopy(me)", "pickle.loads(pickle.dumps(me, 5))"))
            f, args = self.call()
            own, theirs = f.replace("$", "me."), f.replace("$", f"m{n}.")
            return [
                f"m{n} = {how}",
                f"p{n} = {theirs}({args})",
                f"r = {own}({args})",
                f"same(r, p{n})",
            ]
        if kind == "bad" and self.random:
            return []  # what a call draws before its error is drawn by eager code alone
        text = self.fill_action(template)
        if kind == "size":
            if r.random() < 0.5:
                self.rows = re.match(r"x\d+", text).group()
            else:
                self.rows = "x0"
                return []
        return statements_of(text)

    def special_actions(self):
        """Actions with optimizers, tapes, files and ``trainable`` that this program allows."""
        found = list(tables.MORE)
        if self.layers and "= ef.nn.Sequential" in "".join(self.definitions):
            found += tables.FILES * 2
        if any(b.name == "inner" for b in self.bodies):
            found += tables.TAPES * 2
        return found

    def program(self):
        r = self.r
        self.define()
        self.is_object = r.random() < 0.4
        body = self.step()
        self.bodies = [body]
        if r.random() < 0.35:
            self.bodies.append(self.other())
        used = "\n".join(x for b in self.bodies for x in b.lines)
        if "$inner" in used:
            self.bodies.insert(
                0,
                Body(
                    "inner",
                    "v",
                    [],
                    r.choice(
                        (
                            "ef.tanh(v) * 0.5",
                            "v * $w0.value.reshape(-1)[0]",
                            "ef.softplus(v) * $rate",
                        )
                    ),
                ),
            )
        if self.embedded:
            self.bodies.insert(0, Body("embedded", "v", [], "$layer0(v)"))
        if "scaled" in used:
            self.definitions.insert(0, SCALED[r.random() < 0.5])
        self.integer_calls = bool(re.search(r"\bk\b", used + body.result))
        self.random = any("ef.random." in x for b in self.bodies for x in b.lines)
        script = self.script(r.choice((6, 12, 20, 20, 25)))
        return Program(
            self.seed,
            self.floats,
            self.half,
            self.is_object,
            self.definitions,
            self.bodies,
            script,
            self.features,
        )


SCALED = (
    "@ef.custom_gradient\ndef scaled(v):\n"
    "    return ef.sin(v) * 0.5, lambda g: g * ef.cos(v) * 0.5",
    "@ef.custom_gradient\ndef scaled(v):\n    y = ef.exp(ef.tanh(v))\n"
    "    return y, lambda g: g * y * (1 - ef.tanh(v) ** 2)",
)


def structured(r, results):
    """Results as a tuple, a dict, or a nest of both."""
    if len(results) == 1 and r.random() < 0.7:
        return results[0]
    if r.random() < 0.4:
        return "{" + ", ".join(f"'o{n}': {v}" for n, v in enumerate(results)) + "}"
    if r.random() < 0.2:
        return "(" + results[0] + ", [" + ", ".join(results[1:]) + "])"
    return "(" + ", ".join(results) + ",)"


def statements_of(text):
    """The statements of a text, each with its indented lines."""
    return re.split(r"\n(?! )", text)


def moderate(value):
    array = np.asarray(value)
    if array.dtype.kind in "iub":
        return True
    if not array.size:
        return False
    with np.errstate(all="ignore"):
        wide = array.astype("float64")
        return bool(np.isfinite(wide).all()) and float(np.abs(wide).max()) < LARGEST


def identity(f):
    return f


def numbers(rng, shape, dtype, scale=1.0):
    """Random numbers as the program's floats."""
    return (rng.uniform(-1, 1, shape) * scale).astype("float16").astype(dtype)


def filled(layer, rng, dtype):
    """Give a layer's weights random values."""
    for weight in layer.weights:
        low = 0.5 if "variance" in weight.name else -0.5
        weight.assign(rng.uniform(low, 1, weight.shape).astype("float16").astype(weight.dtype))


def namespace(capture, nest):
    """The names that the text of a program finds."""
    found = {k: v for k, v in vars(helpers).items() if not k.startswith("__")}
    found |= {"capture": capture, "nested": nest, "numbers": numbers, "filled": filled}
    return found
