"""Embeddings for TensorBoard's projector, which reads them from separate files.

``projector_config.pbtxt`` in the folder of the run lists the files in ``embeddings/``.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from eagerflow import extras
from eagerflow.errors import printable
from eagerflow.files.atomic import as_path, refuse, write_whole
from eagerflow.handlers import raised_here
from eagerflow.summary.board import module
from eagerflow.summary.plugins import Array, as_bytes, png

CONFIG = "projector_config.pbtxt"
FOLDER = "embeddings"
_STRANGE = re.compile(r"[^A-Za-z0-9_.-]+")


def write(
    logdir: str,
    name: str,
    vectors: Array,
    columns: Mapping[str, Sequence[Any]] | None,
    images: Array | None,
) -> None:
    """Write the files of one embedding, and list them in the configuration of the run.

    One of the same name is replaced. Raises FileFormatError for errors of the file system.
    """
    config, place = _config(logdir), os.path.join(logdir, CONFIG)
    known = [info for info in config.embeddings if info.tensor_name == name]
    info = known[0] if known else config.embeddings.add(tensor_name=name)
    stem = f"{FOLDER}/{_STRANGE.sub('_', name)}_{list(config.embeddings).index(info)}"
    try:
        os.makedirs(os.path.join(logdir, FOLDER), exist_ok=True)
    except raised_here(OSError) as error:
        refuse(error, "written", logdir)
    rows = vectors.astype("float32")
    info.tensor_shape[:] = rows.shape
    info.tensor_path = _file(logdir, f"{stem}.tsv", _table(rows.tolist()))
    if columns is not None:
        info.metadata_path = _file(logdir, f"{stem}_labels.tsv", _labels(columns))
    if images is not None:
        info.sprite.image_path = _file(logdir, f"{stem}_images.png", png(_sheet(as_bytes(images))))
        info.sprite.single_image_dim[:] = [images.shape[2], images.shape[1]]
    words = extras.load("google.protobuf.text_format", "tensorboard", "ef.summary")
    write_whole(place, [words.MessageToString(config).encode()])


def _config(logdir: str) -> Any:
    """The existing projector configuration of the run."""
    config = module("plugins.projector.projector_config_pb2").ProjectorConfig()
    words = extras.load("google.protobuf.text_format", "tensorboard", "ef.summary")
    place = os.path.join(as_path(logdir), CONFIG)
    try:
        with open(place, encoding="utf-8") as file:
            words.Parse(file.read(), config)
    except raised_here(FileNotFoundError):
        pass
    except raised_here(OSError, UnicodeDecodeError, words.ParseError) as error:
        refuse(error if isinstance(error, OSError) else OSError(str(error)), "read", place)
    return config


def _file(logdir: str, name: str, content: bytes) -> str:
    write_whole(os.path.join(logdir, name), [content])
    return name


def _labels(columns: Mapping[str, Sequence[Any]]) -> bytes:
    """A row for each vector; several columns have a row of titles first."""
    rows = [[printable(str(x)) for x in row] for row in zip(*columns.values(), strict=True)]
    titles = [[printable(str(title)) for title in columns]] if len(columns) > 1 else []
    return _table([*titles, *rows])


def _table(rows: Sequence[Sequence[Any]]) -> bytes:
    return "".join("\t".join(map(str, row)) + "\n" for row in rows).encode()


def _sheet(images: Array) -> Array:
    """Pictures side by side in a square."""
    count, height, width, channels = images.shape
    side = math.ceil(math.sqrt(count))
    sheet = np.zeros((side * side, height, width, channels), np.uint8)
    sheet[:count] = images
    rows = sheet.reshape(side, side, height, width, channels).swapaxes(1, 2)
    return rows.reshape(side * height, side * width, channels)
