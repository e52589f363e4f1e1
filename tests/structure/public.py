"""Walks the public objects of the package, for the tests of names and of doctests."""

import ast
import importlib
import inspect
from types import GenericAlias, ModuleType

from tests.structure.sources import PACKAGE, ROOT

# Public whether or not the package's own __all__ lists them.
PUBLIC_MODULES = ("nn", "random", "linalg", "fft", "testing", "errors", "capture")


def public_modules(package=None):
    """Dotted name to module: the package, and every module that an `__all__` reaches."""
    package = package or importlib.import_module(PACKAGE)
    modules = {package.__name__: package}
    waiting = [package]
    for name in PUBLIC_MODULES:
        if package.__name__ == PACKAGE and is_on_disk(name):
            waiting.append(importlib.import_module(f"{PACKAGE}.{name}"))
    while waiting:
        module = waiting.pop()
        modules[module.__name__] = module
        for name in getattr(module, "__all__", ()):
            value = getattr(module, name, None)
            if isinstance(value, ModuleType) and value.__name__ not in modules:
                waiting.append(value)
    return {n: m for n, m in sorted(modules.items()) if n.split(".")[0] == package.__name__}


def is_documented_elsewhere(value):
    """Modules, and names given to other packages' classes, such as a dtype or an alias of one."""
    if isinstance(value, type | GenericAlias):
        return value.__module__.split(".")[0] in ("builtins", "numpy", "ml_dtypes")
    return isinstance(value, ModuleType)


def is_on_disk(name):
    folder = ROOT / PACKAGE
    return (folder / f"{name}.py").is_file() or (folder / name / "__init__.py").is_file()


def own_docstring(value):
    """The docstring written for this very value: not inherited, not that of its type."""
    doc = getattr(value, "__doc__", None)
    if not isinstance(doc, str):
        return None
    if not inspect.isclass(value) and doc == type(value).__doc__:
        return None
    return inspect.cleandoc(doc)


def public_values(modules):
    """(module name, name, value) of every public callable of ours, each value once."""
    seen = {}  # with the values: the identity of one that is gone, as a bound method, is used again
    for module_name, module in modules.items():
        for name in getattr(module, "__all__", ()):
            value = getattr(module, name, None)
            if not callable(value) or is_documented_elsewhere(value):
                continue
            if id(value) not in seen:
                seen[id(value)] = value
                yield module_name, name, value


def source_docstrings(text, path):
    """(top-level name or None, qualified name, line, clean docstring) of all in a source text."""

    def walk(node, qualified, top):
        kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
        for child in ast.iter_child_nodes(node):
            if isinstance(child, kinds):
                name = f"{qualified}.{child.name}" if qualified else child.name
                first = top or child.name
                yield from document(child, name, first)
                yield from walk(child, name, first)
            else:
                yield from walk(child, qualified, top)

    def document(node, name, top):
        doc = ast.get_docstring(node)
        if doc is not None:
            yield top, name, node.body[0].lineno, doc

    tree = ast.parse(text, path)
    yield from document(tree, "", None)
    yield from walk(tree, "", None)
