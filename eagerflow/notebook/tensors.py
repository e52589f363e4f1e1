"""Tensors and Variables in a notebook: a summary, a picture, and the numbers.

The time is bounded by some milliseconds, however large a tensor is: the first elements are
inspected, and a sample of the rest at even distances.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from math import prod
from typing import Any

import numpy as np

from eagerflow.display import is_known, known_values, summary, text
from eagerflow.notebook.markup import FAINT, MONOSPACE, Markup, element, folded, text_block
from eagerflow.notebook.pixels import LARGE, SMALL, heat, image, photograph

MOST_ELEMENTS = 2**22  # that are inspected
MOST_PLACES = 3  # positions shown of non-finite numbers
_SIDE, _STRIP = 96, 256  # numbers in a picture: along a side, and in a single row
_IMAGES = 8
_ENDS = 4  # rows, columns and tables shown at each end


def view(tensor: Any) -> Markup:
    """A Tensor or Variable: its type, statistics of its numbers, and some of them."""
    title = summary(tensor)
    if getattr(tensor, "name", None):
        title = f"{tensor.name}: {title}"
    head = element("code", title)
    shape = tuple(tensor.shape)
    if not is_known(tensor) or not prod(shape):
        return element("div", head, text_block(text(tensor)))
    with np.errstate(all="ignore"):
        parts = [head, *_facts(tensor, shape), *_pictures(tensor, shape)]
        parts += _numbers(tensor, shape)
    return element("div", *parts)


# Statistics --------------------------------------------------------------------------------------


def _head(tensor: Any, shape: Sequence[int]) -> Any:
    """The first elements in index order, as a block with all axes."""
    part: list[Any] = []
    for axis, size in enumerate(shape):
        rest = prod(shape[axis + 1 :])
        count = min(size, max(1, MOST_ELEMENTS // rest))
        part.append(slice(count))
        if count > 1 or rest <= MOST_ELEMENTS:
            break
    return known_values(tensor, tuple(part) or ...)


def _facts(tensor: Any, shape: Sequence[int]) -> Iterator[Markup]:
    """Lines about the numbers, beginning with non-finite ones."""
    block = _head(tensor, shape)
    among = f"of the first {block.size:,} elements: " if block.size < prod(shape) else ""
    finite = None
    if block.dtype.kind in "fc":
        finite = np.isfinite(block)
        if finite.all():
            finite = None
        else:
            words = "; ".join(_wrong(block))
            yield element("div", element("strong", f"⚠ {among}{words}"))
    if prod(shape) > _ENDS:
        words = _range(block if finite is None else block[finite])
        if words:
            yield element("div", among + words, style=FAINT)


def _wrong(block: Any) -> Iterator[str]:
    """The number of non-finite elements, and the positions of the first ones."""
    kinds = [("NaN", np.isnan(block))]
    if block.dtype.kind == "c":
        kinds.append(("infinite", np.isinf(block) & ~kinds[0][1]))
    else:
        kinds += [("inf", np.isposinf(block)), ("-inf", np.isneginf(block))]
    for name, found in kinds:
        count = int(np.count_nonzero(found))
        if count:
            first = np.flatnonzero(found)[:MOST_PLACES]
            places = [[int(i) for i in np.unravel_index(k, block.shape)] for k in first]
            where = ", ".join(map(str, places)) + (", …" if count > len(places) else "")
            yield f"{count:,} {name}" + (f" at {where}" if block.ndim else "")


def _range(numbers: Any) -> str:
    """A short description of finite elements of any dtype."""
    if not numbers.size:
        return ""
    if numbers.dtype == bool:
        count = int(np.count_nonzero(numbers))
        return f"{count:,} true, {numbers.size - count:,} false"
    of_what = ""
    if numbers.dtype.kind == "c":
        numbers, of_what = np.abs(numbers), "magnitudes "
    form = "d" if numbers.dtype.kind in "iu" else ".5g"
    mean = numbers.mean(dtype=np.float64)
    return f"{of_what}from {numbers.min():{form}} to {numbers.max():{form}}, mean {mean:.5g}"


# Pictures ----------------------------------------------------------------------------------------


def _pictures(tensor: Any, shape: Sequence[int]) -> Iterator[Markup]:
    """Pictures of tensors that have more than a few numbers and a suitable shape."""
    is_photograph = (
        len(shape) in (3, 4)
        and shape[-1] in (1, 3, 4)
        and min(shape[-3:-1]) >= 8
        and tensor.dtype.kind != "c"
    )
    if is_photograph:
        yield from _photographs(tensor, shape)
    elif len(shape) == 1 and shape[0] > 2 * _ENDS:
        yield _heat_map(tensor, (_every(shape[0], _STRIP),), LARGE)
    elif len(shape) in (2, 3) and max(shape[-2:]) > 2 * _ENDS:
        sides = [_every(n, _SIDE) for n in shape[-2:]]
        if len(shape) == 2:
            yield _heat_map(tensor, tuple(sides), LARGE)
        else:
            for k in range(min(shape[0], _ENDS)):
                yield _heat_map(tensor, (k, *sides), SMALL, f"[{k}] ")


def _every(count: int, most: int) -> slice:
    """At most ``most`` elements at even distances."""
    return slice(None, None, -(-count // most))


def _heat_map(tensor: Any, part: tuple[Any, ...], largest: int, title: str = "") -> Markup:
    values = np.atleast_2d(known_values(tensor, part))
    colours, legend = heat(values)
    steps = [f"1 of {s.step}" for s in part if isinstance(s, slice) and s.step > 1]
    words = f"{title}{legend}" + (f" ({', '.join(steps)} shown)" if steps else "")
    shown = image(colours, f"heat map of {summary(tensor)}; {words}", largest)
    return element("figure", shown, _under(words), style=_FIGURE)


def _photographs(tensor: Any, shape: Sequence[int]) -> Iterator[Markup]:
    sides = [_every(n, _SIDE) for n in shape[-3:-1]]
    numbers: list[tuple[int, ...]]
    if len(shape) == 3:
        numbers, largest = [()], LARGE
    else:
        numbers, largest = [(k,) for k in range(min(shape[0], _IMAGES))], SMALL
    for number in numbers:
        colours = photograph(known_values(tensor, (*number, *sides)))
        words = f"[{number[0]}]" if number else ""
        shown = image(colours, f"image{words} of {summary(tensor)}", largest)
        yield element("figure", shown, *([_under(words)] if words else []), style=_FIGURE)


_FIGURE = "display:inline-block;margin:.3em .6em .3em 0;vertical-align:top"


def _under(words: str) -> Markup:
    return element("figcaption", words, style=f"{FAINT};font-size:85%;max-width:256px")


# Numbers -----------------------------------------------------------------------------------------


def _numbers(tensor: Any, shape: Sequence[int]) -> Iterator[Markup]:
    """Tables of the numbers, possibly without the middle; folded if large."""
    if len(shape) < 3:
        yield _table(tensor, shape)
    elif len(shape) == 3:
        tables = [
            element("p", "…") if k is None else _table(tensor, shape[1:], (k,))
            for k in _shown(shape[0], _ENDS)
        ]
        if max(shape) > 2 * _ENDS:
            yield folded("numbers", *tables)
        else:
            yield from tables


def _table(tensor: Any, shape: Sequence[int], place: tuple[int, ...] = ()) -> Markup:
    rows, columns = map(_shown, (1, 1, *shape)[-2:])
    listed = _aligned(np.atleast_2d(_ends(tensor, shape, place)))
    cells = iter(listed)
    body = [
        element("tr", *(_cell("…" if None in (i, j) else next(cells)) for j in columns))
        for i in rows
    ]
    title = [element("caption", f"[{place[0]}]", style="text-align:left")] if place else []
    numbers = element("table", *title, element("tbody", *body))
    return element("div", numbers, style="overflow:auto")


def _cell(text: str) -> Markup:
    return element("td", text, style=f"{MONOSPACE};text-align:right;padding:0 .4em")


def _ends(tensor: Any, shape: Sequence[int], place: tuple[int, ...]) -> Any:
    """The elements at both ends of each axis, or all if there are few."""
    few = 2 * _ENDS
    parts = [[slice(None)] if n <= few else [slice(_ENDS), slice(n - _ENDS, n)] for n in shape]
    blocks = [known_values(tensor, (*place, *part) or ...) for part in product(*parts)]
    for axis in reversed(range(len(shape))):
        count = len(parts[axis])
        blocks = [
            np.concatenate(blocks[i : i + count], axis) if count > 1 else blocks[i]
            for i in range(0, len(blocks), count)
        ]
    return blocks[0]


def _aligned(grid: Any) -> list[str]:
    """All numbers in one format, padded to align the decimal points."""
    words = np.array2string(
        grid.ravel(), separator="\n", precision=4, threshold=grid.size + 1, max_line_width=1
    )
    texts = words[1:-1].replace("\n ", "\n").split("\n")
    width = max(map(len, texts))
    return [text.ljust(width) for text in texts]


def _shown(count: int, limit: int = 2 * _ENDS) -> list[int | None]:
    """The positions to show: all, or both ends with None for the rest."""
    if count <= limit:
        return list(range(count))
    half = limit // 2
    return [*range(half), None, *range(count - half, count)]
