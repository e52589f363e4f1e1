"""A random program: its parts, and its text as a module or as the methods of an object."""

import dataclasses


@dataclasses.dataclass
class Body:
    """A captured function: its statements and the expression of its result."""

    name: str
    parameters: str
    statements: list
    result: str


@dataclasses.dataclass
class Program:
    """The parts of a program; in their text ``$`` marks names of the program."""

    seed: int
    dtype: str
    second_dtype: str
    is_object: bool  # the names of the program are attributes of an object
    definitions: list
    bodies: list
    script: list

    def text(self):
        return "\n".join([self.setup(), *self.statements()])

    def resolved(self, text, owner):
        return text.replace("$", f"{owner}." if self.is_object else "")

    def setup(self):
        """The text of definitions and functions."""
        lines = [*preamble(self), *(x for x in self.definitions if "$" not in x)]
        own = [self.resolved(x, "self") for x in self.definitions if "$" in x]
        if not self.is_object:
            return "\n".join([*lines, *own, *self.functions()])
        lines += ["class Program:", "    def __init__(self):", *indented(own, 8)]
        return "\n".join([*lines, *indented(self.functions(), 4), "me = Program()"])

    def functions(self):
        return [line for body in self.bodies for line in self.function(body)]

    def function(self, body):
        parameters = ", ".join((["self"] if self.is_object else []) + [body.parameters])
        decorator = "nested" if body.name in ("inner", "embedded") else "capture"
        lines = [line for statement in body.statements for line in statement.split("\n")]
        if body.name == "step":
            lines.insert(0, "x, i = ef.asarray(x), ef.asarray(i)")
        elif body.name == "other":
            lines.insert(0, "x = ef.asarray(x)")
        if not self.is_object:
            rebound = [n for n in ("rate", "table") if any(f"${n} =" in s for s in lines)]
            lines = [f"global {n}" for n in rebound] + lines
        lines = [self.resolved(line, "self") for line in [*lines, f"return {body.result}"]]
        return [f"@{decorator}", f"def {body.name}({parameters}):", *indented(lines, 4)]

    def statements(self):
        return [self.resolved(line, "me") for line in self.script]


def preamble(program):
    """The first lines of a program: dtypes and seeds."""
    dtype, seed = program.dtype, program.seed
    return [
        f'F, H, TORCH = "{dtype}", "{program.second_dtype}", getattr(torch, "{dtype}", None)',
        f"ef.random.seed({seed})",
        f"rng = np.random.default_rng({seed})",
    ]


def indented(lines, count):
    return [" " * count + line for text in lines for line in text.split("\n")]
