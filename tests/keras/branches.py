"""Branches for JAX in Keras's tests, taken by our backend where they use features that we have.

Keras's tests make sparse tensors and take gradients by the name of the backend: ``if
backend.backend() == "jax": import jax.experimental.sparse ...``. The syntax tree of a test module
is changed as it is loaded, as ``eagerflow.keras.hook`` does with a module of Keras's:

- A branch that imports ``jax.experimental.sparse`` is ours too, and imports ``tests.keras.in_jax``,
  which makes our sparse tensors.
- A test that is skipped but for a list of backends, since others have no gradients, is not skipped
  for ours, and takes its branch for JAX with our ``grad``.
- A table of JAX's and other backends' names has JAX's entry for ours.

The checks of tests are not changed. ``keras.src.testing.test_case`` is one of these modules.
"""

import ast
import sys
from importlib.machinery import PathFinder

from eagerflow.keras import hook

STAND_IN = "tests.keras.in_jax"
SPARSE = "jax.experimental.sparse"
NAMES = {"jax": "jax", "jax.numpy": "numpy", SPARSE: "sparse"}
"""Modules of JAX's, and their replacements in ``STAND_IN``."""
BACKENDS = {"jax", "tensorflow", "torch", "numpy", "openvino"}


class Branches(ast.NodeTransformer):
    """Makes of a module of tests one that knows our backend; ``count`` says in how many places."""

    def __init__(self):
        self.count = 0
        self.in_gradients = False

    def visit_FunctionDef(self, node):
        outer, before = self.in_gradients, self.count
        node.decorator_list = [self.visit(decorator) for decorator in node.decorator_list]
        self.in_gradients = outer or self.count > before
        node.body = [self.visit(part) for part in node.body]
        self.in_gradients = outer
        return node

    def visit_Call(self, node):
        self.generic_visit(node)
        reason = "".join(ast.unparse(k.value) for k in node.keywords if k.arg == "reason")
        if ast.unparse(node.func) == "pytest.mark.skipif" and "gradient" in reason:
            asked, listed = _asked(node.args[0], ast.NotIn)
            if asked:
                listed.elts.append(ast.Constant(hook.NAME))
                self.count += 1
        return node

    def visit_If(self, node):
        imported = {name for part in node.body for name, _ in _imports(part)}
        if SPARSE in imported or (self.in_gradients and "jax" in imported):
            self.count += 1
            node.body = [_stood_in(part) for part in node.body]
            asked, name = _asked(node.test, ast.Eq)
            if asked and name.value == "jax":
                known = ast.Tuple([name, ast.Constant(hook.NAME)], ast.Load())
                node.test = ast.Compare(node.test.left, [ast.In()], [known])
        return self.generic_visit(node)

    def visit_Dict(self, node):
        self.generic_visit(node)
        keys = [getattr(key, "value", None) for key in node.keys]
        if "jax" in keys and BACKENDS.issuperset(keys):
            node.keys.append(ast.Constant(hook.NAME))
            node.values.append(node.values[keys.index("jax")])
            self.count += 1
        return node


def _asked(test, how):
    """Whether a condition compares the name of the backend in this way, and the other operand."""
    if not isinstance(test, ast.Compare) or ast.unparse(test.left) != "backend.backend()":
        return False, None
    return isinstance(test.ops[0], how), test.comparators[0]


def _imports(part):
    """The modules that a statement imports, each with its name there."""
    if isinstance(part, ast.Import):
        return [(alias.name, alias.asname or alias.name) for alias in part.names]
    if isinstance(part, ast.ImportFrom):
        return [(f"{part.module}.{a.name}", a.asname or a.name) for a in part.names]
    return []


def _stood_in(part):
    """A statement, in which imports of JAX's modules import their replacements."""
    names = _imports(part)
    if not names or not NAMES.keys() >= {name for name, _ in names}:
        return part
    aliases = [ast.alias(NAMES[name], own) for name, own in names]
    return ast.copy_location(ast.ImportFrom(STAND_IN, aliases, 0), part)


def changed(tree):
    """The tree with our branches, and in how many places it differs."""
    branches = Branches()
    return ast.fix_missing_locations(branches.visit(tree)), branches.count


class _Loader(hook._Loader):
    def get_code(self, fullname):
        tree = ast.parse(self.get_data(self.path))
        if fullname in hook.CHOICES:
            tree = hook.with_choice(tree, fullname)
        return compile(changed(tree)[0], self.path, "exec", dont_inherit=True)


class Finder:
    """Finds Keras's modules of tests, and their common base."""

    @staticmethod
    def find_spec(fullname, path=None, target=None):
        last = fullname.rpartition(".")[2]
        if not fullname.startswith("keras.src.") or not last.endswith(("_test", "test_case")):
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.origin is not None:
            spec.loader = _Loader(fullname, spec.origin)
        return spec


def install():
    """Put the finder in place, before modules of tests are loaded."""
    sys.meta_path.insert(0, Finder)
