"""A random model with data, a loss, an optimizer and a call of ``fit``, as text."""

import dataclasses

from tests.fits import tables

IMPORTS = "import numpy as np\nimport eagerflow as ef\nnn = ef.nn"


@dataclasses.dataclass(frozen=True)
class Statement:
    """A line of a model that binds names to the results of a layer ``$`` or of an op."""

    names: tuple
    call: str  # "$(h1)", "$(h1, h2)", "ef.tanh(h1)"
    constructor: str = ""  # of the layer
    layer: str = ""  # the name of the layer, which other statements may share


@dataclasses.dataclass(frozen=True)
class Output:
    """An output of a model, with the expressions of its loss, metrics and targets."""

    name: str
    loss: str
    metrics: tuple
    targets: str


@dataclasses.dataclass(frozen=True)
class Fit:
    """A model with its data and the arguments of its training."""

    seed: int
    form: str  # "functional", "sequential", "subclass", "train_step"
    policy: str
    inputs: tuple  # (name, kind, shape of an example)
    statements: tuple
    outputs: tuple
    optimizer: str
    options: tuple  # further arguments of compile
    examples: int
    fit: tuple  # arguments of fit
    extra: tuple = ()  # lines before compile
    callback: str = ""  # after each step: "logs" are read, or also "weights"
    predicts: bool = False

    def text(self):
        head = [IMPORTS, tables.HELPERS.strip("\n"), f"ef.random.seed({self.seed})"]
        return "\n".join([*head, *self.model(), *self.data(), *self.first_call()])

    def first_call(self):
        """A call that creates weights: a captured step would draw them in another order."""
        if self.form in ("functional", "sequential"):
            return []
        size = min(self.examples, int(self.fit[0].partition("=")[2]))
        x = f"x[:{size}]" if len(self.inputs) == 1 else f"[a[:{size}] for a in x]"
        return [f"model({x})"]

    def model(self):
        """Lines that create and compile the model."""
        sources = [f"nn.Input({shape}, dtype={dtype_of(kind)!r})" for _, kind, shape in self.inputs]
        names = [name for name, _, _ in self.inputs]
        if self.form == "sequential":
            layers = [s.constructor for s in self.statements]
            rows = ",\n".join(f"    {text}" for text in (*sources, *layers))
            lines = [f"model = nn.Sequential([\n{rows},\n])"]
        elif self.form == "functional":
            lines = [f"{n} = {s}" for n, s in zip(names, sources, strict=True)]
            lines += self.calls("", inline=True)
            lines += [f"model = nn.Model({one_or_list(names)}, {self.output_names()})"]
        else:
            lines = [*self.subclass(names), "model = Net()"]
        return [*lines, *self.extra, self.compiled()]

    def output_names(self):
        return one_or_list([o.name for o in self.outputs])

    def calls(self, prefix, inline):
        """Lines that call layers. Constructors stand inline unless a layer is shared."""
        layers = [s.layer for s in self.statements]
        defined = set()
        for s in self.statements:
            layer = prefix + s.layer
            if inline and layers.count(layer) == 1:
                layer = s.constructor
            elif inline and layer and layer not in defined:
                yield f"{layer} = {s.constructor}"
            defined.add(layer)
            yield f"{', '.join(s.names)} = {s.call.replace('$', layer)}"

    def subclass(self, names):
        layers = {s.layer: s.constructor for s in self.statements if s.layer}
        lines = ["class Net(nn.Model):", "    def __init__(self):", "        super().__init__()"]
        lines += [f"        self.{name} = {text}" for name, text in layers.items()]
        lines += ["    def call(self, inputs):", f"        {one_or_list(names)} = inputs"]
        lines += [f"        {line}" for line in self.calls("self.", inline=False)]
        lines += [f"        return {self.output_names()}"]
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
        x = [
            tables.INPUTS[kind][1].replace("SHAPE", repr((self.examples, *shape)))
            for _, kind, shape in self.inputs
        ]
        y = [o.targets for o in self.outputs]
        seed = f"rng = np.random.default_rng({self.seed})"
        return [seed, f"x = {one_or_list(x)}", f"y = {one_or_list(y)}"]

    def call(self):
        return f"model.fit(x, y, verbose=0, {', '.join(self.fit)})"


def one_or_list(names):
    return names[0] if len(names) == 1 else f"[{', '.join(names)}]"


def dtype_of(kind):
    return "int64" if kind == "ids" else "float32"


def listing(fit):
    """A program that runs alone, eagerly where EAGER is true."""
    settings = f"{IMPORTS}\nnn.set_dtype_policy({fit.policy!r})\nEAGER = False"
    text = fit.text().replace(IMPORTS, settings, 1)
    return f"{text}\nprint({fit.call()}.history)\nprint([w.numpy() for w in model.weights])"


def short(fit):
    """The listing without the helpers."""
    return listing(fit).replace(tables.HELPERS.strip("\n") + "\n", "")
