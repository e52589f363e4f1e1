"""Callables: state that unwatched code reads besides its arguments.

C code, the standard library and NumPy run unwatched, so each callable is classified, or cannot be
relied on. A ``PURE`` one depends only on its arguments, which are compared. A
``REPEATED`` one reads state that is cheap to read: it is called again at each check.
An ``EFFECT`` writes, and its result does not matter. Callables that start ``THREADS`` or draw
``RANDOM`` numbers are rejected. All others are listed as not watched by ``explain``.
"""

from __future__ import annotations

import _thread
import abc
import builtins
import contextvars
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
from collections.abc import Mapping
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any, TypeVar

import numpy as np

from eagerflow.capture.guards.categories import has_methods_in_python, named
from eagerflow.handlers import raised_here

PURE, REPEATED, EFFECT = "pure", "repeated", "effect"
THREADS, RANDOM, TRACER, UNKNOWN = "threads", "random", "tracer", "unknown"

TRACES = not hasattr(sys, "monitoring")
"""Whether lines are watched through ``sys.settrace``, which has one function for all tools."""

# Modules with pure functions and classes, except those named below.
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
_LOGGING = "critical debug error exception fatal info log warn warning"
_KNOWN: dict[str, dict[Any, str]] = {
    REPEATED: {
        abc: "get_cache_token",
        builtins: "callable dir isinstance issubclass type.__subclasses__ type.mro",
        dataclasses: "fields",
        decimal: "getcontext",
        gc: "get_debug get_threshold isenabled",
        inspect: """
            getclosurevars getdoc getfullargspec getmembers getmro iscoroutinefunction
            isgeneratorfunction signature""",
        locale: "getlocale localeconv",
        logging: "Logger.getEffectiveLevel Logger.hasHandlers Logger.isEnabledFor getLogger",
        np: "get_printoptions getbufsize geterr geterrcall",
        os: "getcwd getcwdb getpid path.abspath path.expanduser path.expandvars",
        sys: """
            get_int_max_str_digits getdefaultencoding getfilesystemencoding getrecursionlimit
            getswitchinterval""",
        threading: "Thread.is_alive current_thread main_thread",
        typing: "get_type_hints",
    },
    EFFECT: {
        builtins: "breakpoint print",
        logging: f"basicConfig {_LOGGING}",
        logging.Logger: _LOGGING,
        warnings: "warn warn_explicit",
    },
    RANDOM: {
        os: "urandom",
        secrets: "choice randbelow randbits token_bytes token_hex token_urlsafe",
        uuid: "uuid1 uuid4",
    },
    THREADS: {_thread: "start_new_thread"},
    TRACER: {sys: "setprofile settrace", threading: "settrace"},
    UNKNOWN: {
        builtins: "input open",
        contextvars: "Context.run copy_context",
        datetime: "date.today datetime.now datetime.today datetime.utcnow",
        inspect: "currentframe getsource getsourcelines stack trace",
        np: "fromfile genfromtxt load loadtxt memmap",
        os.path: """
            exists getatime getctime getmtime getsize isdir isfile islink ismount lexists realpath
            relpath samefile""",
        uuid: "getnode",
        weakref: "getweakrefcount getweakrefs",
    },
}
_BY_CALLABLE = {f: what for what, names in _KNOWN.items() for f in named(names)}
T = TypeVar("T")
SEEDED = (random.Random, np.random.RandomState, random.SystemRandom)
"""Classes seeded from the system by default."""

BOUND_IN_C = (BuiltinFunctionType, types.MethodWrapperType)
MODULE_OR_NONE = (types.ModuleType, types.NoneType)
"""The ``__self__`` of a function in C that is not a method."""

_LOCKS: tuple[type, ...] = (type(threading.Lock()), type(threading.RLock()))
_DESCRIPTORS = (types.MethodDescriptorType, types.WrapperDescriptorType)


def listed(f: Any, table: Mapping[Any, T]) -> T | None:
    """The entry of a table for a callable; None if there is none."""
    try:
        return table.get(f)
    except raised_here(TypeError):  # an unhashable object
        return None


def what_it_reads(f: Any) -> str:
    """``PURE``, ``REPEATED`` ...: the class of a callable that is not user code in Python."""
    known = listed(f, _BY_CALLABLE)
    if known is not None:
        return known
    if isinstance(f, MethodType):
        return what_it_reads(f.__func__)
    if isinstance(f, BOUND_IN_C):
        owner = f.__self__
        if not isinstance(owner, MODULE_OR_NONE):
            return _of_method(owner, f.__name__)
    elif isinstance(f, _DESCRIPTORS):
        return _of_method(f.__objclass__, f.__name__)
    if isinstance(f, np.ufunc):
        return PURE
    if isinstance(f, FunctionType) and str(f.__module__).startswith("pathlib"):
        return PURE if "PurePath." in f.__qualname__ else UNKNOWN
    if isinstance(f, FunctionType):  # a decorator may have given it another __module__
        return _of_module(f.__globals__.get("__name__"))
    if isinstance(f, type) and has_methods_in_python(f):
        return PURE  # its arguments are watched
    named = f if isinstance(f, BuiltinFunctionType | type) else type(f)
    return _of_module(named.__module__)


def _of_method(owner: Any, name: str) -> str:
    """A method in C of an object or of a class."""
    cls = owner if isinstance(owner, type) else type(owner)
    if isinstance(owner, _LOCKS):
        return {"locked": REPEATED, "release": EFFECT}.get(name, UNKNOWN)
    if isinstance(owner, type) and name in ("mro", "__subclasses__"):
        return REPEATED
    if isinstance(owner, contextvars.Context):
        return UNKNOWN
    return _of_module(cls.__module__)


def _of_module(name: Any) -> str:
    package = str(name).partition(".")[0]
    if package in ("logging", "warnings"):
        return EFFECT
    return PURE if package in _PURE_MODULES else UNKNOWN


# How deep a callable looks ----------------------------------------------------------------------

_DEEP, _TEXT, _WHOLE = "deep", "text", "whole"  # attributes too; as a text; not inside at all
_LOOKS: dict[str, dict[Any, str]] = {
    _DEEP: {
        copy: "deepcopy",
        dataclasses: "asdict astuple",
        json: "dumps",
        pickle: "dumps",
        pprint: "pformat pp",
        str: "format format_map",
    },
    _TEXT: {builtins: "ascii format repr str", np: "array2string array_repr array_str"},
    _WHOLE: {builtins: "callable id isinstance issubclass"},
}
_LOOK_OF = {f: look for look, names in _LOOKS.items() for f in named(names)}
_READERS = (
    operator.attrgetter,
    operator.itemgetter,
    operator.methodcaller,
    *_DESCRIPTORS,
    *BOUND_IN_C,
)


def is_deep(f: Any) -> bool:
    """Whether a callable reads the attributes of all objects inside its arguments."""
    if isinstance(f, BuiltinFunctionType) and isinstance(f.__self__, str):
        return f.__name__ in ("format", "format_map")
    return listed(f, _LOOK_OF) == _DEEP or getattr(f, "__qualname__", "").startswith("Formatter.")


def makes_text(f: Any) -> bool:
    """Whether a callable formats its arguments, subject to NumPy's print options."""
    return is_deep(f) or listed(f, _LOOK_OF) == _TEXT


def reads_arguments(f: Any) -> bool:
    """Whether a callable passed on to C code reads the arguments it is called with there."""
    if isinstance(f, type):
        return issubclass(f, _READERS[:3])
    if isinstance(f, functools.partial):
        return reads_arguments(f.func)
    return isinstance(f, _READERS) and listed(f, _LOOK_OF) != _WHOLE
