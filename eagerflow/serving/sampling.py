"""Sampling of tokens from logits, one sequence at a time, each with its own random state."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from eagerflow.errors import EagerflowError
from eagerflow.ops.random import Generator

__all__ = ["Sampler", "Sampling"]


class Sampling(NamedTuple):
    """The settings of sampling.

    Logits are divided by ``temperature``; 0 takes the most probable token. Tokens are drawn among
    the ``top_k`` most probable ones (None: all), and of these among the most probable that have
    the total probability ``top_p``. ``seed`` is that of the random numbers; None for any.
    """

    temperature: float = 0.0
    top_k: int | None = None
    top_p: float = 1.0
    seed: int | None = None


class Sampler:
    """Draws the tokens of one sequence: reproducible for the same logits and seed.

    >>> from eagerflow.serving.sampling import Sampler, Sampling
    >>> logits = np.asarray([0.0, 3.0, 2.0], "float32")
    >>> Sampler(Sampling()).draw(logits)
    1
    >>> sampler = Sampler(Sampling(temperature=1.0, top_k=2, seed=0))
    >>> [sampler.draw(logits) for _ in range(8)]
    [1, 2, 2, 1, 1, 2, 1, 1]
    """

    def __init__(self, sampling: Sampling) -> None:
        self.sampling = sampling
        self._generator = Generator(sampling.seed) if sampling.temperature else None

    def draw(self, logits: Any) -> int:
        """An index into ``logits``, a vector of floats; EagerflowError where they are not finite.

        Among the candidates, it is the first at which the cumulative probability exceeds a random
        number: one number a token. Source of ``top_p``: Holtzman and others, "The curious case of
        neural text degeneration", 2020.
        """
        best = int(logits.argmax())
        if not np.isfinite(logits[best]):  # argmax returns the position of a NaN, if any
            raise EagerflowError("the logits of the next token are not finite")
        if self._generator is None:
            return best
        places, sums = self._candidates(logits.astype(np.float64) / self.sampling.temperature)
        drawn = float(self._generator.uniform((), dtype="float64")) * sums[-1]
        at = min(int(np.searchsorted(sums, drawn, "right")), len(sums) - 1)
        return at if places is None else int(places[at])

    def _candidates(self, logits: Any) -> tuple[Any, Any]:
        """The candidate tokens (None: all, in order), and their cumulative probabilities."""
        top_k, top_p = self.sampling.top_k, self.sampling.top_p
        places: Any = None
        if top_k is not None and top_k < len(logits):
            least = np.partition(logits, len(logits) - top_k)[len(logits) - top_k]
            # Of equally probable tokens at the boundary, the first ones are taken.
            above, like = np.flatnonzero(logits > least), np.flatnonzero(logits == least)
            places = np.concatenate([above, like[: top_k - len(above)]])
        if top_p < 1.0:
            among = logits if places is None else logits[places]
            order = np.argsort(-among, kind="stable")
            places = order if places is None else places[order]
        chosen = logits if places is None else logits[places]
        sums = np.cumsum(np.exp(chosen - chosen.max()))
        if top_p < 1.0:
            count = int(np.searchsorted(sums, top_p * sums[-1], "left")) + 1
            places, sums = places[:count], sums[:count]
        return places, sums
