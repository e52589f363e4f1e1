"""Composed functions, with the facts that the checks of ops need."""

from eagerflow.ops import late
from eagerflow.ops.composition import compositions

late.load_all()


class Composed:
    """A composed function with the names by which the checks ask for the facts of an op."""

    family, variadic, arrange, on_tensors = "composition", False, None, False
    optional, together, ulp = (), (), 4

    def __init__(self, facts):
        self.facts = facts
        self.table, self.kernels = {}, {}
        self.vjp = facts.gradient
        self.differentiable = facts.gradient is None

    def __getattr__(self, name):
        return getattr(self.facts, name)

    def allowed(self, position):
        """The dtypes that the function takes."""
        return self.dtypes

    @property
    def fails(self):
        """Whether it may be refused for values is a fact of the ops inside."""
        return True


ALL = sorted(map(Composed, compositions), key=lambda op: (op.name, op.call.__module__))
