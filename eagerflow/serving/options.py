"""The options of a server: one table for the command's flags, for files and for ``Server``."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from eagerflow.errors import ArgumentError, FileFormatError
from eagerflow.serving.access import Access, tokens_of
from eagerflow.serving.access_log import FORMS
from eagerflow.serving.batching import Batching
from eagerflow.serving.limits import Limits
from eagerflow.serving.processes import WorkerSettings
from eagerflow.serving.repository import Folder, ModelOptions, Policy
from eagerflow.serving.traffic import Traffic
from eagerflow.settings import named_by_user

__all__ = ["OPTIONS", "Configuration", "Option", "checked"]


class Option(NamedTuple):
    """An option: its name in files (flags have hyphens), its type, and its help text.

    ``least`` is the smallest number; ``of_model`` ones are also allowed in a model's own table, and
    ``fixed`` ones cannot change while the server runs. A default of None is explained in ``told``.
    """

    name: str
    kind: type
    default: Any
    told: str
    metavar: str | None = None
    least: float = 0
    of_model: bool = False
    choices: tuple[str, ...] = ()
    fixed: bool = False

    @property
    def flag(self) -> str:
        """The command's flag; for an option that is on by default, the negation."""
        return f"--{'no-' if self.default is True else ''}{self.name.replace('_', '-')}"

    def checked(self, value: Any) -> Any:
        """Validate a value from a file; ArgumentError for a wrong type or one below the least."""
        kinds = {float: (int, float), Path: (str, Path)}.get(self.kind, (self.kind,))
        fits = isinstance(value, kinds) and (self.kind is bool or not isinstance(value, bool))
        if fits and self.kind in (int, float):
            fits = self.least <= value < float("inf")
        if fits and self.choices:
            fits = value in self.choices
        if not fits:
            raise ArgumentError(
                f"{value!r:.80} is not a valid value",
                argument=self.name,
                expected=" or ".join(self.choices)
                or _KINDS[self.kind]
                + (f" of at least {self.least:g}" if self.kind in (int, float) else ""),
            )
        return Path(value) if self.kind is Path else value


_KINDS = {
    int: "an integer",
    float: "a number",
    str: "a text",
    bool: "true or false",
    Path: "a path",
}

OPTIONS = (
    Option(
        "host",
        str,
        "127.0.0.1",
        "the address to listen on; the default is this machine alone",
        fixed=True,
    ),
    Option("port", int, 8501, "REST; 0 for a free one", fixed=True),
    Option("grpc_port", int, 8500, "gRPC; 0 for a free one", fixed=True),
    Option("grpc", bool, True, "REST alone", fixed=True),
    Option(
        "versions",
        int,
        1,
        "how many versions of each model answer, the latest; 0 for all",
        "N",
        of_model=True,
    ),
    Option("max_batch", int, 32, "rows that are computed together", "ROWS", 1, True),
    Option("max_wait", float, 0.0, "how long a request may wait for others", "MS", of_model=True),
    Option("max_queue", int, 1024, "requests of a model that may wait", "N", 1, True),
    Option(
        "numerics",
        str,
        "fast",
        "exact: the bits of eager calls, alone and in batches",
        choices=("fast", "exact"),
        fixed=True,
    ),
    Option("cache", int, 0, "answers that each model keeps for equal requests", "MIB"),
    Option("max_body", int, 64, "the largest body of a request", "MIB", 1),
    Option("body_seconds", float, 30.0, "time for a request's head, then its body", "S", 0.01),
    Option("max_connections", int, 4096, "open at once, and calls over gRPC", "N", 1),
    Option(
        "client_connections",
        int,
        None,
        "of one address; default: three quarters of all",
        "N",
        1,
    ),
    Option("idle_seconds", float, 300.0, "silence that ends streams of gRPC", "S", 0.01),
    Option("poll", float, 1.0, "how often files are looked at", "S", 0.01),
    Option("workers", int, 0, "processes that compute; 0: the server's own", "N", fixed=True),
    Option(
        "worker_threads",
        int,
        None,
        "of each worker; default: they share the cores",
        "N",
        1,
        fixed=True,
    ),
    Option(
        "spare_workers", int, 1, "more of them, at once there for those that end", "N", fixed=True
    ),
    Option(
        "worker_seconds", float, 60.0, "when a silent worker is replaced", "S", 0.01, fixed=True
    ),
    Option(
        "tokens",
        Path,
        None,
        "a file of secrets, one a line; requests carry one: Authorization: Bearer SECRET",
        "FILE",
    ),
    Option("tokens_variable", str, None, "an environment variable with secrets", "NAME"),
    Option("grace", float, 30.0, "how long pending requests may take when the server ends", "S"),
    Option(
        "leave", float, 0.0, "how long it reports that it ends before it refuses connections", "S"
    ),
    Option("log", str, "off", f"a line for each request: {', '.join(FORMS)}", choices=FORMS),
    Option("trace", bool, False, "spans for OpenTelemetry"),
    Option("certificate", Path, None, "PEM, for TLS", "FILE", fixed=True),
    Option("key", Path, None, "PEM, for TLS", "FILE", fixed=True),
)
_OF = {option.name: option for option in OPTIONS}
_OF_MODEL = {option.name: option for option in OPTIONS if option.of_model}
_FIXED = [option.name for option in OPTIONS if option.fixed]
_MODEL_KEYS = ("path", "labels", "pinned", *_OF_MODEL)
Models = Path | Folder | dict[str, ModelOptions]


class Configuration(NamedTuple):
    """A server's configuration: values of options by name, and models.

    ``models`` is a file or a folder, a Folder with options of some of its models, or a
    ModelOptions for each name; options that ``values`` lacks have their defaults.

    >>> Configuration(Path("digits.ef"), {"port": 0, "max_wait": 2.0}).arguments()["batching"]
    Batching(max_rows=32, max_wait=0.002, sizes=(), max_queue=1024)
    """

    models: Models
    values: dict[str, Any] = {}

    @classmethod
    def read(cls, path: str | os.PathLike[str], flags: Mapping[str, Any] = {}) -> Configuration:
        """Read a TOML file; ``flags`` override its values.

        Paths in it are relative to its folder. Where the flags name a folder of models, tables of
        models are options of those in it. Raises FileFormatError, which names key and line, for
        unknown keys and invalid values.
        """
        where = Path(path)
        try:
            text = where.read_text("utf-8")
            told = tomllib.loads(text)
        except (OSError, ValueError) as error:
            raise FileFormatError(
                f"the configuration cannot be read: {error}", op="serve", argument=str(path)
            ) from None
        try:
            values, models = _values(told, text, where.parent, flags.get("models"))
            values |= {name: value for name, value in flags.items() if name != "models"}
            if models is None:
                raise ArgumentError(
                    "there are no models",
                    expected='models = "folder", or a table [models.NAME] with a path',
                )
            made = cls(models, values)
            made.arguments()
            return made
        except ArgumentError as error:
            raise FileFormatError(
                error.problem,
                op="serve",
                argument=error.argument,
                received=error.received,
                expected=error.expected,
                hint=error.hint,
                at=error.at or str(path),
            ) from None

    def arguments(self) -> dict[str, Any]:
        """The arguments of ``Server``; ArgumentError or FileFormatError for invalid values."""
        of = {option.name: option.default for option in OPTIONS}
        of |= {name: checked(name, value) for name, value in self.values.items()}
        return {
            "models": self.models,
            "host": of["host"],
            "port": of["port"],
            "grpc_port": of["grpc_port"] if of["grpc"] else None,
            "policy": Policy(latest=of["versions"]),
            "batching": _batching(of),
            "limits": Limits(
                of["max_body"] << 20,
                of["body_seconds"],
                max_connections=of["max_connections"],
                client_connections=of["client_connections"],
                idle_seconds=of["idle_seconds"],
            ),
            "access": Access(_tokens(of), of["certificate"], of["key"]).checked(),
            "numerics": of["numerics"],
            "cache": of["cache"] << 20 or None,
            "poll": of["poll"],
            "grace": of["grace"],
            "leave": of["leave"],
            "log": of["log"],
            "trace": of["trace"],
            "workers": WorkerSettings(
                of["workers"],
                of["worker_threads"],
                of["worker_seconds"],
                spares=of["spare_workers"],
            ).checked(),
        }

    def _value(self, name: str) -> Any:
        return self.values.get(name, _OF[name].default)

    def changes(self, other: Configuration) -> set[str]:
        """The names of options that differ in another configuration, except those of models."""
        return {name for name in _OF if self._value(name) != other._value(name)}

    def going_on(self, running: Configuration) -> tuple[Configuration, list[str]]:
        """This configuration, adapted to a server that runs with an earlier one.

        Also returns the names of fixed options that it would change: they keep their values.

        >>> before = Configuration(Path("digits.ef"), {"port": 8501, "max_body": 16})
        >>> found, refused = Configuration(Path("digits.ef"), {"port": 80}).going_on(before)
        >>> found.values, refused
        ({'port': 8501}, ['port'])
        """
        values = dict(self.values)
        refused = []
        for name in _FIXED:
            if self._value(name) != running._value(name):
                refused.append(name)
                values[name] = running._value(name)
        return self._replace(values=values), refused


def checked(name: str, value: Any) -> Any:
    """The value of an option; ArgumentError for an unknown name or an invalid value.

    >>> checked("poll", 2)
    2
    """
    return _checked(_OF, name, value, "", Path(), known=_OF)


def _batching(of: Mapping[str, Any]) -> Batching:
    return Batching(of["max_batch"], of["max_wait"] / 1e3, max_queue=of["max_queue"]).checked()


def _tokens(of: Mapping[str, Any]) -> tuple[str, ...]:
    """The secrets of a file and of an environment variable, one per line."""
    found = tokens_of(of["tokens"]) if of["tokens"] else ()
    name = of["tokens_variable"]
    if name is None:
        return found
    lines = tuple(filter(None, map(str.strip, named_by_user(name).splitlines())))
    if not lines:
        raise ArgumentError(
            f"the environment variable {name[:80]!r} has no tokens", argument="tokens_variable"
        )
    return (*found, *lines)


# Parsing ------------------------------------------------------------------------------------------


def _values(
    told: Mapping[str, Any], text: str, folder: Path, base: Path | None
) -> tuple[dict[str, Any], Models | None]:
    """The values of options, and the models, in a file; ``base`` comes from a flag."""
    values: dict[str, Any] = {}
    for key, value in told.items():
        if key != "models":
            values[key] = _checked(_OF, key, value, text, folder, known=("models", *_OF))
    given = told.get("models")
    if given is None:
        return values, base
    if isinstance(given, str):
        return values, base or folder / given
    if not isinstance(given, dict):
        _refuse("it is neither a path nor tables", text, "", "models", str(given)[:80])
    tables = dict(given)
    if isinstance(tables.get("path"), str):
        place = folder / tables.pop("path")
        base = base or place
        for name, table in tables.items():
            if isinstance(table, dict) and "path" in table:
                problem = "a model of a folder has its place there"
                _refuse(problem, text, f"models.{name}", "path", str(table["path"])[:80])
    models = {n: _model(n, table, values, text, folder, base) for n, table in tables.items()}
    return values, models if base is None else Folder(base, models)


def _model(
    name: str,
    table: Any,
    values: Mapping[str, Any],
    text: str,
    folder: Path,
    base: Path | None,
) -> ModelOptions:
    """The options in the table of a model; missing ones are those of all models.

    The model is in the folder ``base``, if that is given.
    """
    place = f"models.{name}"
    if not isinstance(table, dict) or (base is None and not isinstance(table.get("path"), str)):
        _refuse("a model has a table with a path", text, place, "path", str(table)[:80])
    of = {n: values.get(n, option.default) for n, option in _OF_MODEL.items()}
    given: tuple[int, ...] = ()
    for key, value in table.items():
        if key == "versions" and isinstance(value, list) and value and all(map(_is_number, value)):
            given = tuple(value)
        elif key not in ("path", "labels", "pinned"):
            of[key] = _checked(_OF_MODEL, key, value, text, folder, place, _MODEL_KEYS)
    labels, pinned = table.get("labels", {}), table.get("pinned")
    if not isinstance(labels, dict) or not all(map(_is_number, labels.values())):
        _refuse("labels are names of versions' numbers", text, place, "labels", str(labels)[:80])
    if pinned is not None and not _is_number(pinned):
        _refuse("it is not the number of a version", text, place, "pinned", str(pinned)[:80])
    path = folder / table["path"] if base is None else base / name
    made = ModelOptions(path, Policy(of["versions"], given), _batching(of), labels, pinned)
    try:
        made.traffic(Traffic())
    except ArgumentError as error:
        error.at = _line(text, place, "labels" if labels else "pinned")
        raise
    return made


def _is_number(value: Any) -> bool:
    return type(value) is int and value >= 0


def _checked(
    options: Mapping[str, Option],
    key: str,
    value: Any,
    text: str,
    folder: Path,
    table: str = "",
    known: Iterable[str] = (),
) -> Any:
    """The value of an option; ArgumentError, with the line, for an unknown key."""
    if key not in options:
        close = get_close_matches(key, known, 1)
        raise ArgumentError(
            f"there is no option {key[:80]!r}",
            argument=table or None,
            expected="one of " + ", ".join(known),
            hint=close[0] if close else None,
            at=_line(text, table, key),
        )
    try:
        found = options[key].checked(value)
    except ArgumentError as error:
        error.at = _line(text, table, key)
        raise
    return folder / found if isinstance(found, Path) else found


def _refuse(problem: str, text: str, table: str, key: str, received: str) -> NoReturn:
    raise ArgumentError(
        problem,
        argument=f"{table}.{key}".strip("."),
        received=received,
        at=_line(text, table, key),
    )


def _line(text: str, table: str, key: str) -> str | None:
    """The line of a file that sets a key of a table, if it is written in the plain form."""
    inside = ""
    for number, line in enumerate(text.splitlines(), 1):
        plain = line.replace('"', "").replace("'", "")
        if header := re.match(r"\s*\[\s*([^\[\]]+?)\s*\]", plain):
            inside = header[1]
            if inside == f"{table}.{key}".strip("."):
                return f"line {number}"
        elif inside == table and re.match(rf"\s*{re.escape(key)}\s*[=.]", plain):
            return f"line {number}"
    return None
