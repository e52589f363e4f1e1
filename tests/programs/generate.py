"""Generation of a random program from a seed: definitions, captured functions and a script.

The script calls the functions and, between the calls, acts as users do. Candidate statements of
functions are executed eagerly; those without errors, infinities and large numbers are kept.

Expressions, layers and actions are lines of ``tables.py``; ``ProgramBuilder.action`` has the kinds
of actions.
"""

import random
import re
import warnings

import numpy as np

import eagerflow as ef
from tests.programs import modes, tables
from tests.programs.program import Body, Program, indented, preamble

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
VECTORS = re.compile(r"_distance|_similarity")  # ops that need an axis
LOOPS = re.compile(r"ef\.(scan|map)\(")
MOST_ROWS = 300  # of an eager loop, which would take minutes with more
LARGEST, MOST_ELEMENTS = 30.0, 400_000
MOST_BYTES = 1 << 28  # of all values while a program is generated


def generate(seed):
    """The program of a seed."""
    ef.set_memory_limit("cpu", MOST_BYTES)  # else a difference of all pairs takes all memory
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ProgramBuilder(seed).program()
    finally:
        ef.set_memory_limit("cpu", None)


class ProgramBuilder:
    """Builds one program; ``values`` has the eager values of its names, without ``$``."""

    def __init__(self, seed):
        self.seed = seed
        self.r = r = random.Random(f"{seed}/0")
        self.dtype = r.choices(("float32", "float64", "float16", "bfloat16"), (70, 8, 13, 9))[0]
        self.second_dtype = r.choice(("float16", "bfloat16", "float32"))
        self.large = r.random() < 0.45
        if self.large:
            self.shape = r.choice(LARGE)
        else:
            self.shape = tuple(r.choice(SMALL) for _ in range(r.choice((0, 1, 2, 2, 2, 3, 3, 4))))
        self.calls_embedding = False
        self.number = 0

    def new_name(self, letter):
        self.number += 1
        return f"{letter}{self.number}"

    # Definitions --------------------------------------------------------------------------------

    def shapes(self):
        """Shapes that broadcast with the program's own shape."""
        whole = self.shape
        ends = [whole[k:] for k in range(len(whole) + 1)]
        thin = [tuple(1 if self.r.random() < 0.5 else n for n in whole)]
        return [*ends, *thin, whole, whole]

    def define(self):
        """Add the definitions of arguments, Variables and other state."""
        self.definitions = [
            *self.arguments(),
            *self.define_variables(),
            "$spare = ef.Variable($w0 * 0.5, name='spare')",
            "$count = ef.Variable(np.asarray(1, 'int64'), name='count')",
            "$rate = 0.3",
            "$table = {'scale': 0.75, 'shift': 0.1}",
            f"$keys = ef.random.Generator({self.seed})",
            "$kernel = numbers(rng, (2, 2, 1, 2), F)",
        ]
        lines = [
            *preamble(self),
            *self.definitions,
            "x, i, k = ef.asarray(x0), ef.asarray(i0), 2",
            "inner = lambda v: ef.tanh(v) * 0.5",
            "scaled = lambda v: ef.sin(v) * 0.5",
        ]
        self.values = modes.namespace("eager", {})
        exec("\n".join(lines).replace("$", ""), self.values)

    def arguments(self):
        r, shape = self.r, self.shape
        if not (len(shape) > 1 or r.random() < 0.5 or self.large):
            shape = (r.choice(SMALL), *shape)
        kind = r.choice(("int32", "int64", "uint8", "int8", "int16", "bool", "uint8"))
        self.integer_dtype = kind
        n = r.choice(((1,), (3,), (7, 5), (33,), (2, 8, 3)))
        high = 2 if kind == "bool" else r.choice((5, 100, 120))
        low = -high if kind.startswith("int") and r.random() < 0.5 else 0
        return [
            f"x0 = numbers(rng, {shape}, F)",
            "x1 = numbers(rng, x0.shape, F)",
            f"i0 = rng.integers({low}, {high}, {n}).astype('{kind}')",
        ]

    def define_variables(self):
        r, lines = self.r, []
        self.variables = []
        for k in range(r.choice((1, 2, 2, 3, 4))):
            name = f"$w{k}"
            shape = self.shape if k == 0 else r.choice(self.shapes())
            if k and r.random() < 0.25:
                u = r.choice(self.variables)
                copies = f"ef.Variable({u})", f"copy.deepcopy({u})", f"ef.Variable({u}.value)"
                lines.append(f"{name} = {r.choice(copies)}")
                lines.append(f"{name}.name = 'w{k}'")
            else:
                lines.append(f"{name} = ef.Variable(numbers(rng, {shape}, F), name='w{k}')")
            self.variables.append(name)
        return lines

    # Statements of functions --------------------------------------------------------------------

    def fill(self, template, pool):
        """A template with its placeholders replaced by names of the pool and axes."""
        r = self.r
        a = r.choice(pool[-3:]) if r.random() < 0.6 else r.choice(pool)
        rank = getattr(self.value(a), "ndim", 0)
        axes = [*range(-rank, rank)] or [None]
        x = r.choice(axes)
        others = [y for y in axes if rank and (y - x) % rank] or axes
        xx = sorted({x % rank, r.choice(others) % rank}) if rank else ()
        return template.format(
            a=a,
            b=r.choice(pool),
            w=r.choice(self.variables),
            u=r.choice(self.variables),
            m=f"ef.mean({r.choice(pool)})",
            x=x,
            y=r.choice(others),
            xx=tuple(xx) or None,
            j=r.choice((0, -1, None)),
            d=r.choice((2, 3, 4, 5, 8, 17)),
            r="{r}",
            s="{s}",
        )

    def value(self, name):
        return self.values.get(name.replace("$", ""))

    def shapes_in(self, text):
        """The shapes of the values that a statement names."""
        values = [self.values.get(name) for name in re.findall(r"[A-Za-z]\w*", text)]
        return [v.shape for v in values if getattr(v, "ndim", 0)]

    def try_statement(self, line, names):
        """Whether a statement raises nothing and binds the names to tensors of moderate size."""
        before = {n: self.values.get(n) for n in names}
        try:
            exec(line.replace("$", ""), self.values)
        except Exception:
            return False
        for n in names:
            value = self.values[n]
            if not isinstance(value, ef.Tensor) or not is_moderate(value):
                self.values.update(before)
                return False
        return True

    def add_statements(self, pool, count, weights):
        """Statements that compute new values of the pool."""
        lines, kinds = [], tables.STATEMENTS
        for _ in range(12 * count):
            if len(lines) == count:
                break
            kind = self.r.choices(kinds, weights)[0]
            template = self.r.choice(kind)
            r, s = self.new_name("v"), self.new_name("v")
            text = self.fill(template, pool)
            shapes = self.shapes_in(text)
            if VECTORS.search(template) and not shapes:
                continue
            if LOOPS.search(template) and max((n for n, *_ in shapes), default=0) > MOST_ROWS:
                continue
            if kind is tables.PAIRS:
                line, names = text.format(r=r, s=s), [r, s]
            else:
                line, names = f"{r} = {text}", [r]
            if self.try_statement(line, names):
                lines.append(line)
                pool += names
                self.reduced += names if kind in (tables.REDUCTIONS, tables.PAIRS) else []
        return lines

    def layer(self, pool):
        """Define a layer of the program. Returns the statement that calls it."""
        for _ in range(6):
            name = f"$layer{len(self.layers)}"
            a = self.r.choice(pool)
            text = self.fill(self.r.choice(tables.LAYERS), pool)
            result = self.new_name("v")
            call = f"{a}, {a}" if "MultiHead" in text else a
            if "BatchNormalization" in text:
                call += ", training=True"
            definition = f"{name} = {text}"
            if not all(self.try_statement(x, []) for x in (definition, f"{name}({call})")):
                continue
            if self.try_statement(f"filled({name}, rng, F)\n{result} = {name}({call})", [result]):
                example = f"ef.zeros({tuple(self.value(a).shape)}, dtype=F)"
                examples = f"{example}, {example}" if "MultiHead" in text else example
                self.definitions += [definition, f"{name}({examples})", f"filled({name}, rng, F)"]
                self.layers.append(name)
                pool.append(result)
                return [f"{result} = {name}({call})"]
        return []

    def masked_layers(self, pool):
        """Define an embedding with a mask and a layer that uses it.

        Returns the statement that calls them. The embedding may be called in a captured function
        of its own, whose result has the mask.
        """
        r, size = self.r, self.r.choice((2, 3, 5))
        result, ids = self.new_name("v"), "ef.abs({}.reshape(i{}.shape[0], -1) % 5)"
        ids, example_ids = ids.format("i", ""), ids.format("ef.asarray(i0)", "0")
        embedding = f"ef.nn.Embedding(10, {size}, mask_zero=True, dtype=F)"
        second = r.choice(("LSTM({d}", "GRU({d}", "SimpleRNN({d}", "GRU({d}, go_backwards=True"))
        second = f"ef.nn.{second.format(d=size)}, dtype=F)"
        if r.random() < 0.5:
            layers = {"$layer0": f"ef.nn.Sequential([{embedding}, {second}])"}
            call = "$layer0({})"
        else:
            layers = {"$layer0": embedding, "$layer1": second}
            call = "$layer1($layer0({}))"
        definitions = [f"{name} = {text}" for name, text in layers.items()]
        definitions += [call.format(example_ids)]
        definitions += [f"filled({name}, rng, F)" for name in layers]
        if self.integer_dtype == "bool" or not all(self.try_statement(d, []) for d in definitions):
            return []
        if not self.try_statement(f"{result} = {call.format(ids)}", [result]):
            return []
        self.definitions += definitions
        self.layers += layers
        pool.append(result)
        if len(layers) > 1 and r.random() < 0.5:
            self.calls_embedding = True
            call = "$layer1($embedded({}))"
        return [f"{result} = {call.format(ids)}"]

    def step(self):
        """The captured function of a training step, or of updates only."""
        r = self.r
        self.reduced, self.layers = [], []
        pool = ["x", *self.variables]
        lines, results = self.forward(pool), []
        if r.random() < 0.7:
            lines, results = self.training(pool, lines)
        lines += self.updates(pool)
        results += self.integers(lines)
        results += self.results(pool)
        if not results:
            results = [pool[-1] if "$" not in pool[-1] else "x"]
        if r.random() < 0.15:
            results.append(r.choice(results))
        r.shuffle(results)
        return Body("step", "x, i, k", lines, structured(r, results))

    def forward(self, pool):
        """Statements that compute values, with layers or without."""
        r = self.r
        weights = r.choice(tables.WEIGHTS)
        lines = self.add_statements(["x", self.variables[0]], 1, (1, 0, 0, 0, 0, 0))
        if not lines:
            lines = ["v0 = x * 1.0"]
            self.try_statement(lines[0], ["v0"])
        pool.append(re.match(r"\w+", lines[0]).group())
        lines += self.add_statements(pool, r.choice((1, 2, 3, 4, 6)), weights)
        if r.random() < 0.12:
            lines += self.masked_layers(pool)
        elif r.random() < 0.3:
            lines += self.layer(pool)
            lines += self.add_statements(pool, r.choice((0, 1, 2)), weights)
        return lines

    def results(self, pool):
        """Expressions of results: values of the pool, reductions, arguments and Variables."""
        r = self.r
        names = [n for n in pool if n != "x"]
        chosen = r.sample(names, min(len(names), r.choice((0, 1, 2))))
        results = [value_of(n) for n in chosen]
        results += r.sample(self.reduced, min(len(self.reduced), r.choice((1, 2, 3))))
        more = r.sample(tables.RESULTS, r.choice((0, 1, 1, 2)))
        return results + [m for m in more if self.try_statement(f"_ = {m}", [])]

    def training(self, pool, lines):
        """Put statements under a tape. Returns them with the use of gradients, and results."""
        r = self.r
        loss = self.loss(pool)
        if loss is None:
            return lines, []
        sources = list(self.variables) if r.random() < 0.7 else [r.choice(self.variables)]
        layer_weights = [f"*{name}.trainable_weights" for name in self.layers[:1]]
        sources_text = f"[{', '.join(sources + layer_weights)}]"
        tape = "\n".join(["with ef.GradientTape() as tape:", *indented([*lines, loss], 4)])
        gradient = f'gradients = tape.gradient(loss, {sources_text}, unconnected="zero")'
        results = ["loss"]
        if r.random() < 0.7:
            self.definitions.append(f"$optimizer = ef.nn.optimizers.{r.choice(tables.OPTIMIZERS)}")
            if "LossScale" in self.definitions[-1]:
                tape += "\n    loss = $optimizer.scale_loss(loss)"
            if self.layers and "Sequential" in "".join(self.definitions) and r.random() < 0.5:
                self.definitions.append(f"{self.layers[0]}.compile($optimizer, 'mse')")
            update = f"$optimizer.apply(gradients, {sources_text})"
        else:
            update = f"{sources[0]}.assign_sub(gradients[0] * 0.05)"
        if r.random() < 0.3:
            results.append(r.choice(("gradients[0]", "gradients", "gradients[-1]")))
        return [tape, gradient, update], results

    def loss(self, pool):
        """The statement of a scalar loss, None if no candidate is one."""
        for _ in range(12):
            line = f"loss = {self.fill(self.r.choice(tables.LOSSES), pool)}"
            if self.try_statement(line, ["loss"]) and self.values["loss"].ndim == 0:
                return line
        return None

    def updates(self, pool):
        """Statements that assign Variables."""
        r, lines = self.r, []
        for _ in range(r.choice((0, 1, 1, 2))):
            paired = r.random() < 0.25 and len(self.variables) > 1
            text = self.fill(r.choice(tables.PAIRED_UPDATES if paired else tables.UPDATES), pool)
            if self.try_statement(text, []):
                lines.append(text)
        return lines

    def integers(self, lines):
        """Add statements that compute with integers. Returns the names of their results."""
        r, found = self.r, []
        for _ in range(r.choice((0, 0, 1, 2))):
            text = self.fill(r.choice(tables.INTEGERS), ["x"])
            name = self.new_name("n")
            if self.try_statement(f"{name} = {text}", []):
                lines.append(f"{name} = {text}")
                found.append(name)
        return found

    def other(self):
        """A second captured function over the same Variables."""
        r = self.r
        self.reduced = []
        for name in ("i", "k"):  # arguments of the first function alone
            self.values.pop(name)
        pool = ["x", *self.variables]
        lines = self.add_statements(pool, r.choice((1, 2)), (5, 3, 2, 2, 1, 1)) + self.updates(pool)
        return Body("other", "x", lines, structured(r, [value_of(pool[-1])]))

    # The script ---------------------------------------------------------------------------------

    def script(self, steps):
        """Statements that call the functions, and actions between them."""
        r, lines = self.r, []
        self.argument = "x0"
        without_actions = r.random() < 0.15
        actions_per_step = 0.0 if without_actions else r.choice((0.3, 0.7, 1.2))
        kinds = r.sample(list(tables.ACTIONS), 3)
        keeps_results = r.random() < 0.5
        for _ in range(steps):
            result = self.new_name("r") if keeps_results and r.random() < 0.6 else "r"
            for _ in range(int(actions_per_step + r.random())):
                lines += self.action(r.choice(kinds))
            f, args = self.call()
            if r.random() < 0.12 and not without_actions and "call" in kinds:
                text = self.fill_action(r.choice(tables.CALLS), r=result, f=f, args=args)
                lines += text.split("\n")
            else:
                lines.append(f"{result} = {f}({args})")
        return lines

    def call(self):
        """A function and its arguments as text."""
        r = self.r
        if len(self.bodies) > 1 and r.random() < 0.2:
            return "$other", self.argument
        k = r.choice((2, 2, 2, 2, 2, 3, 0.5)) if self.uses_k else 2
        if self.uses_k and r.random() < 0.08:
            k = r.choice((300, 2**40, -1, 0, 2**63, -(2**31), 1e10, True, 255))
        return "$step", f"{r.choice((self.argument, self.argument, 'x1'))}, i0, {k}"

    def fill_action(self, template, **more):
        """A template with a new number and names of Variables of one shape."""
        r = self.r
        shape = self.value(self.variables[0]).shape
        alike = [v for v in self.variables if self.value(v).shape == shape]
        _, u = r.choice(alike), r.choice(alike)
        w = r.choice(self.variables)
        u = u if w in alike else w
        n, p = self.new_name(""), r.choice((0.1, 0.25, 0.5, 0.3))
        return template.format(n=n, w=w, u=u, p=p, **more)

    def action(self, kind):
        """Statements of an action between calls."""
        r = self.r
        template = r.choice(self.special() if kind == "special" else tables.ACTIONS[kind])
        if kind == "twin" and self.is_object and not self.draws_globally:
            return self.call_of_twin()
        if kind == "twin":
            template = r.choice(tables.READS)
        if kind == "invalid" and self.draws_globally:
            return []  # eager code draws random numbers before its error, captured code does not
        text = self.fill_action(template)
        if kind == "argument":
            if r.random() < 0.5:
                self.argument = re.match(r"x\d+", text).group()
            else:
                self.argument = "x0"
                return []
        return re.split(r"\n(?! )", text)

    def call_of_twin(self):
        """A copy of the program's object, whose call gives the same result."""
        n = self.new_name("")
        copy = self.r.choice(("copy.deepcopy(me)", "pickle.loads(pickle.dumps(me, 5))"))
        f, args = self.call()
        return [
            f"m{n} = {copy}",
            f"o{n} = in_same_order(me, m{n})",
            f"p{n} = {f.replace('$', f'm{n}.')}({args})",
            f"r = {f.replace('$', 'me.')}({args})",
            f"same(r, p{n}, o{n})",
        ]

    def special(self):
        """Actions that need an optimizer, a model or an inner function."""
        found = list(tables.OPTIMIZATION)
        if self.layers and "= ef.nn.Sequential" in "".join(self.definitions):
            found += tables.FILES * 2
        if any(b.name == "inner" for b in self.bodies):
            found += tables.TAPES * 2
        return found

    def program(self):
        r = self.r
        self.define()
        self.is_object = r.random() < 0.4
        step = self.step()
        self.bodies = [step]
        if r.random() < 0.35:
            self.bodies.append(self.other())
        used = "\n".join(x for b in self.bodies for x in b.statements)
        if "$inner" in used:
            self.bodies.insert(0, Body("inner", "v", [], r.choice(tables.INNER)))
        if self.calls_embedding:
            self.bodies.insert(0, Body("embedded", "v", [], "$layer0(v)"))
        if "scaled" in used:
            self.definitions.insert(0, tables.SCALED[r.random() < 0.5])
        self.uses_k = bool(re.search(r"\bk\b", used + step.result))
        self.draws_globally = "ef.random." in used
        script = self.script(r.choice((6, 12, 20, 20, 25)))
        return Program(
            self.seed,
            self.dtype,
            self.second_dtype,
            self.is_object,
            self.definitions,
            self.bodies,
            script,
        )


def value_of(name):
    """The expression of the value of a name, which may be a Variable."""
    return f"{name}.value" if "$" in name else name


def structured(r, results):
    """The expression of results as a tuple, a dict, or a nest."""
    if len(results) == 1 and r.random() < 0.7:
        return results[0]
    if r.random() < 0.4:
        return "{" + ", ".join(f"'o{n}': {v}" for n, v in enumerate(results)) + "}"
    if r.random() < 0.2:
        return "(" + results[0] + ", [" + ", ".join(results[1:]) + "])"
    return "(" + ", ".join(results) + ",)"


def is_moderate(tensor):
    """Whether a tensor has few elements, and no large or infinite numbers."""
    array = np.asarray(tensor)
    if array.size > MOST_ELEMENTS or array.dtype.kind in "iub":
        return array.size <= MOST_ELEMENTS
    with np.errstate(all="ignore"):
        return bool(array.size) and float(np.abs(array.astype("f8")).max()) < LARGEST
