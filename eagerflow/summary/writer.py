"""Writer: records of a run, step by step, in a file for TensorBoard."""

from __future__ import annotations

import io
import os
import weakref
from collections.abc import Callable, Mapping
from functools import partial
from types import TracebackType
from typing import Any, Self

import numpy as np

from eagerflow.capture.subject import graph_of
from eagerflow.dispatch import own_recorder
from eagerflow.display import summary
from eagerflow.dtypes import INTEGERS
from eagerflow.errors import DTypeError, ShapeError, short_repr
from eagerflow.nn.arguments import require
from eagerflow.profiling.profile import Profile
from eagerflow.recorder import recorder_state
from eagerflow.summary import arguments, plugins, projector
from eagerflow.summary.events import EventFile
from eagerflow.summary.graphs import graph_def
from eagerflow.summary.spaces import write_space
from eagerflow.tensor import Operators, Tensor


class _Sink:
    """The receiver of computed tensors, which writes them into the file every ``every`` steps.

    ``build`` makes the record; without ``step``, the last tensor is the step.
    """

    def __init__(
        self, file: EventFile, build: Callable[..., Any], every: int, step: int | None
    ) -> None:
        self.file = file
        self.build = build
        self.every = every
        self.step = step

    def __call__(self, *tensors: Tensor) -> None:
        step = self.step
        if step is None:
            step = int(tensors[-1]._array)  # on each run, so with as little overhead as possible
            if step % self.every:
                return
            arguments.step(step, "ef.summary")
            tensors = tensors[:-1]
        self.file.add_values(self.build(*[x.numpy() for x in tensors]), step)


class Writer:
    """Writes numbers, histograms, pictures, texts and graphs for TensorBoard to show.

    ``logdir`` is the folder of one run, which is created; each Writer has a file of its own in it.
    Records are buffered for up to ``flush_secs`` seconds; ``flush`` and ``close`` write them all,
    and a Writer is a context manager that closes itself. Flushed records survive a crash of the
    process. Several threads may use a Writer.

    ``name`` of a record may have slashes, which group records in TensorBoard. ``step`` is an
    integer from 0 on, or an integer Tensor or Variable without axes; it is written where ``step %
    every == 0``. In captured functions the same calls work: each run of the graph outputs the
    values, which are written after it. There ``step`` has to be an argument, a Tensor or a
    Variable, as a Python integer is constant in the graph.

    Raises FileFormatError for errors of the file system (a full disk is reported by the next call),
    SessionError where it is closed, MissingExtraError without TensorBoard.

    >>> import tempfile
    >>> with ef.summary.Writer(tempfile.mkdtemp()) as w:
    ...     for step in range(3):
    ...         w.scalar("loss", 1.0 / (1 + step), step)
    """

    def __init__(
        self, logdir: str | os.PathLike[str], *, flush_secs: float = 30.0, suffix: str = ""
    ) -> None:
        timed = isinstance(flush_secs, int | float) and flush_secs > 0
        expected = "a number of seconds above 0"
        require(timed, flush_secs, "not a time", "Writer", "flush_secs", expected)
        self._file = EventFile(logdir, flush_secs, suffix)
        self._tries = False  # whether the run has hyperparameters, and so needs a final record
        self._at_end = weakref.finalize(self, self._file.close)

    @property
    def logdir(self) -> str:
        """The folder of the run."""
        return self._file.logdir

    # Records of steps ----------------------------------------------------------------------------

    def scalar(self, name: str, value: Any, step: Any, *, every: int = 1) -> None:
        """One real number, kept in single precision.

        Raises ShapeError for several numbers, DTypeError for complex and non-numeric values.

        >>> import tempfile
        >>> w = ef.summary.Writer(tempfile.mkdtemp())
        >>> @ef.function
        ... def step(x, i):
        ...     loss = (x * x).sum()
        ...     w.scalar("loss", loss, i, every=10)
        ...     return loss
        >>> for i in range(100):
        ...     loss = step(ef.ones(3), i)
        >>> w.close()
        """
        tensor = arguments.tensor(value, "Writer.scalar")
        if tensor.shape != ():
            raise ShapeError(
                "a scalar is one number",
                op="Writer.scalar",
                argument="value",
                received=summary(tensor),
                expected="no axes",
                hint="value.mean(), or w.histogram(...) for all of them",
            )
        self._write("scalar", name, {"": tensor}, step, every, plugins.scalar)

    def histogram(
        self, name: str, value: Any, step: Any, *, buckets: int = 30, every: int = 1
    ) -> None:
        """A histogram of the elements of ``value``, real and of any shape, in ``buckets`` ranges.

        The ranges have equal widths; infinities and NaNs are left out.

        >>> import tempfile
        >>> with ef.summary.Writer(tempfile.mkdtemp()) as w:
        ...     w.histogram("weights", ef.random.normal((100,)), step=0)
        """
        tensor = arguments.tensor(value, "Writer.histogram")
        number = arguments.count(buckets, "Writer.histogram", "buckets")
        build = partial(plugins.histogram, buckets=number)
        self._write("histogram", name, {"": tensor}, step, every, build)

    def image(
        self, name: str, value: Any, step: Any, *, max_images: int = 3, every: int = 1
    ) -> None:
        """Up to ``max_images`` pictures.

        ``value`` is (height, width), (height, width, channels) or (count, height, width, channels)
        with 1 to 4 channels: grey, grey and opacity, RGB, RGB and opacity. Its elements are uint8,
        or floats from 0 to 1; floats beyond are clipped, NaN is 0. Raises ShapeError and DTypeError
        for other values.

        >>> import tempfile
        >>> with ef.summary.Writer(tempfile.mkdtemp()) as w:
        ...     w.image("noise", ef.random.uniform((2, 28, 28, 1)), step=0)
        """
        op = "Writer.image"
        tensor = arguments.pixels(value, op)
        fits = tensor.ndim == 2 or (tensor.ndim in (3, 4) and tensor.shape[-1] in (1, 2, 3, 4))
        expected = "(height, width), (height, width, 1 to 4) or (count, height, width, 1 to 4)"
        arguments.require_shape(fits and 0 not in tensor.shape, tensor, op, "value", expected)
        most = arguments.count(max_images, op, "max_images")
        build = partial(plugins.images, most=most)
        self._write("image", name, {"": tensor}, step, every, build)

    def figure(self, name: str, figure: Any, step: Any) -> None:
        """A matplotlib figure in its current state, as a picture.

        Raises DTypeError for other objects.

        >>> import tempfile, matplotlib.figure
        >>> figure = matplotlib.figure.Figure(figsize=(2, 1))
        >>> lines = figure.subplots().plot([1, 2, 4])
        >>> with ef.summary.Writer(tempfile.mkdtemp()) as w:
        ...     w.figure("curve", figure, step=0)
        """
        if not hasattr(figure, "savefig"):
            raise DTypeError(
                f"{short_repr(figure)} is not a figure",
                op="Writer.figure",
                argument="figure",
                expected="a matplotlib.figure.Figure",
            )
        file = io.BytesIO()
        figure.savefig(file, format="png")
        width, height = figure.canvas.get_width_height()
        build = partial(plugins.pictures, width=width, height=height, encoded=[file.getvalue()])
        self._write("figure", name, {}, step, 1, build)

    def text(self, name: str, value: Any, step: Any, *, every: int = 1) -> None:
        """A text in Markdown, or a table: a list of texts, or a list of rows of texts.

        >>> import tempfile
        >>> with ef.summary.Writer(tempfile.mkdtemp()) as w:
        ...     w.text("notes", "the *first* run", step=0)
        ...     w.text("settings", [["rate", "0.1"], ["width", "64"]], step=0)
        """
        words = np.asarray(value, dtype=object)
        if words.ndim > 2 or not all(isinstance(x, str) for x in words.ravel()):
            raise DTypeError(
                f"{short_repr(value)} is not a text",
                op="Writer.text",
                argument="value",
                expected="a str, a list of str, or a list of rows of str, which are equally long",
            )
        self._write("text", name, {}, step, every, partial(plugins.text, words=words))

    def pr_curve(
        self,
        name: str,
        labels: Any,
        predictions: Any,
        step: Any,
        *,
        weights: Any = None,
        thresholds: int = 201,
        every: int = 1,
    ) -> None:
        """Precision and recall for ``thresholds`` thresholds from 0 to 1.

        ``labels`` are bools, or numbers of which 0 is false; ``predictions`` are probabilities of
        true, ``weights`` the weight of each (default: 1). All have one shape. Raises ShapeError if
        they differ, ArgumentError for fewer than two thresholds.

        >>> import tempfile
        >>> with ef.summary.Writer(tempfile.mkdtemp()) as w:
        ...     w.pr_curve("digits/8", [True, False, True], [0.9, 0.2, 0.6], step=0)
        """
        given = {"labels": labels, "predictions": predictions, "weights": weights}
        op = "Writer.pr_curve"
        tensors = {k: arguments.tensor(x, op, k) for k, x in given.items() if x is not None}
        if len({x.shape for x in tensors.values()}) > 1:
            raise ShapeError(
                "each prediction has one label",
                op=op,
                received=", ".join(f"{label} {summary(x)}" for label, x in tensors.items()),
                expected="equal shapes",
            )
        number = arguments.count(thresholds, op, "thresholds", 2)
        build = partial(plugins.pr_curve, thresholds=number)
        self._write("pr_curve", name, tensors, step, every, build)

    def mesh(
        self,
        name: str,
        vertices: Any,
        step: Any,
        *,
        faces: Any = None,
        colors: Any = None,
        config: Mapping[str, Any] | None = None,
        every: int = 1,
    ) -> None:
        """Points in space, or surfaces.

        ``vertices`` is (points, 3) or (count, points, 3); ``faces``, (triangles, 3) integers, are
        the points of triangles; ``colors``, of the shape of ``vertices``, are uint8 or floats from
        0 to 1. ``config`` has settings for three.js by class, as TensorBoard takes them. Raises
        ShapeError and DTypeError for other values.

        >>> import tempfile
        >>> with ef.summary.Writer(tempfile.mkdtemp()) as w:
        ...     w.mesh("cloud", ef.random.normal((50, 3)), step=0)
        """
        op = "Writer.mesh"
        points = arguments.tensor(vertices, op, "vertices")
        tensors = {"vertices": points}
        if faces is not None:
            tensors["faces"] = arguments.tensor(faces, op, "faces", INTEGERS)
        if colors is not None:
            tensors["colors"] = arguments.pixels(colors, op, "colors")
        for label, x in tensors.items():
            fits = x.ndim == points.ndim and x.ndim in (2, 3) and x.shape[-1] == 3
            fits = fits and (label == "faces" or x.shape == points.shape)
            expected = "(points, 3), or (count, points, 3) for all"
            arguments.require_shape(fits, x, op, label, expected)
        build = partial(plugins.mesh, parts=tuple(tensors), config=config)
        self._write("mesh", name, tensors, step, every, build)

    def _write(
        self,
        kind: str,
        name: str,
        tensors: dict[str, Tensor],
        step: Any,
        every: int,
        build: Callable[..., Any],
    ) -> None:
        """Pass the tensors of a record to the recorder, or to the file.

        ``build`` makes the record of the name and of the tensors as arrays.
        """
        op = f"Writer.{kind}"
        self._file.check_open()
        arguments.name(name, op)
        often = arguments.count(every, op, "every")
        number: int | None = None
        if isinstance(step, Operators):
            tensors = {**tensors, "step": arguments.step_tensor(step, op)}
        else:
            number = arguments.step(step, op)
            if number % often:
                return
            often = 1  # recorded in each run; no tensor is the step
        sink = _Sink(self._file, partial(build, name), often, number)
        recorder = recorder_state()[1] or own_recorder(tensors.values())
        if recorder is None:
            sink(*tensors.values())
        else:
            recorder.emit(f"summary/{name}", sink, tensors)

    # Records of the run --------------------------------------------------------------------------

    def graph(self, graph: Any) -> None:
        """The graph of the run: a Graph, a captured function that has one, or a model.

        Scopes, shapes, devices and the lines of code are in it; branches and loops are drawn within
        their nodes. TensorBoard shows one graph for each run, the last. Raises ArgumentError for
        objects with no graph, or several.

        >>> import tempfile
        >>> graph = ef.capture.trace(lambda x: ef.tanh(x) * 2.0, ef.TensorSpec((3,), "float32"))
        >>> with ef.summary.Writer(tempfile.mkdtemp()) as w:
        ...     w.graph(graph)
        """
        self._file.add_graph(graph_def(graph_of(graph, "Writer.graph")))

    def hparams(self, values: Mapping[str, Any], metrics: Mapping[str, Any] | None = None) -> None:
        """The hyperparameters of the run, for comparisons of runs; each run has a folder of its
        own.

        ``values`` are numbers, bools and texts by name. ``metrics`` are the results of the run,
        numbers by name, and are written as scalars of step 0; without them the last values of all
        other scalars are used. Raises ArgumentError for other values.

        >>> import tempfile
        >>> with ef.summary.Writer(tempfile.mkdtemp()) as w:
        ...     w.hparams({"rate": 0.1, "optimizer": "adam"}, {"accuracy": 0.97})
        """
        plain = {key: x.item() if isinstance(x, np.generic) else x for key, x in values.items()}
        for key, x in plain.items():
            known = isinstance(key, str) and isinstance(x, bool | int | float | str)
            expected = "numbers, bools and texts, by names"
            require(known, x, "not a plain value", "Writer.hparams", str(key), expected)
        self._file.add_values(plugins.trial(plain), 0)
        self._tries = True
        for name, metric in (metrics or {}).items():
            self.scalar(name, metric, 0)

    def embedding(self, name: str, vectors: Any, labels: Any = None, images: Any = None) -> None:
        """Points of a high-dimensional space, for TensorBoard's projector.

        ``vectors`` is (points, dimensions), real. ``labels`` are texts, one for each point, or
        columns of texts by title. ``images``, (points, height, width, channels) as for ``image``,
        are shown at the points. The files are in ``embeddings/`` of the run. Raises ShapeError if
        their numbers differ.

        >>> import tempfile
        >>> with ef.summary.Writer(tempfile.mkdtemp()) as w:
        ...     w.embedding("words", ef.random.normal((3, 8)), ["a", "b", "c"])
        """
        op = "Writer.embedding"
        self._file.check_open()
        arguments.name(name, op)
        points = arguments.tensor(vectors, op, "vectors")
        arguments.require_shape(points.ndim == 2, points, op, "vectors", "(points, dimensions)")
        columns = arguments.columns(labels, points.shape[0], op)
        shown = None
        if images is not None:
            tensor = arguments.pixels(images, op, "images")
            fits = tensor.ndim == 4 and tensor.shape[0] == points.shape[0]
            expected = f"({points.shape[0]}, height, width, channels)"
            arguments.require_shape(fits, tensor, op, "images", expected)
            shown = tensor.numpy()
        projector.write(self.logdir, name, points.numpy(), columns, shown)

    def profile(self, name: str, profile: Profile) -> None:
        """A profile that has ended, under a name of its own in the run.

        The package ``tensorboard-plugin-profile`` shows it in TensorBoard, as tracks of the
        executed ops. Raises ProfileError where it is open, FileFormatError where the file cannot be
        written.

        >>> import tempfile
        >>> with ef.profile() as p:
        ...     y = ef.tanh(ef.ones(3))
        >>> with ef.summary.Writer(tempfile.mkdtemp()) as w:
        ...     w.profile("first", p)
        """
        self._file.check_open()
        plain = isinstance(name, str) and bool(name) and name not in (".", "..")
        plain = plain and not set(name) & set("/\\\0")
        expected = "a text without slashes"
        require(plain, name, "not a name of a folder", "Writer.profile", "name", expected)
        write_space(profile, self.logdir, name)

    # Closing -------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Write all buffered records, which can then be read even if the process crashes."""
        self._file.flush()

    def close(self) -> None:
        """Write all buffered records, and close the file; no more can be written."""
        self._finish(True)

    def _finish(self, succeeded: bool) -> None:
        if self._tries:
            self._tries = False
            self._file.add_values(plugins.trial_end(succeeded), 0)
        self._at_end.detach()
        self._file.close()

    def __enter__(self) -> Self:
        self._file.check_open()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._finish(error is None)

    def __repr__(self) -> str:
        return f"<Writer of {short_repr(self.logdir)}>"
