"""Callables: what code that is not watched reads besides its arguments.

C code, the standard library and NumPy run unseen, so this is known of each callable or it is not
relied on. One that is ``PURE`` gives what follows from its arguments, which are compared. One
that is ``ASKED`` reads state that is cheap to ask for again: it is called again at each check.
An ``EFFECT`` writes, and gives nothing that counts. What starts ``THREADS`` or draws ``RANDOM``
numbers is refused. Of all others ``explain`` tells that they are not watched.
"""

from __future__ import annotations

import _thread
import abc
import copy
import dataclasses
import datetime
import decimal
import functools
import gc
import inspect
import json
import locale
import logging
import operator
import os
import pickle
import pprint
import random
import secrets
import sys
import threading
import types
import typing
import uuid
import warnings
import weakref
from contextvars import Context, copy_context
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any

import numpy as np

__all__ = [
    "ASKED",
    "EFFECT",
    "PURE",
    "RANDOM",
    "SEEDED",
    "THREADS",
    "TRACER",
    "TRACES",
    "UNKNOWN",
    "is_deep",
    "is_looker",
    "makes_text",
    "what_it_reads",
]

PURE, ASKED, EFFECT, THREADS, RANDOM, TRACER, UNKNOWN = (
    "pure",
    "asked",
    "effect",
    "threads",
    "random",
    "tracer",
    "unknown",
)

TRACES = not hasattr(sys, "monitoring")
"""Whether watches see lines by ``sys.settrace``, of which there is one for all."""

# Modules whose functions and classes are pure, but for those that are named below.
_PURE_MODULES = frozenset(
    """
    _abc _bisect _collections _collections_abc _contextvars _csv _datetime _decimal _functools
    _hashlib _heapq _json _operator _pickle _pydatetime _random _sre _statistics _string _struct
    _weakref _weakrefset abc argparse array ast asyncio base64 binascii bisect builtins calendar
    cmath collections colorsys concurrent contextlib contextvars copy copyreg csv dataclasses
    datetime decimal difflib eagerflow enum fractions functools genericpath graphlib hashlib heapq
    html inspect io _io ipaddress itertools json keyword math ml_dtypes ntpath numbers numpy
    operator pathlib pickle posixpath pprint queue random re reprlib shlex statistics string struct
    textwrap token types typing unicodedata uuid weakref zlib zoneinfo
    """.split()
)
_LOGGING = ("debug", "info", "warning", "warn", "error", "exception", "critical", "fatal", "log")
_PATHS = (
    "abspath",
    "exists",
    "getatime",
    "getctime",
    "getmtime",
    "getsize",
    "isdir",
    "isfile",
    "islink",
    "ismount",
    "lexists",
    "realpath",
    "relpath",
    "samefile",
)


_KNOWN: dict[str, list[Any]] = {
    ASKED: [
        isinstance,
        issubclass,
        callable,
        dir,
        abc.get_cache_token,
        sys.getrecursionlimit,
        sys.getswitchinterval,
        sys.getdefaultencoding,
        sys.getfilesystemencoding,
        gc.isenabled,
        gc.get_threshold,
        gc.get_debug,
        os.getcwd,
        os.getcwdb,
        os.getpid,
        os.path.expandvars,
        os.path.expanduser,
        os.path.abspath,
        np.geterr,
        np.geterrcall,
        np.getbufsize,
        np.get_printoptions,
        inspect.signature,
        inspect.getfullargspec,
        inspect.getmro,
        inspect.getdoc,
        inspect.getmembers,
        inspect.isgeneratorfunction,
        inspect.iscoroutinefunction,
        inspect.getclosurevars,
        typing.get_type_hints,
        dataclasses.fields,
        threading.current_thread,
        threading.main_thread,
        logging.getLogger,
        decimal.getcontext,
        locale.getlocale,
        locale.localeconv,
        threading.Thread.is_alive,
        logging.Logger.isEnabledFor,
        logging.Logger.getEffectiveLevel,
        logging.Logger.hasHandlers,
        type.mro,
        type.__subclasses__,
        *([sys.get_int_max_str_digits] if hasattr(sys, "get_int_max_str_digits") else []),
    ],
    EFFECT: [
        print,
        breakpoint,
        warnings.warn,
        warnings.warn_explicit,
        logging.basicConfig,
        *(getattr(logging, name) for name in _LOGGING),
        *(getattr(logging.Logger, name) for name in _LOGGING),
    ],
    RANDOM: [
        os.urandom,
        uuid.uuid1,
        uuid.uuid4,
        secrets.token_bytes,
        secrets.token_hex,
        secrets.token_urlsafe,
        secrets.randbelow,
        secrets.choice,
        secrets.randbits,
    ],
    THREADS: [_thread.start_new_thread],
    TRACER: [sys.settrace, sys.setprofile, threading.settrace],
    UNKNOWN: [
        open,
        input,
        copy_context,
        datetime.datetime.now,
        datetime.datetime.today,
        datetime.datetime.utcnow,
        datetime.date.today,
        weakref.getweakrefcount,
        weakref.getweakrefs,
        uuid.getnode,
        np.load,
        np.loadtxt,
        np.genfromtxt,
        np.fromfile,
        np.memmap,
        inspect.currentframe,
        inspect.stack,
        inspect.trace,
        inspect.getsource,
        inspect.getsourcelines,
        Context.run,
        *(getattr(os.path, name) for name in _PATHS if name != "abspath"),
    ],
}
_NAMED = {f: what for what, functions in _KNOWN.items() for f in functions}
SEEDED = (random.Random, np.random.RandomState, random.SystemRandom)
"""Classes that take their seed from the system where they are given none."""

_LOCKS: tuple[type, ...] = (type(threading.Lock()), type(threading.RLock()))
_DESCRIPTORS = (types.MethodDescriptorType, types.WrapperDescriptorType)


def what_it_reads(f: Any) -> str:
    """``PURE``, ``ASKED`` ...: what a callable reads that is not Python code of the user's."""
    try:
        known = _NAMED.get(f)
    except TypeError:  # an object that cannot be hashed
        known = None
    if known is not None:
        return known
    if isinstance(f, MethodType):
        return what_it_reads(f.__func__)
    if isinstance(f, BuiltinFunctionType | types.MethodWrapperType):
        owner = f.__self__
        if not isinstance(owner, types.ModuleType | None):
            return _of_method(owner, f.__name__)
    elif isinstance(f, _DESCRIPTORS):
        return _of_method(f.__objclass__, f.__name__)
    if isinstance(f, np.ufunc):
        return PURE
    if isinstance(f, FunctionType) and str(f.__module__).startswith("pathlib"):
        return PURE if "PurePath." in f.__qualname__ else UNKNOWN
    if isinstance(f, FunctionType):  # a decorator may have given it another __module__
        return _of_module(f.__globals__.get("__name__"))
    if isinstance(f, type) and _in_python(f):
        return PURE  # what it is made from is watched
    named = f if isinstance(f, BuiltinFunctionType | type) else type(f)
    return _of_module(named.__module__)


def _of_method(owner: Any, name: str) -> str:
    """A method in C of an object or of a class."""
    cls = owner if isinstance(owner, type) else type(owner)
    if isinstance(owner, _LOCKS):
        return {"locked": ASKED, "release": EFFECT}.get(name, UNKNOWN)
    if isinstance(owner, type) and name in ("mro", "__subclasses__"):
        return ASKED
    if isinstance(owner, Context):
        return UNKNOWN
    return _of_module(cls.__module__)


def _of_module(name: Any) -> str:
    root = str(name).partition(".")[0]
    if root in ("logging", "warnings"):
        return EFFECT
    return PURE if root in _PURE_MODULES else UNKNOWN


def _in_python(cls: type) -> bool:
    """Whether a class statement of the user's or of an installed package has made a class."""
    root = cls.__module__.partition(".")[0]
    if root in sys.stdlib_module_names:
        return root == "__main__"
    file = getattr(sys.modules.get(cls.__module__), "__file__", None)
    return bool(cls.__flags__ & 1 << 9) and (file is None or file.endswith(".py"))


# How deep a callable looks ----------------------------------------------------------------------

_DEEP = {
    copy.deepcopy,
    pickle.dumps,
    json.dumps,
    pprint.pformat,
    pprint.pp,
    dataclasses.asdict,
    dataclasses.astuple,
    str.format,
    str.format_map,
}
_TEXTS = {str, repr, ascii, format, np.array2string, np.array_repr, np.array_str, pprint.pformat}
_LOOKERS = (
    operator.attrgetter,
    operator.itemgetter,
    operator.methodcaller,
    *_DESCRIPTORS,
    BuiltinFunctionType,
    types.MethodWrapperType,
)
_PLACELESS = {id, callable, isinstance, issubclass}


def is_deep(f: Any) -> bool:
    """Whether a callable looks at the attributes of all objects that its arguments hold."""
    if isinstance(f, BuiltinFunctionType) and isinstance(f.__self__, str):
        return f.__name__ in ("format", "format_map")
    return _is_in(f, _DEEP) or getattr(f, "__qualname__", "").startswith("Formatter.")


def makes_text(f: Any) -> bool:
    """Whether a callable makes a text of its arguments, as NumPy's print options say."""
    return is_deep(f) or _is_in(f, _TEXTS)


def is_looker(f: Any) -> bool:
    """Whether a callable that is passed on to C code looks into what it is called with there."""
    if isinstance(f, type):
        return issubclass(f, _LOOKERS[:3])
    if isinstance(f, functools.partial):
        return is_looker(f.func)
    return isinstance(f, _LOOKERS) and not _is_in(f, _PLACELESS)


def _is_in(f: Any, known: set[Any]) -> bool:
    try:
        return f in known
    except TypeError:
        return False
