"""TensorBoard: logs a training for TensorBoard."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Annotated, Any

import numpy as np

from eagerflow.errors import ArgumentError, FileFormatError
from eagerflow.files.atomic import as_path, refuse
from eagerflow.graph.names import FreeNames
from eagerflow.handlers import raised_here
from eagerflow.nn.arguments import is_count, require
from eagerflow.nn.callbacks.base import Callback, Logs
from eagerflow.nn.callbacks.monitors import Patience
from eagerflow.nn.callbacks.rates import learning_rate
from eagerflow.nn.configured import arguments
from eagerflow.nn.layers.embedding import Embedding
from eagerflow.profiling.profile import profile

__all__ = ["TensorBoard"]


def _frequency(value: Any) -> Any:
    ok = value in ("batch", "epoch") or is_count(value)
    require(ok, value, "not a frequency", expected="'batch', 'epoch', or a number of batches")
    return 1 if value == "batch" else value


def _batches(value: Any) -> tuple[int, int]:
    """The first and the last batch to be profiled, counted from 1; twice 0 for none."""
    given = value.split(",") if isinstance(value, str) else value
    pair = list(given) if isinstance(given, list | tuple) else [given]
    pair = [int(x) if isinstance(x, str) and x.strip().isdigit() else x for x in pair]
    ok = len(pair) in (1, 2) and all(is_count(x, 0) for x in pair) and pair[0] <= pair[-1]
    expected = "a batch, counted from 1, or the first and the last of several; 0 for none"
    require(ok, value, "not a number of batches", expected=expected)
    return pair[0], pair[-1]


class TensorBoard(Callback):
    """Logs a training for TensorBoard, into ``train`` and ``validation`` of a folder.

    After each epoch these are the loss, the metrics and the learning rate, as ``epoch_loss`` and
    so on by epoch; with ``update_freq="batch"``, or every so many batches, also ``batch_loss`` and
    so on by batch, counted from 1; after an evaluation ``evaluation_loss_vs_iterations``. Every
    ``histogram_freq`` epochs, 0 for never, come histograms of all weights, with ``write_images``
    pictures of them too; every ``embeddings_freq`` epochs the tables of Embedding layers, whose
    rows ``embeddings_metadata`` names: a file with a line for each, or a dict of such by layer.
    ``write_graph`` writes the graph of the captured step, ``write_steps_per_second`` the speed.
    Batch ``profile_batch``, or batches ``(first, last)``, are profiled, which gives a trace for
    Chrome or Perfetto, ``train/batch_5.trace.json``, and what TensorBoard's profile plugin shows
    (the package ``tensorboard-plugin-profile``). Arguments are Keras's. Raises
    MissingExtraError where TensorBoard is not installed, ArgumentError for other values.

    >>> ef.nn.callbacks.TensorBoard("logs", histogram_freq=1).update_freq
    'epoch'
    """

    log_dir: str
    histogram_freq: int
    write_graph: bool
    write_images: bool
    write_steps_per_second: bool
    update_freq: Any
    profile_batch: tuple[int, int]
    embeddings_freq: int
    embeddings_metadata: Any

    @arguments
    def __init__(
        self,
        log_dir: str | os.PathLike[str] = "logs",
        histogram_freq: Patience = 0,
        write_graph: bool = True,
        write_images: bool = False,
        write_steps_per_second: bool = False,
        update_freq: Annotated[Any, _frequency] = "epoch",
        profile_batch: Annotated[Any, _batches] = 0,
        embeddings_freq: Patience = 0,
        embeddings_metadata: Any = None,
    ) -> None:
        self.log_dir = as_path(log_dir)
        self._writers: dict[str, Any] = {}
        self._profile: Any = None
        self._fits = False
        self._batch = 0
        if self.update_freq == "epoch" and not self.profile_batch[1]:
            # With a callback for batches, metrics compute their results after each batch.
            self.on_train_batch_end = super().on_train_batch_end  # type: ignore[method-assign]

    def writer(self, part: str) -> Any:
        """The Writer of ``"train"`` or ``"validation"``; it is closed when the training ends."""
        if part not in self._writers:
            self._writers[part] = _new_writer(os.path.join(self.log_dir, part))
        return self._writers[part]

    # Epochs ----------------------------------------------------------------------------------

    def on_train_begin(self, logs: Logs = None) -> None:
        self._fits, self._batch = True, 0
        self._wants_graph = self.write_graph

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:
        self._epoch_began, self._epoch_batch = time.perf_counter(), self._batch

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        numbers = dict(logs or {})
        validation = {key[4:]: numbers.pop(key) for key in list(numbers) if key[:4] == "val_"}
        if self._wants_graph:
            for graph in self.model.step_graphs("train")[-1:]:
                self.writer("train").graph(graph)
        self._wants_graph = False
        numbers["learning_rate"] = learning_rate(self.model)
        if self.write_steps_per_second:
            seconds = time.perf_counter() - self._epoch_began
            numbers["steps_per_second"] = (self._batch - self._epoch_batch) / seconds
        self._scalars("train", "epoch_{}", numbers, epoch)
        if validation:
            self._scalars("validation", "epoch_{}", validation, epoch)
        if self.histogram_freq and epoch % self.histogram_freq == 0:
            self._write_weights(epoch)
        if self.embeddings_freq and epoch % self.embeddings_freq == 0:
            self._write_embeddings()
        for writer in self._writers.values():
            writer.flush()

    def _scalars(self, part: str, form: str, numbers: Mapping[str, Any], step: int) -> None:
        """Write numbers; of an array, each element."""
        for name, value in numbers.items():
            label, array = form.format(name), np.asarray(value)
            for i, number in enumerate(array.ravel()):
                self.writer(part).scalar(f"{label}/{i}" if array.ndim else label, number, step)

    def _write_weights(self, epoch: int) -> None:
        writer, unique = self.writer("train"), FreeNames().take
        for weight in self.model.weights:
            name = unique(weight.name)
            writer.histogram(f"{name}/histogram", weight, epoch)
            pixels = picture(weight.numpy()) if self.write_images else None
            if pixels is not None:
                writer.image(f"{name}/image", pixels, epoch)

    def _write_embeddings(self) -> None:
        files, known = self.embeddings_metadata, set()
        for layer in self.model.walk():
            if isinstance(layer, Embedding) and layer.weights:
                known.add(layer.name)
                place = files.get(layer.name) if isinstance(files, Mapping) else files
                labels = None if place is None else _columns(place)
                self.writer("train").embedding(layer.name, layer.weights[0], labels)
        unknown = (
            [name for name in files if name not in known] if isinstance(files, Mapping) else []
        )
        if unknown:
            raise ArgumentError(
                f"there is no Embedding layer {unknown[0]!r}",
                op="TensorBoard",
                argument="embeddings_metadata",
                expected="some of " + ", ".join(map(repr, sorted(known))),
            )

    # Batches ---------------------------------------------------------------------------------

    def on_train_batch_begin(self, batch: int, logs: Logs = None) -> None:
        self._batch += 1
        self._batch_began = time.perf_counter()
        if self._batch == self.profile_batch[0]:
            self._profile = profile().start()

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        seconds = time.perf_counter() - self._batch_began
        if self._profile is not None and self._batch >= self.profile_batch[1]:
            self._end_profile()
        if self.update_freq != "epoch" and self._batch % self.update_freq == 0:
            self._scalars("train", "batch_{}", logs or {}, self._batch)
            if self.write_steps_per_second:
                rate = {"steps_per_second": 1.0 / seconds}
                self._scalars("train", "batch_{}", rate, self._batch)

    def _end_profile(self) -> None:
        ended, self._profile = self._profile.stop(), None
        folder = os.path.join(self.log_dir, "train")
        try:
            os.makedirs(folder, exist_ok=True)
        except raised_here(OSError) as error:
            refuse(error, "written", folder)
        name = f"batch_{self.profile_batch[0]}"
        ended.save(os.path.join(folder, f"{name}.trace.json"))
        self.writer("train").profile(name, ended)

    # Evaluation, and the end -----------------------------------------------------------------

    def on_test_end(self, logs: Logs = None) -> None:
        numbers = logs or {}
        if self._fits:  # then these of training are among them
            numbers = {key[4:]: x for key, x in numbers.items() if key[:4] == "val_"}
        step = int(self.model.optimizer.iterations.numpy())
        self._scalars("validation", "evaluation_{}_vs_iterations", numbers, step)
        if not self._fits:
            self._close()

    def on_train_end(self, logs: Logs = None) -> None:
        if self._profile is not None:
            self._end_profile()
        self._close()

    def on_exception(self, error: BaseException) -> None:
        if self._profile is not None:
            self._profile.stop()
            self._profile = None
        self._close()

    def _close(self) -> None:
        self._fits = False
        while self._writers:
            self._writers.popitem()[1].close()


def _new_writer(folder: str) -> Any:
    """A Writer; its package is loaded for it alone."""
    from eagerflow.summary.writer import Writer

    return Writer(folder)


def picture(weight: Any) -> Any:
    """A weight as grey pictures, (count, height, width, 1); None if it has too many axes.

    Its values are shifted and scaled to [0, 1]. A 2-d kernel is drawn in landscape format.
    """
    values = np.squeeze(weight).astype("float32")
    if values.ndim > 3 or not values.size:
        return None
    if values.ndim == 2 and values.shape[0] > values.shape[1]:
        values = values.T
    rows = values.transpose(2, 0, 1) if values.ndim == 3 else np.atleast_2d(values)[None]
    low, high = float(rows.min()), float(rows.max())
    return ((rows - low) / (high - low or 1.0))[..., None]


def _columns(place: Any) -> Any:
    """The labels in a file, one per line; with tabs, columns with titles in the first line."""
    name = as_path(place)
    try:
        with open(name, encoding="utf-8") as file:
            rows = [line.rstrip("\n").split("\t") for line in file]
    except raised_here(OSError) as error:
        refuse(error, "read", name)
    if not rows or len(rows[0]) == 1:
        return ["\t".join(row) for row in rows]
    if any(len(row) != len(rows[0]) for row in rows):
        raise FileFormatError("its lines have different numbers of columns", argument=name)
    return dict(zip(rows[0], map(list, zip(*rows[1:], strict=True)), strict=True))
