"""Small changes of the package that a careful author could have made by mistake.

A mutant replaces one expression or statement: another comparison or operator, a number off by one,
a condition negated, a keyword argument or a statement left out, two arguments exchanged.
"""

import ast
import copy
import random
from typing import NamedTuple

ROOMS = {
    "ops": 0.3,
    "codegen": 0.12,
    "primitives": 0.1,
    "fusion": 0.04,
    "plan": 0.08,
    "capture": 0.1,
    "graph": 0.04,
    "nn": 0.12,
    "cluster": 0.05,
    "serving": 0.05,
}
"""The folders of the package and their shares of all mutants."""

WITHOUT_EFFECT = {
    *("cost", "flops", "doc", "__repr__", "strict"),
    *("expected", "hint", "received", "stacklevel"),
}
"""Names of functions and arguments of estimates, texts and assertions."""

NO_MACHINE = "device", "gpu", "cuda", "nvrtc", "cupy", "nccl", "cublas", "aarch64"
"""Words in names of files and functions that need a machine which tests may not have."""

COMPARISONS = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
OPERATORS = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
}
CALLS = {"min": "max", "max": "min", "any": "all", "all": "any", "maximum": "minimum"}


class Mutant(NamedTuple):
    """A change of one file: its kind, its line, the lines that it affects, and the new text.

    Those are the lines of its statement, or all of the file for one that runs at imports.
    """

    file: str
    kind: str
    line: int
    lines: range
    before: str
    after: str
    text: str


def swapped(node):
    """Kind and changed copy for each mutation of a node."""
    made = copy.deepcopy(node)
    match made:
        case ast.Compare(ops=[op]) if type(op) in COMPARISONS:
            made.ops = [COMPARISONS[type(op)]()]
            yield "comparison", made
        case ast.BinOp() if type(made.op) in OPERATORS and not has_text(made):
            made.op = OPERATORS[type(made.op)]()
            yield "operator", made
        case ast.BoolOp():
            made.op = ast.And() if isinstance(made.op, ast.Or) else ast.Or()
            yield "and, or", made
        case ast.UnaryOp(op=ast.Not() | ast.USub()):
            yield "negation", made.operand
        case ast.Constant(value=bool(value)):
            yield "truth", ast.Constant(not value)
        case ast.Constant(value=int(value)):
            yield "number", ast.Constant(value + 1)
        case ast.IfExp():
            made.body, made.orelse = made.orelse, made.body
            yield "branches", made
        case ast.Call():
            yield from changed_calls(made)
        case ast.AugAssign() if type(made.op) in OPERATORS:
            made.op = OPERATORS[type(made.op)]()
            yield "operator", made
        case ast.Expr(value=ast.Call()):
            yield "statement", ast.Pass()
        case ast.If():
            yield "condition", ast.UnaryOp(ast.Not(), made.test)


def changed_calls(call):
    """Kind and changed copy for each mutation of a call."""
    match call.func:
        case ast.Name(id=name) if name in CALLS:
            yield "min, max", ast.Call(ast.Name(CALLS[name]), call.args, call.keywords)
    named = [k for k in call.keywords if k.arg and k.arg not in WITHOUT_EFFECT]
    for left_out in named:
        rest = [k for k in call.keywords if k is not left_out]
        yield "argument", ast.Call(call.func, call.args, rest)
    texts = {ast.dump(a) for a in call.args}
    symmetric = isinstance(call.func, ast.Name) and call.func.id in CALLS
    if (
        len(call.args) == len(texts) == 2
        and not symmetric
        and not any(isinstance(a, ast.Starred | ast.Constant) for a in call.args)
    ):
        yield "order", ast.Call(call.func, call.args[::-1], call.keywords)


def has_text(node):
    return any(
        isinstance(part, ast.JoinedStr)
        or (isinstance(part, ast.Constant) and isinstance(part.value, str))
        for part in ast.walk(node)
    )


def candidates(tree):
    """The nodes that may be changed, each with the statement and whether a function holds it."""

    def visit(node, statement, inside):
        if isinstance(node, ast.stmt):
            statement = node
        if is_without_effect(node):
            return
        yield node, statement, inside
        inside = inside or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for field, value in ast.iter_fields(node):
            if field in ("annotation", "returns", "decorator_list", "type_params"):
                continue
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield from visit(child, statement, inside)

    yield from visit(tree, None, False)


def is_without_effect(node):
    """Whether a change below a node would be one of messages, estimates or types."""
    match node:
        case ast.Raise() | ast.Assert() | ast.JoinedStr() | ast.Import() | ast.ImportFrom():
            return True
        case (
            ast.keyword(arg=name) | ast.FunctionDef(name=name) | ast.Dict(keys=[ast.Constant(name)])
        ):
            name = str(name)
            return (
                name in WITHOUT_EFFECT
                or name.endswith("_cost")
                or any(word in name.lower() for word in NO_MACHINE)
            )
        case ast.If(test=ast.Name(id="TYPE_CHECKING")):
            return True
        case ast.Assign(targets=[ast.Name(id="__all__" | "__slots__")]) | ast.AnnAssign(value=None):
            return True
    return False


def mutants_of(path, root):
    """All mutants of a file."""
    source = path.read_text(encoding="utf-8")
    begins = [0]
    for line in source.encode().splitlines(keepends=True):
        begins.append(begins[-1] + len(line))
    raw = source.encode()
    for node, statement, inside in candidates(ast.parse(source)):
        for kind, made in swapped(node):
            at = node.test if kind == "condition" else node
            begin = begins[at.lineno - 1] + at.col_offset
            end = begins[at.end_lineno - 1] + at.end_col_offset
            new = ast.unparse(ast.fix_missing_locations(made))
            after = f"({new})" if isinstance(made, ast.expr) else new
            text = (raw[:begin] + after.encode() + raw[end:]).decode()
            last = at.end_lineno if hasattr(statement, "body") else statement.end_lineno
            lines = range(min(statement.lineno, at.lineno), last + 1)
            lines = lines if inside else range(1, len(begins))
            before = raw[begin:end].decode()
            file = path.relative_to(root).as_posix()
            yield Mutant(file, kind, at.lineno, lines, before, new, text)


def plant(package, count, seed):
    """``count`` mutants, spread over rooms by their shares, files, and kinds."""
    chooser = random.Random(seed)
    files = {room: sorted((package / room).rglob("*.py")) for room in ROOMS}
    found, seen = [], set()
    while len(found) < count:
        (room,) = chooser.choices(list(ROOMS), list(ROOMS.values()))
        path = chooser.choice(files[room])
        file = path.relative_to(package).as_posix()
        if any(word in file for word in NO_MACHINE):
            continue
        kinds = {}
        for mutant in mutants_of(path, package):
            kinds.setdefault(mutant.kind, []).append(mutant)
        if not kinds:
            continue
        mutant = chooser.choice(kinds[chooser.choice(sorted(kinds))])
        if mutant.text not in seen and compiles(mutant):
            seen.add(mutant.text)
            found.append(mutant)
    return found


def compiles(mutant):
    try:
        compile(mutant.text, mutant.file, "exec")
    except SyntaxError:
        return False
    return True
