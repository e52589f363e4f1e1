"""Networks of the literature, with the sizes of their papers as defaults.

- ``GPT``: decoder of text, with generation
"""

from __future__ import annotations

from eagerflow.nn.networks.gpt import GPT

__all__ = ["GPT"]
