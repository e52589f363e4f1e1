"""Outside of ``ops``, code names an op by its function: a misspelt string would go unnoticed."""

import ast

from tests.structure.sources import package_sources

MOST = 60
# Where ops are defined.
DEFINING = ("eagerflow/ops/", "eagerflow/capture/control/")


def op_names(sources):
    """path:line of each op that is looked up or compared with by a string."""
    return [
        f"{path}:{node.lineno}"
        for path, text in sources.items()
        if not path.startswith(DEFINING) and ("ops[" in text or "op.name" in text)
        for node in ast.walk(ast.parse(text, path))
        if is_lookup(node) or is_comparison(node)
    ]


def is_lookup(node):
    """``ops["add"]``."""
    return (
        isinstance(node, ast.Subscript)
        and isinstance(node.value, ast.Name)
        and node.value.id == "ops"
        and isinstance(node.slice, ast.Constant)
    )


def is_comparison(node):
    """``op.name == "add"``, ``node.op.name in ("add", "exp")``."""
    return isinstance(node, ast.Compare) and ast.unparse(node.left).endswith("op.name")


def test_ops_are_named_by_their_functions():
    found = op_names(package_sources())
    print(*found, sep="\n")
    assert len(found) < MOST


def test_planted_names_are_found():
    text = 'ops["add"]\nnode.op.name == "exp"\nop.name in ("exp", "log")\nop is exp.op\nops[name]\n'
    planted = {"eagerflow/plan/a.py": text, "eagerflow/ops/b.py": text}
    assert op_names(planted) == [f"eagerflow/plan/a.py:{line}" for line in (1, 2, 3)]
