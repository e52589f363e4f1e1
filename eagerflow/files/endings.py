"""Endings of other formats: nothing of eagerflow's own is written under them."""

from __future__ import annotations

import os
from typing import Any

from eagerflow.errors import FileFormatError

__all__ = ["refuse_ending"]

FORMATS = {
    ".bin": "PyTorch's or Hugging Face's",
    ".ckpt": "TensorFlow's or PyTorch's",
    ".h5": "Keras's",
    ".hdf5": "Keras's",
    ".json": "text",
    ".keras": "Keras's",
    ".npy": "NumPy's",
    ".npz": "NumPy's",
    ".onnx": "ONNX",
    ".pb": "TensorFlow's",
    ".pickle": "pickle",
    ".pkl": "pickle",
    ".pt": "PyTorch's",
    ".pth": "PyTorch's",
    ".py": "Python's",
    ".tflite": "TensorFlow Lite's",
}


def refuse_ending(path: Any, op: str, hints: dict[str, str], usual: str) -> None:
    """Raise FileFormatError for a path with the ending of a format that ``op`` does not write.

    ``hints`` say for some endings what does write, or read, that format.
    """
    ending = os.path.splitext(os.fspath(path))[1]
    if isinstance(ending, bytes):
        ending = os.fsdecode(ending)
    if ending.lower() in FORMATS:
        raise FileFormatError(
            f"{ending} stands for another format, {FORMATS[ending.lower()]}",
            op=op,
            argument=os.fsdecode(path),
            expected=f"the ending {usual}, or any that stands for no other format",
            hint=hints.get(ending.lower()),
        )
