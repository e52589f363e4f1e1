"""Weights from a file."""

import json

import numpy as np


def nested(arrays):
    """Arrays in a nest by name: "dense/kernel" becomes found["dense"]["kernel"]."""
    found = {}
    for name, array in arrays.items():
        *folders, leaf = name.split("/")
        place = found
        for folder in folders:
            place = place.setdefault(folder, {})
        place[leaf] = array
    return found


def load_weights(path):
    """Read weights: "dense/kernel" in the file becomes weights["dense"]["kernel"]."""
    with np.load(path) as file:
        return nested(dict(file))


def load_safetensors(path):
    """Read weights: "dense/kernel" in the file becomes weights["dense"]["kernel"]."""
    kinds = {"F": "f", "I": "i", "U": "u"}
    with open(path, "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        data = file.read()
    arrays = {}
    for name, entry in header.items():
        if name != "__metadata__":
            code, (start, stop) = entry["dtype"], entry["data_offsets"]
            dtype = bool if code == "BOOL" else f"<{kinds[code[0]]}{int(code[1:]) // 8}"
            arrays[name] = np.frombuffer(data[start:stop], dtype).reshape(entry["shape"])
    return nested(arrays)
