"""Generation of a random model with its training from a seed."""

import math
import random
import re
import warnings

import numpy as np

import eagerflow as ef
from tests.fits import tables
from tests.fits.fit import Fit, Output, Statement, dtype_of, one_or_list
from tests.programs.tables import listed

nn = ef.nn
MOST_ELEMENTS = 1500  # of an example, between layers
ATTEMPTS = 30  # to add a statement
STEPS = 20  # of training


def fill(r, text):
    """A row of a table with random values of its placeholders."""
    while True:
        match = re.search(r"<([a-z0-9_?-]+)>", text)
        if not match:
            return text.replace("(, ", "(")
        text = text[: match.start()] + tables.PLACEHOLDERS[match[1]](r) + text[match.end() :]


class Builder:
    """Builds a model; its statements are executed on symbolic tensors, which have shapes."""

    def __init__(self, r, form):
        self.r, self.form = r, form
        self.names = {"ef": ef, "nn": nn, "np": np}
        self.statements, self.count = [], 0
        self.unused = []  # tensors that are inputs of no statement yet

    def rank(self, name):
        return len(self.names[name].shape)

    def is_integer(self, name):
        return self.names[name].dtype.kind in "iu"

    def add_input(self, kind):
        name = f"x{len(self.unused)}"
        shape = self.r.choice(tables.INPUTS[kind][0])
        self.names[name] = nn.Input(shape, dtype=dtype_of(kind))
        self.unused.append(name)
        return name, kind, shape

    def add(self, call, constructor="", layer="", used=()):
        """Add a statement if it can be executed. Returns whether it was added."""
        self.count += 1
        layer = layer or (f"l{self.count}" if constructor else "")
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                if constructor and layer not in self.names:
                    self.names[layer] = eval(constructor, self.names)
                result = eval(call.replace("$", layer), self.names)
        except (ef.errors.EagerflowError, TypeError, ValueError):
            return False
        results = result if isinstance(result, list | tuple) else (result,)
        if self.form == "sequential" and len(results) > 1:
            return False
        if not all(self.is_usable(x) for x in results):
            return False
        names = tuple(f"h{self.count}{'' if not k else 'abcdef'[k]}" for k in range(len(results)))
        self.names.update(zip(names, results, strict=True))
        self.statements.append(Statement(names, call, constructor, layer))
        self.unused = [n for n in self.unused if n not in used] + list(names)
        return True

    def is_usable(self, tensor):
        """Whether a tensor has floats, and a known shape of few elements."""
        sizes = tensor.shape[1:]
        known = all(isinstance(n, int) and n > 0 for n in sizes)
        floating = tensor.dtype.kind == "f" or tensor.dtype.name == "bfloat16"
        return known and floating and sizes and len(sizes) < 5 and math.prod(sizes) <= MOST_ELEMENTS

    def grow(self):
        """Add a random statement."""
        for _ in range(ATTEMPTS):
            x = self.unused[-1] if self.r.random() < 0.8 else self.r.choice(self.unused)
            if self.is_integer(x):
                self.add_row(x, self.r.choice(tables.ID_LAYERS))
                return
            draw = self.r.random()
            if self.form == "sequential":
                added = self.add_row(x, self.r.choice(tables.LAYERS[self.rank(x)]))
            elif draw < 0.12:
                added = self.add_op(x)
            elif draw < 0.24:
                added = self.add_row(x, self.r.choice(tables.MERGE_LAYERS))
            elif draw < 0.3:
                added = self.add_shared(x)
            else:
                added = self.add_row(x, self.random_row(x))
            if added:
                return

    def random_row(self, x):
        """A layer for a tensor, or a model of two or three layers."""
        if self.r.random() < 0.07:
            rows = [row for row in tables.rows(tables.ANY) if not row.startswith("Lambda")]
            layers = ", ".join(f"nn.{self.r.choice(rows)}" for _ in range(self.r.choice([2, 3])))
            return f"Sequential([{layers}])"
        return self.r.choice(tables.LAYERS[self.rank(x)])

    def same_rank(self, x):
        """A tensor of the rank of another, or the same tensor."""
        known = [n for s in self.statements for n in s.names] + self.unused
        rank = self.rank(x)
        alike = [n for n in known if self.rank(n) == rank and not self.is_integer(n)]
        return self.r.choice(alike or [x])

    def substitute(self, text, x):
        """A call with names of tensors for ``x`` and ``y``, and the set of these names."""
        y = self.same_rank(x) if re.search(r"\by\b", text) else x
        return re.sub(r"\b([xy])\b", lambda m: x if m[1] == "x" else y, text), {x, y}

    def add_row(self, x, row):
        """Add the call of a new layer."""
        constructor, _, inputs = row.partition(" @ ")
        if inputs and self.form == "sequential":
            return False
        inputs, used = self.substitute(inputs or "x", x)
        inputs = fill(self.r, inputs)
        keep = self.form != "sequential" and self.r.random() < 0.15
        constructor = f"nn.{fill(self.r, constructor)}"
        return self.add(f"$({inputs})", constructor, used=() if keep else used)

    def add_op(self, x):
        text, used = self.substitute(self.r.choice(tables.OPS), x)
        return self.add(text, used=used)

    def add_shared(self, x):
        """Add another call of a layer."""
        known = [s for s in self.statements if s.layer and s.call.count(",") == 0]
        if not known:
            return False
        shared = self.r.choice(known)
        return self.add(f"$({x})", shared.constructor, shared.layer, {x})

    def reduce(self, name, rank):
        """Add statements that reduce a tensor to a rank. Returns the name of the result."""
        while self.rank(name) > rank or self.is_integer(name):
            if self.is_integer(name):
                added = self.add_row(name, "Embedding(9, <units>, mask_zero=True)")
            elif self.form == "sequential" or self.r.random() < 0.5:
                added = self.add(f"$({name})", f"nn.{self.reducing_layer(name)}", used={name})
            else:
                text = re.sub(r"\bx\b", name, self.r.choice(tables.REDUCTIONS))
                added = self.add(text, used={name})
            if added:
                name = self.last()
        return name

    def last(self):
        return self.statements[-1].names[0]

    def reducing_layer(self, name):
        rank = self.rank(name)
        choices = ["Flatten()"]
        if 3 <= rank <= 5:
            kind = self.r.choice(["AveragePooling", "MaxPooling"])
            choices += [f"Global{kind}{rank - 2}D()"]
        if rank == 3:
            choices += [fill(self.r, "LSTM(<units>)"), fill(self.r, "GRU(<units>)")]
        return self.r.choice(choices)


def generate(seed):
    """The model of a seed, with its training."""
    r = random.Random(f"fit {seed}")
    ef.random.seed(seed)
    form = r.choice(["functional"] * 5 + ["sequential"] * 2 + ["subclass"] * 3 + ["train_step"])
    builder = Builder(r, form)
    count = 1 if form == "sequential" else r.choice([1, 1, 1, 2, 2, 3])
    inputs = tuple(builder.add_input(r.choice(tables.KINDS)) for _ in range(count))
    for _ in range(r.choice([1, 2, 2, 3, 3, 4, 5])):
        builder.grow()
    sizes = random_sizes(r)
    outputs = add_outputs(builder, r, sizes[0])
    return Fit(
        seed,
        form,
        r.choice(tables.POLICIES),
        inputs,
        tuple(builder.statements),
        outputs,
        optimizer(r),
        *training_arguments(r, outputs, *sizes),
        callback=r.choice(["", "", "logs", "logs", "weights"]),
        predicts=r.random() < 0.12,
    )


def random_sizes(r):
    """Numbers of examples, of examples in a batch, and of epochs."""
    batch, batches = r.choice([1, 2, 3, 4, 4, 5, 6, 8, 8]), r.choice([2, 3, 4, 5, 7])
    last_batch = r.choice([0, 0, 0, 0, 0, 0, 1, 2]) % batch or batch
    epochs = max(1, round(STEPS / batches))
    return batch * (batches - 1) + last_batch, batch, epochs


def add_outputs(builder, r, examples):
    """Make at most three unused tensors outputs, or concatenate them to one output."""
    rest = builder.unused[-3:]
    several = len(rest) > 1 and builder.form != "sequential" and r.random() < 0.4
    if several:
        return tuple(add_output(builder, r, name, examples) for name in rest)
    if len(rest) > 1:
        rest = [builder.reduce(name, 2) for name in rest]
        if builder.add(f"$([{', '.join(rest)}])", "nn.Concatenate()", used=set(rest)):
            rest = [builder.last()]
    return (add_output(builder, r, rest[-1], examples),)


def add_output(builder, r, name, examples):
    """Add the last layer of an output, with a loss and metrics that fit."""
    rank = 3 if builder.rank(name) == 3 and r.random() < 0.4 else 2
    name = builder.reduce(name, rank)
    table = tables.HEADS | (tables.VECTOR_HEADS if rank == 2 else tables.STEP_HEADS)
    while True:
        kind = r.choice(list(table))
        if kind == "words" and r.random() < 0.7:
            continue
        layer, targets, losses, metrics = table[kind]
        builder.add(f"$({name})", f"nn.{fill(r, layer)}", used={name})
        name = builder.last()
        *lead, size = map(int, builder.names[name].shape[1:])
        lead = ", ".join(map(str, (examples, *lead)))
        targets = targets.replace("LEAD[0]", str(examples)).replace("LEAD", lead)
        targets = targets.replace("C)", f"{size})")
        chosen = r.sample(listed(metrics), r.choice([0, 1, 1, 2])) if metrics else []
        loss = qualified(r.choice(listed(losses)), "losses")
        return Output(name, loss, tuple(qualified(m, "metrics") for m in chosen), targets)


def qualified(text, module):
    return text if text.startswith("'") or text == "squares" else f"nn.{module}.{text}"


def optimizer(r):
    text = r.choice(tables.OPTIMIZERS)
    if r.random() < 0.15 and "<lr>" in text:
        text = text.replace("<lr>", r.choice(tables.SCHEDULES))
    options = ", " + r.choice(tables.OPTIMIZER_OPTIONS) if r.random() < 0.3 else ""
    if "weight_decay" in text and "weight_decay" in options:
        options = ""
    return f"nn.optimizers.{fill(r, text)[:-1]}{options})"


def training_arguments(r, outputs, examples, batch, epochs):
    """Arguments of compile, the number of examples, arguments of fit, and lines before compile."""
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
