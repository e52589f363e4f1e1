"""Random models with data, a loss, an optimizer and a call of ``fit``, as text."""

import dataclasses
import math
import random
import re
import warnings

import numpy as np

import eagerflow as ef
from tests.fits import tables

nn = ef.nn
LIMIT = 1500  # elements of an example between layers
TRIES = 30
STEPS = 20


@dataclasses.dataclass(frozen=True)
class Step:
    """One line of a model: names, and what computes them; ``$`` is the layer."""

    names: tuple
    call: str  # "$(h1)", "$(h1, h2)", "ef.tanh(h1)"
    layer: str = ""  # the constructor; of a layer that is shared, that of the first step with it
    owner: str = ""  # the name of the layer


@dataclasses.dataclass(frozen=True)
class Output:
    """An output of a model: its name, its loss, its metrics, how its targets are made."""

    name: str
    loss: str
    metrics: tuple
    targets: str


@dataclasses.dataclass(frozen=True)
class Fit:
    """A random model, and how it is trained."""

    seed: int
    form: str  # functional, sequential, subclass, train_step
    policy: str
    inputs: tuple  # (name, kind, shape of an example)
    steps: tuple
    outputs: tuple
    optimizer: str
    options: tuple  # further arguments of compile
    examples: int
    fit: tuple  # arguments of fit
    extra: tuple = ()  # lines before fit
    look: str = ""  # what a user does after each step: "", "logs", "held"
    predicts: bool = False

    def text(self):
        return "\n".join([*self.head(), *self.model(), *self.data(), *self.built()])

    def built(self):
        """A subclass is called first: made in a captured step, weights are drawn before dropout."""
        if self.form in ("functional", "sequential"):
            return []
        size = min(self.examples, int(self.fit[0].partition("=")[2]))
        return [
            f"model(x[:{size}])" if len(self.inputs) == 1 else f"model([a[:{size}] for a in x])"
        ]

    def head(self):
        return [
            "import numpy as np",
            "import eagerflow as ef",
            "nn = ef.nn",
            tables.HELPERS.strip("\n"),
            f"ef.random.seed({self.seed})",
        ]

    def shared(self):
        owners = [s.owner for s in self.steps if s.owner]
        return {o for o in owners if owners.count(o) > 1}

    def model(self):
        """Lines that make and compile the model."""
        sources = [f"nn.Input({shape}, dtype={dtype_of(kind)!r})" for _, kind, shape in self.inputs]
        names = [name for name, _, _ in self.inputs]
        if self.form == "sequential":
            layers = [s.layer for s in self.steps]
            rows = ",\n".join(f"    {text}" for text in (*sources, *layers))
            lines = [f"model = nn.Sequential([\n{rows},\n])"]
        elif self.form == "functional":
            lines = [f"{n} = {s}" for n, s in zip(names, sources, strict=True)]
            lines += self.statements("", inline=True)
            ends = [o.name for o in self.outputs]
            lines += [f"model = nn.Model({one_or_list(names)}, {one_or_list(ends)})"]
        else:
            lines = [*self.subclass(names), "model = Net()"]
        return [*lines, *self.extra, self.compiled()]

    def statements(self, prefix, inline):
        shared, defined = self.shared(), set()
        for step in self.steps:
            target = ", ".join(step.names)
            if not step.owner:
                yield f"{target} = {step.call}"
            elif inline and step.owner not in shared:
                yield f"{target} = {step.call.replace('$', step.layer)}"
            else:
                if inline and step.owner not in defined:
                    yield f"{step.owner} = {step.layer}"
                defined.add(step.owner)
                yield f"{target} = {step.call.replace('$', prefix + step.owner)}"

    def subclass(self, names):
        owners = {s.owner: s.layer for s in self.steps if s.owner}
        ends = one_or_list([o.name for o in self.outputs])
        lines = ["class Net(nn.Model):", "    def __init__(self):", "        super().__init__()"]
        lines += [f"        self.{o} = {layer}" for o, layer in owners.items()]
        lines += ["    def call(self, inputs):", f"        {one_or_list(names)} = inputs"]
        lines += [f"        {line}" for line in self.statements("self.", inline=False)]
        lines += [f"        return {ends}"]
        if self.form == "train_step":
            lines += ["    def train_step(self, data):", "        found = super().train_step(data)"]
            lines += ["        return {**found, 'twice': found['loss'] * 2.0}"]
        return lines

    def compiled(self):
        several = len(self.outputs) > 1
        losses = [o.loss for o in self.outputs]
        metrics = [f"[{', '.join(o.metrics)}]" for o in self.outputs]
        given = [
            self.optimizer,
            f"[{', '.join(losses)}]" if several else losses[0],
            f"metrics=[{', '.join(metrics)}]" if several else f"metrics={metrics[0]}",
            *self.options,
            "run_eagerly=EAGER",
        ]
        return "model.compile(\n    " + ",\n    ".join(given) + ",\n)"

    def data(self):
        lines = [f"rng = np.random.default_rng({self.seed})"]
        made = []
        for _, kind, shape in self.inputs:
            text = tables.INPUTS[kind][1].replace("SHAPE", repr((self.examples, *shape)))
            made.append(text)
        lines += [f"x = {one_or_list(made)}"]
        return [*lines, f"y = {one_or_list([o.targets for o in self.outputs])}"]

    def call(self):
        return f"model.fit(x, y, verbose=0, {', '.join(self.fit)})"


def one_or_list(names):
    return names[0] if len(names) == 1 else f"[{', '.join(names)}]"


def dtype_of(kind):
    return "int64" if kind == "ids" else "float32"


def listing(fit):
    """A program that runs by itself; EAGER says how it is trained."""
    logs = f"print({fit.call()}.history)"
    lines = [f"nn.set_dtype_policy({fit.policy!r})", "EAGER = False"]
    text = fit.text().replace("nn = ef.nn\n", "nn = ef.nn\n" + "\n".join(lines) + "\n", 1)
    return f"{text}\n{logs}\nprint([w.numpy() for w in model.weights])"


def short(fit):
    """The listing without the helpers."""
    return listing(fit).replace(tables.HELPERS.strip("\n") + "\n", "")


# Making ----------------------------------------------------------------------------------------


def filled(r, text):
    """A row of a table with its blanks filled."""
    while True:
        found = re.search(r"<([a-z0-9_?-]+)>", text)
        if not found:
            return text.replace("(, ", "(")
        text = text[: found.start()] + tables.FILLERS[found[1]](r) + text[found.end() :]


class Builder:
    """A model that grows: its lines are tried on symbolic tensors, which tell their shapes."""

    def __init__(self, r, form):
        self.r, self.form = r, form
        self.names = {"ef": ef, "nn": nn, "np": np}
        self.steps, self.live, self.count = [], [], 0

    def rank(self, name):
        return len(self.names[name].shape)

    def add_input(self, kind):
        name = f"x{len(self.live)}"
        shape = self.r.choice(tables.INPUTS[kind][0])
        self.names[name] = nn.Input(shape, dtype=dtype_of(kind))
        self.live.append(name)
        return name, kind, shape

    def add(self, call, layer="", owner="", consumed=()):
        """Add a line, if it can be computed; whether it was."""
        self.count += 1
        own = owner or (f"l{self.count}" if layer else "")
        source = call.replace("$", own)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                if layer and own not in self.names:
                    self.names[own] = eval(layer, self.names)
                result = eval(source, self.names)
        except (ef.errors.EagerflowError, TypeError, ValueError):
            return False
        results = result if isinstance(result, list | tuple) else (result,)
        if self.form == "sequential" and len(results) > 1:
            return False
        if not all(self.fits(x) for x in results):
            return False
        names = tuple(f"h{self.count}{'' if not k else 'abcdef'[k]}" for k in range(len(results)))
        self.names.update(zip(names, results, strict=True))
        self.steps.append(Step(names, call, layer, own))
        self.live = [n for n in self.live if n not in consumed] + list(names)
        return True

    def fits(self, tensor):
        sizes = tensor.shape[1:]
        known = all(isinstance(n, int) and n > 0 for n in sizes)
        floating = tensor.dtype.kind == "f" or tensor.dtype.name == "bfloat16"
        return known and floating and sizes and len(sizes) < 5 and math.prod(sizes) <= LIMIT

    def grow(self):
        """Add one line that works."""
        for _ in range(TRIES):
            x = self.live[-1] if self.r.random() < 0.8 else self.r.choice(self.live)
            if self.names[x].dtype.kind in "iu":
                return self.of_row(x, self.r.choice(tables.IDENTIFIERS))
            draw = self.r.random()
            if self.form == "sequential":
                done = self.of_row(x, self.r.choice(tables.LAYERS[self.rank(x)]))
            elif draw < 0.12:
                done = self.computed(x)
            elif draw < 0.24:
                done = self.of_row(x, self.r.choice(tables.MERGED))
            elif draw < 0.3:
                done = self.again(x)
            else:
                done = self.of_row(x, self.row(x))
            if done:
                return True
        return False

    def row(self, x):
        """A layer for a tensor, or a model of two or three."""
        if self.r.random() < 0.07:
            rows = [row for row in tables.rows(tables.ANY) if not row.startswith("Lambda")]
            layers = ", ".join(f"nn.{self.r.choice(rows)}" for _ in range(self.r.choice([2, 3])))
            return f"Sequential([{layers}])"
        return self.r.choice(tables.LAYERS[self.rank(x)])

    def other(self, x):
        """Another tensor of as many axes, or the same."""
        known = [n for step in self.steps for n in step.names] + self.live
        rank = self.rank(x)
        alike = [n for n in known if self.rank(n) == rank and self.names[n].dtype.kind not in "iu"]
        return self.r.choice(alike or [x])

    def placed(self, text, x):
        """A call with the names of tensors."""
        y = self.other(x) if re.search(r"\by\b", text) else x
        return re.sub(r"\b([xy])\b", lambda m: x if m[1] == "x" else y, text), {x, y}

    def of_row(self, x, row):
        layer, _, given = row.partition(" @ ")
        if given and self.form == "sequential":
            return False
        causal = given.endswith("<causal>")
        given, used = self.placed(given.removesuffix("<causal>") or "x", x)
        if causal:
            given += tables.FILLERS["causal"](self.r)
        keep = self.form != "sequential" and self.r.random() < 0.15
        return self.add(f"$({given})", f"nn.{filled(self.r, layer)}", consumed=() if keep else used)

    def computed(self, x):
        text, used = self.placed(self.r.choice(tables.COMPUTED), x)
        return self.add(text, consumed=used)

    def again(self, x):
        """The same layer once more."""
        known = [s for s in self.steps if s.owner and s.call.count(",") == 0]
        if not known:
            return False
        step = self.r.choice(known)
        return self.add(f"$({x})", step.layer, step.owner, consumed={x})

    def reduce(self, name, rank):
        """Bring a tensor to a number of axes."""
        while self.rank(name) > rank or self.names[name].dtype.kind in "iu":
            if self.names[name].dtype.kind in "iu":
                done = self.of_row(name, "Embedding(9, <units>, mask_zero=True)")
            elif self.form == "sequential" or self.r.random() < 0.5:
                done = self.add("$(" + name + ")", "nn." + self.flat(name), consumed={name})
            else:
                text = re.sub(r"\bx\b", name, self.r.choice(tables.REDUCTIONS))
                done = self.add(text, consumed={name})
            if done:
                name = self.steps[-1].names[0]
        return name

    def flat(self, name):
        rank = self.rank(name)
        choices = ["Flatten()"]
        if 3 <= rank <= 5:
            kind = self.r.choice(["AveragePooling", "MaxPooling"])
            choices += [f"Global{kind}{rank - 2}D()"]
        if rank == 3:
            choices += [filled(self.r, "LSTM(<units>)"), filled(self.r, "GRU(<units>)")]
        return self.r.choice(choices)


def generate(seed):
    """The model of a seed."""
    r = random.Random(f"fit {seed}")
    ef.random.seed(seed)
    form = r.choice(["functional"] * 5 + ["sequential"] * 2 + ["subclass"] * 3 + ["train_step"])
    builder = Builder(r, form)
    count = 1 if form == "sequential" else r.choice([1, 1, 1, 2, 2, 3])
    inputs = tuple(builder.add_input(r.choice(tables.KINDS)) for _ in range(count))
    for _ in range(r.choice([1, 2, 2, 3, 3, 4, 5])):
        builder.grow()
    examples, batch, epochs = sizes(r)
    outputs = heads(builder, r, examples)
    return Fit(
        seed,
        form,
        r.choice(tables.POLICIES),
        inputs,
        tuple(builder.steps),
        outputs,
        optimizer(r),
        *arguments(r, outputs, examples, batch, epochs),
        look=r.choice(["", "", "logs", "logs", "held"]),
        predicts=r.random() < 0.12,
    )


def sizes(r):
    """Numbers of examples, of examples in a batch, and of epochs."""
    batch, batches = r.choice([1, 2, 3, 4, 4, 5, 6, 8, 8]), r.choice([2, 3, 4, 5, 7])
    odd = r.choice([0, 0, 0, 0, 0, 0, 1, 2]) % batch
    epochs = max(1, round(STEPS / batches))
    return batch * batches - (batch - odd if odd else 0), batch, epochs


def heads(builder, r, examples):
    """The outputs: what is left of the tensors, joined to one, two or three."""
    rest = builder.live[-3:]
    several = len(rest) > 1 and builder.form != "sequential" and r.random() < 0.4
    if several:
        return tuple(head(builder, r, name, examples) for name in rest)
    if len(rest) == 1:
        return (head(builder, r, rest[0], examples),)
    flat = [builder.reduce(name, 2) for name in rest]
    joined = builder.add(f"$([{', '.join(flat)}])", "nn.Concatenate()", consumed=set(flat))
    return (head(builder, r, builder.steps[-1].names[0] if joined else flat[-1], examples),)


def head(builder, r, name, examples):
    rank = 3 if builder.rank(name) == 3 and r.random() < 0.4 else 2
    name = builder.reduce(name, rank)
    table = tables.HEADS | (tables.VECTOR_HEADS if rank == 2 else tables.STEP_HEADS)
    while True:
        kind = r.choice(list(table))
        if kind == "words" and r.random() < 0.7:
            continue
        layer, targets, losses, metrics = table[kind]
        text = f"nn.{filled(r, layer)}"
        builder.add(f"$({name})", text, consumed={name})
        end = builder.steps[-1].names[0]
        lead = (examples, *map(int, builder.names[end].shape[1:-1]))
        shown = ", ".join(map(str, lead))
        targets = targets.replace("LEAD[0]", str(examples)).replace("LEAD", shown)
        targets = targets.replace("C)", f"{int(builder.names[end].shape[-1])})")
        chosen = r.sample(listed(metrics), r.choice([0, 1, 1, 2])) if metrics else []
        loss = named(r.choice(listed(losses)), "losses")
        return Output(end, loss, tuple(named(m, "metrics") for m in chosen), targets)


def listed(text):
    return [part.strip() for line in text.strip().splitlines() for part in line.split(" | ")]


def named(text, module):
    return text if text.startswith("'") or text == "squares" else f"nn.{module}.{text}"


def optimizer(r):
    text = r.choice(tables.OPTIMIZERS)
    if r.random() < 0.15 and "<lr>" in text:
        text = text.replace("<lr>", r.choice(tables.SCHEDULES))
    options = ", " + r.choice(tables.OPTIMIZER_OPTIONS) if r.random() < 0.3 else ""
    if "weight_decay" in text and "weight_decay" in options:
        options = ""
    return f"nn.optimizers.{filled(r, text)[:-1]}{options})"


def arguments(r, outputs, examples, batch, epochs):
    """Arguments of compile, the number of examples, arguments of fit, and lines before it."""
    options, extra = [], []
    several = len(outputs) > 1
    given = [f"batch_size={batch}", f"epochs={epochs}", f"shuffle={r.random() < 0.3}"]
    if several and r.random() < 0.4:
        options.append(f"loss_weights={[r.choice([0.3, 1.0, 2.0]) for _ in outputs]}")
    one = outputs[0]
    sparse = "integers(0, 4" in one.targets and "CTC" not in one.loss
    weights = f"rng.uniform(0.0, 2.0, {examples})"
    if not several and sparse and f"({examples},)" in one.targets and r.random() < 0.3:
        given.append("class_weight={0: 0.5, 1: 1.0, 2: 2.0, 3: 0.0}")
    elif r.random() < 0.25:
        given.append(f"sample_weight={one_or_list([weights] * len(outputs))}")
        if not several and one.metrics and r.random() < 0.4:
            options.append(f"weighted_metrics=[{one.metrics[0]}]")
    if r.random() < 0.08:
        given.append("validation_split=0.3")
    if r.random() < 0.1:
        given.append("callbacks=nn.callbacks.LearningRateScheduler(lambda n, rate: rate * 0.9)")
    if r.random() < 0.06:
        extra.append("model.layers[-1].trainable = False")
    return tuple(options), examples, tuple(given), tuple(extra)


# Making smaller --------------------------------------------------------------------------------


def smaller(fit):
    """Models with a part left out, or made plain."""
    for n in range(len(fit.steps) - 1, -1, -1):
        yield from without(fit, n)
    plain = {
        "form": "functional",
        "policy": "float32",
        "options": (),
        "look": "",
        "predicts": False,
        "optimizer": "nn.optimizers.SGD(0.01)",
        "fit": tuple(x for x in fit.fit if x.startswith(("batch", "epochs"))),
        "outputs": tuple(dataclasses.replace(o, metrics=()) for o in fit.outputs),
    }
    for name, value in plain.items():
        if getattr(fit, name) != value:
            yield dataclasses.replace(fit, **{name: value})
    for n, step in enumerate(fit.steps):
        options = re.findall(r", [a-z_]+=(?:[^,()\[\]]|\([^()]*\))+(?=[,)])", step.layer)
        for option in options:
            changed = dataclasses.replace(step, layer=step.layer.replace(option, "", 1))
            yield dataclasses.replace(fit, steps=(*fit.steps[:n], changed, *fit.steps[n + 1 :]))


def without(fit, n):
    """A model without one of its lines; what used it has one of its arguments."""
    gone = fit.steps[n]
    given = re.findall(r"\b[hx]\d+[a-f]?\b", gone.call)
    for name in dict.fromkeys(given):
        steps = [
            dataclasses.replace(s, call=renamed(s.call, gone.names, name))
            for s in fit.steps[n + 1 :]
        ]
        ends = tuple(
            dataclasses.replace(o, name=renamed(o.name, gone.names, name)) for o in fit.outputs
        )
        yield dataclasses.replace(fit, steps=(*fit.steps[:n], *steps), outputs=ends)


def renamed(text, names, name):
    return re.sub(r"\b(" + "|".join(names) + r")\b", name, text)
