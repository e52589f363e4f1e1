"""The contents of event files, by TensorBoard's own reader."""

from pathlib import Path

from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
from tensorboard.util.tensor_util import make_ndarray


def events(folder):
    """All events in the files of a folder, file by file."""
    return [e for path in sorted(Path(folder).glob("events.*")) for e in loaded(path)]


def loaded(path):
    return list(EventFileLoader(str(path)).Load())


def values(folder, tag=None):
    """(tag, step, array, plugin) of all values, or of those of one tag."""
    return [
        (v.tag, e.step, make_ndarray(v.tensor), v.metadata.plugin_data.plugin_name)
        for e in events(folder)
        for v in e.summary.value
        if tag in (None, v.tag)
    ]


def only(folder, tag):
    ((_, step, array, plugin),) = values(folder, tag)
    return step, array, plugin
