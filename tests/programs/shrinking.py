"""Programs with a part left out."""

import ast
import dataclasses


def smaller(program):
    """Programs with a part left out, the large parts first."""
    lines = program.script
    size = len(lines) // 2
    while size:
        for k in range(0, len(lines), size):
            yield dataclasses.replace(program, script=lines[:k] + lines[k + size :])
        size //= 2
    for n, body in enumerate(program.bodies):
        for changed in smaller_bodies(body):
            bodies = [*program.bodies[:n], changed, *program.bodies[n + 1 :]]
            yield dataclasses.replace(program, bodies=bodies)
        yield dataclasses.replace(program, bodies=program.bodies[:n] + program.bodies[n + 1 :])
    for n in range(len(program.definitions)):
        left = program.definitions[:n] + program.definitions[n + 1 :]
        yield dataclasses.replace(program, definitions=left)
    if program.is_object:
        yield dataclasses.replace(program, is_object=False)


def smaller_bodies(body):
    """A function without one of its statements, or with one of its results alone."""
    for n, statement in enumerate(body.lines):
        inside = statement.split("\n")
        left = (
            []
            if len(inside) == 1
            else ["\n".join(inside[:k] + inside[k + 1 :]) for k in range(1, len(inside))]
        )
        yield dataclasses.replace(body, lines=body.lines[:n] + body.lines[n + 1 :])
        for text in left:
            yield dataclasses.replace(body, lines=[*body.lines[:n], text, *body.lines[n + 1 :]])
    marked = body.result.replace("$", "OWN_")
    nest = ast.parse(marked, mode="eval").body
    items = nest.values if isinstance(nest, ast.Dict) else getattr(nest, "elts", [])
    for item in items:
        yield dataclasses.replace(body, result=ast.unparse(item).replace("OWN_", "$"))
    for k in range(len(items) if len(items) > 2 else 0):
        kept = [ast.unparse(x).replace("OWN_", "$") for n, x in enumerate(items) if n != k]
        yield dataclasses.replace(body, result="(" + ", ".join(kept) + ",)")
