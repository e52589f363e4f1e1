"""Hooks: functions that see, and may replace, the arguments and results of a layer's ``call``.

The hooks of a layer stand in its attribute ``call``, which hides the method of its class. So layers
without hooks cost nothing, and captured functions notice changes as those of any attribute.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from eagerflow.guard import ScopeGuard
from eagerflow.nn.arguments import require

__all__ = ["Hook", "add_hook"]


class Hook(ScopeGuard):
    """A hook of a layer, until ``remove`` or the end of a ``with`` statement."""

    def __init__(self, layer: Any, before: Any, after: Any) -> None:
        self.layer, self.before, self.after = layer, before, after

    def remove(self) -> None:
        """Remove the hook from its layer, unless it is removed already."""
        hooked = vars(self.layer).get("call")
        if isinstance(hooked, _Hooked) and self in hooked.hooks:
            hooked.hooks = tuple(hook for hook in hooked.hooks if hook is not self)
            if not hooked.hooks:
                hooked.restore()

    def release(self) -> Exception | None:
        """Remove it at the end of a ``with`` statement."""
        self.remove()
        return None


class _Hooked:
    """The ``call`` of a layer with hooks."""

    def __init__(self, layer: Any) -> None:
        self.layer = layer
        self.own = vars(layer).get("call")  # of a layer that had another one than its class
        self.hooks: tuple[Hook, ...] = ()

    def restore(self) -> None:
        """Let the layer have the ``call`` that it had before."""
        if self.own is None:
            del self.layer.call
        else:
            self.layer.call = self.own

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        layer = self.layer
        for hook in self.hooks:
            if hook.before is not None:
                found = hook.before(layer, args)
                if found is not None:
                    args = found if isinstance(found, tuple) else (found,)
        call = type(layer).call.__get__(layer) if self.own is None else self.own
        outputs = call(*args, **kwargs)
        for hook in self.hooks:
            if hook.after is not None:
                found = hook.after(layer, args, outputs)
                outputs = outputs if found is None else found
        return outputs


def add_hook(
    layer: Any, before: Callable[..., Any] | None, after: Callable[..., Any] | None
) -> Hook:
    """See ``Layer.add_hook``."""
    hooks = {"before": before, "after": after}
    require(
        hooks != {"before": None, "after": None},
        None,
        "not a hook",
        layer._label,
        "before",
        "a function, or after=",
    )
    for name, function in hooks.items():
        fits = function is None or callable(function)
        require(fits, function, "not a function", layer._label, name, "f(layer, args)")
    if not isinstance(vars(layer).get("call"), _Hooked):
        layer.call = _Hooked(layer)
    hook = Hook(layer, before, after)
    layer.call.hooks += (hook,)
    return hook
