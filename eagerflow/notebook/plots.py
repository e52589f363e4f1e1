"""Colours of matplotlib's plots that are readable on light and dark pages."""

from __future__ import annotations

from typing import Any

from eagerflow import extras
from eagerflow.notebook.markup import BLUE, GREY, MAGENTA, OLIVE, ORANGE, TEAL, VIOLET

# Jupyter puts a light or dark background behind a transparent plot if all labels of ticks are
# darker than #808080, or all lighter. So those of the y axis are a trace lighter than the others.
_LIGHTER = "#818181"
_COLOURS = {
    "axes.edgecolor": GREY,
    "axes.facecolor": "none",
    "axes.labelcolor": GREY,
    "figure.facecolor": "none",
    "grid.color": GREY,
    "legend.edgecolor": GREY,
    "text.color": GREY,
    "xtick.color": GREY,
    "ytick.color": _LIGHTER,
}
_LINES = (BLUE, ORANGE, TEAL, MAGENTA, VIOLET, OLIVE)


def page_colours(feature: str) -> Any:
    """A context with colours for light and dark pages, unless the user has set any in matplotlib.

    Raises MissingExtraError, for the feature, if matplotlib is not installed.
    """
    matplotlib = extras.load("matplotlib", "plot", feature)
    colours = {**_COLOURS, "axes.prop_cycle": matplotlib.cycler(color=_LINES)}
    now, default = matplotlib.rcParams, matplotlib.rcParamsDefault
    return matplotlib.rc_context(
        colours if all(now[name] == default[name] for name in colours) else {}
    )
