"""Weights from a file."""

import numpy as np


def load_weights(path):
    """Read weights: what is called "dense/kernel" in the file is weights["dense"]["kernel"]."""
    weights = {}
    with np.load(path) as file:
        for name in file.files:
            *folders, leaf = name.split("/")
            place = weights
            for folder in folders:
                place = place.setdefault(folder, {})
            place[leaf] = file[name]
    return weights
