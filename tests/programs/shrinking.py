"""Shrinking of programs: candidates that lack one part."""

import ast
import dataclasses


def smaller(program):
    """Programs that lack one part, the largest parts first."""
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
        yield dataclasses.replace(program, bodies=without(program.bodies, n))
    for n in range(len(program.definitions)):
        yield dataclasses.replace(program, definitions=without(program.definitions, n))
    if program.is_object:
        yield dataclasses.replace(program, is_object=False)


def without(items, n):
    return items[:n] + items[n + 1 :]


def smaller_bodies(body):
    """Functions that lack a statement, a line of a statement, or results."""
    for n, statement in enumerate(body.statements):
        yield dataclasses.replace(body, statements=without(body.statements, n))
        lines = statement.split("\n")
        for k in range(1, len(lines)):
            changed = "\n".join(without(lines, k))
            statements = [*body.statements[:n], changed, *body.statements[n + 1 :]]
            yield dataclasses.replace(body, statements=statements)
    nest = ast.parse(body.result.replace("$", "OWN_"), mode="eval").body
    items = nest.values if isinstance(nest, ast.Dict) else getattr(nest, "elts", [])
    items = [ast.unparse(item).replace("OWN_", "$") for item in items]
    for item in items:
        yield dataclasses.replace(body, result=item)
    for n in range(len(items) if len(items) > 2 else 0):
        yield dataclasses.replace(body, result="(" + ", ".join(without(items, n)) + ",)")
