"""A second definition of a plan's language, and names that users could choose."""

import ast
import random
import re

from eagerflow.graph.graph import Graph

FILE = re.compile(r"<eagerflow plan [0-9]+>")
STATEMENTS = (
    ast.Module,
    ast.FunctionDef,
    ast.arguments,
    ast.arg,
    ast.Assign,
    ast.Expr,
    ast.Return,
    ast.If,
    ast.For,
    ast.While,
    ast.Break,
    ast.Pass,
    ast.Delete,
)
EXPRESSIONS = (
    ast.Name,
    ast.Load,
    ast.Store,
    ast.Del,
    ast.Call,
    ast.keyword,
    ast.Tuple,
    ast.Subscript,
    ast.Constant,
    ast.UnaryOp,
    ast.USub,
    ast.Not,
    ast.Compare,
    ast.Eq,
)
WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
ODD = (
    "\n",
    "\r",
    "\r\nimport os\n",
    "\x0b",
    "\x0c",
    "\x1c",
    "\x85",
    "\u2028",
    "\u2029",
    "\x00",
    "\x1b[2J\x1b[31m",
    "\x1b]0;title\x07",
    "\x9b31m",
    "\u202e",
    "\u2066",
    "\u200f",
    "\u061c",
    "\ufeff",
    "\ud800",
    "µ",
    "μ",
    "ſ",
    "ﬁ",
    "x½",
    "σ²",
    "été",
    "名前",
    "ª",
    "𝐱",
    "x",
    "x_1",
    "v",
    "_",
    "__",
    "__debug__",
    "__class__",
    "__builtins__",
    "__import__('os').system('true')",
    "os",
    "exec",
    "eval",
    "range",
    "int",
    "buffers",
    "replay",
    "empty",
    "asarray",
    "b0",
    "b1",
    "_part",
    "lambda",
    "match",
    "case",
    "type",
    "None",
    "True",
    "class",
    "def",
    "#",
    "'",
    '"',
    "\\",
    "'''",
    '"""',
    "); import os; (",
    "{0}",
    "{x}",
    "%s",
    "\t",
    " ",
    "a b",
    "1",
    "1e400",
    "a.b",
    "a/b",
    ":",
    ";",
    "= 1",
    "@",
    "<script>alert(1)</script>",
    "]]>",
    "&lt;",
    "$x$",
    "x" * 300,
    "é" * 300,
    "",
)


def foreign(program):
    """Parts of a plan's text or tree that no plan has; also words that are not ASCII."""
    found, spread = [], set()
    for node in ast.walk(ast.parse(program) if isinstance(program, str) else program):
        if isinstance(node, ast.Tuple) and isinstance(node.ctx, ast.Load):
            # In a tuple stand others by their names, with all that they hold.
            starred = (x for x in node.elts if isinstance(x, ast.Starred))
            spread.update(x for x in starred if isinstance(x.value, ast.Name))
        words = [
            getattr(node, name) for name in ("id", "arg", "attr", "name") if hasattr(node, name)
        ]
        if not isinstance(node, STATEMENTS + EXPRESSIONS) and node not in spread:
            found.append(ast.dump(node))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str | bytes | complex):
            found.append(repr(node.value))
        found += [w for w in words if w is None or not WORD.fullmatch(w) or w.startswith("__")]
    return found


def odd_text(rng):
    """A valid or hostile name of a value, a file or a scope."""
    return "".join(rng.choice(ODD) for _ in range(rng.choice((1, 1, 2, 3)))) or "x"


def renamed(graph, seed):
    """Odd names, places and scopes for everything in a graph, and in the bodies within it."""
    rng, seen = random.Random(seed), set()
    waiting = [graph]
    while waiting:
        one = waiting.pop()
        one.name = odd_text(rng)
        values = [*one.all_inputs(), *one.constants, *(v for n in one.nodes for v in n.outputs)]
        for value in values:
            value.name = unique(rng, seen)
        for cell in one.cells:
            cell.name = unique(rng, seen)
        for node in one.nodes:
            node.name = "/".join(odd_text(rng) for _ in range(rng.randrange(1, 4)))
            node.origin = (odd_text(rng), rng.choice((0, 1, -5, 10**12)), odd_text(rng))
            for value in node.attributes.values():
                parts = value if isinstance(value, tuple) else (value,)
                waiting += [part for part in parts if isinstance(part, Graph)]
        for values in (one.inputs, one.outputs):
            values.names = tuple(unique(rng, seen) for _ in values)
    return graph


def unique(rng, seen):
    found = odd_text(rng)
    while found in seen:
        found += odd_text(rng)
    seen.add(found)
    return found
