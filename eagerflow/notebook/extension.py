"""The extension of ``%load_ext eagerflow``: magics, and errors with the hint first.

``%ef_graph f(x, w)`` returns the graph of a call, without running it; ``%%ef_profile`` at the top
of a cell profiles it.
"""

from __future__ import annotations

import ast
import sys
from functools import partial
from typing import Any

import eagerflow as ef
from eagerflow.errors import ArgumentError, EagerflowError
from eagerflow.notebook.shell import kernel_shell, show
from eagerflow.notebook.views import html
from eagerflow.tracebacks import users_frames

_ARGUMENTS = "_eagerflow_arguments"  # of the inspected call


def load_ipython_extension(shell: Any) -> None:
    """Register the magics in an IPython shell, and format eagerflow's errors."""
    unload_ipython_extension(shell)
    extension = shell.eagerflow = Extension(shell)
    extension.load()


def unload_ipython_extension(shell: Any) -> None:
    """Undo ``load_ipython_extension``."""
    extension = vars(shell).pop("eagerflow", None)
    if extension is not None:
        extension.unload()


class Extension:
    """The magics of one shell, and the handlers that they replaced."""

    def __init__(self, shell: Any) -> None:
        self.shell = shell
        self._before: tuple[Any, Any] = ((), None)

    def load(self) -> None:
        """Register the magics and handlers."""
        shell = self.shell
        self._before = shell.custom_exceptions, getattr(shell, "CustomTB", None)
        shell.register_magic_function(self.ef_graph, "line", "ef_graph")
        shell.register_magic_function(self.ef_profile, "cell", "ef_profile")
        self._formatter().for_type(EagerflowError, self._error_view)
        if kernel_shell() is shell:  # a terminal shows no HTML
            shell.set_custom_exc((EagerflowError,), self._show_error)

    def unload(self) -> None:
        """Restore the previous state."""
        shell = self.shell
        for kind, name in (("line", "ef_graph"), ("cell", "ef_profile")):
            shell.magics_manager.magics[kind].pop(name, None)
        self._formatter().pop(EagerflowError, None)
        shell.custom_exceptions, shell.CustomTB = self._before

    def _formatter(self) -> Any:
        return self.shell.display_formatter.formatters["text/html"]

    # Errors ----------------------------------------------------------------------------------

    def _error_view(self, error: EagerflowError) -> str:
        return html(error, "errors", self._file_name)

    def _file_name(self, file: str) -> str:
        """The displayed name of a file, which for a cell is that of its input."""
        found = self.shell.compile.format_code_name(file)
        return file if found is None else " ".join(found)

    def _show_error(
        self, shell: Any, kind: type, error: EagerflowError, trace: Any, tb_offset: Any = None
    ) -> list[str]:
        """Display the view, and report only the message as the error of the cell."""
        error.with_traceback(users_frames(trace))
        sys.last_type, sys.last_value, sys.last_traceback = kind, error, error.__traceback__
        whole = "\n".join(error._render_traceback_())
        forms = {"text/html": self._error_view(error), "text/plain": whole}
        show(forms, raw=True)
        lines = [f"{kind.__name__}: {error.problem}"]
        shell._showtraceback(kind, error, lines)
        return lines

    # Magics ----------------------------------------------------------------------------------

    def ef_graph(self, line: str) -> Any:
        """``%ef_graph f(x, w)``: the graph of that call; TensorSpecs may stand for tensors.

        Nothing is computed. ``%ef_graph thing`` returns the prediction graph of a model, or the
        latest one of a captured function.
        """
        written = line.strip()
        if not written:
            raise ArgumentError(
                "there is no argument", op="%ef_graph", expected="a call, such as %ef_graph f(x)"
            )
        body = ast.parse(written, "<%ef_graph>", "eval").body
        if not isinstance(body, ast.Call):
            return _graph_of(self.shell.ev(written), written)
        f = self._value(body.func)
        args, kwargs = self._value(
            ast.Call(ast.Name(_ARGUMENTS, ast.Load()), body.args, body.keywords)
        )
        if isinstance(f, ef.capture.Function):
            return f.graph(*args, **kwargs)
        if not callable(f):
            raise ArgumentError(
                f"{ast.unparse(body.func)} is not a function",
                op="%ef_graph",
                received=repr(f)[:200],
            )
        called = partial(f, **kwargs) if kwargs else f
        return ef.capture.trace(called, *args, name=getattr(f, "__name__", None))

    def _value(self, node: ast.expr) -> Any:
        """Evaluate an expression in the notebook's namespace."""
        whole = ast.fix_missing_locations(ast.Expression(node))
        names = {**self.shell.user_ns, _ARGUMENTS: lambda *args, **kwargs: (args, kwargs)}
        return eval(compile(whole, "<%ef_graph>", "eval"), names)

    def ef_profile(self, line: str, cell: str) -> Any:
        """``%%ef_profile [NAME]``: run the cell under ``ef.profile()``, and show the profile.

        The profile is assigned to NAME in the notebook.
        """
        name = line.strip()
        if name and not name.isidentifier():
            raise ArgumentError(
                f"{name!r} is not a name", op="%%ef_profile", expected="a name, or none"
            )
        shell = self.shell
        tree = ast.increment_lineno(shell.compile.ast_parse(shell.transform_cell(cell)))
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        # The cell's own file name, by which tracebacks and the profile find its lines.
        written = f"%%ef_profile{f' {line}' if line else ''}\n{cell}"
        file = shell.compile.cache(written, len(shell.user_ns.get("In", ())) - 1, written)
        steps = compile(tree, file, "exec")
        end = compile(ast.Expression(last.value), file, "eval") if last else None
        result = None
        with ef.profile() as profile:
            exec(steps, shell.user_ns)
            if end is not None:
                result = eval(end, shell.user_ns)
        if name:
            shell.user_ns[name] = profile
        show(profile)
        return result


def _graph_of(thing: Any, written: str) -> Any:
    """The graph of an object."""
    if hasattr(thing, "prediction_graph"):
        return thing.prediction_graph()
    if isinstance(thing, ef.capture.Function) and thing.graphs:
        return thing.graphs[-1]
    if hasattr(thing, "to_svg"):
        return thing
    raise ArgumentError(
        f"{written} has no graph",
        op="%ef_graph",
        received=repr(thing)[:200],
        expected="a graph, a model, a captured function that has been called, or a call",
        hint=f"%ef_graph {written}(x)" if callable(thing) else None,
    )
