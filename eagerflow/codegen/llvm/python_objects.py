"""Machine code that checks whether Python objects are unchanged, many in one call.

Each check is a row of four words: its kind, an object, a key, and the expected answer. All use
functions of Python's C API, with Python's semantics: attributes are read through properties and
``__getattr__``, whose code runs as usual. The interpreter's lock is held throughout.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any, NamedTuple, cast

from eagerflow.codegen.llvm.team import library
from eagerflow.runtime import machine_code

_NAMES = """
    Py_DecRef PyDict_GetItemWithError PyErr_Occurred PyObject_Size PyList_GetItem PyDict_Next
    PyObject_IsInstance PyObject_IsTrue PyObject_RichCompareBool PyObject_GetItem PyObject_Type
    PyObject_CallNoArgs PyContextVar_Get PySequence_Contains PyObject_GetIter PyIter_Next
""".split()
# Reads an optional attribute without an error: under its name in new and old versions.
_OPTIONAL = ("PyObject_GetOptionalAttr", "_PyObject_LookupAttr")

KINDS = """
    attribute item dict_item type_of_item size list keys values elements instance truth equal weak
    context contains
""".split()
"""The kinds of checks, by number: a value is read, and compared to the fourth word by identity."""

TEXT = """
define i64 @differ(ptr %functions, i64 %count, ptr %rows) nounwind {
entry:
  %held = alloca ptr, align 8
  %key_of = alloca ptr, align 8
  %place = alloca i64, align 8
FUNCTIONS
  br label %head
head:
  %i = phi i64 [0, %entry], [%next, %same]
  %more = icmp ult i64 %i, %count
  br i1 %more, label %row, label %all
row:
  %next = add i64 %i, 1
  %start = mul i64 %i, 32
  %at_kind = getelementptr i8, ptr %rows, i64 %start
  %at_object = getelementptr i8, ptr %at_kind, i64 8
  %at_key = getelementptr i8, ptr %at_kind, i64 16
  %at_was = getelementptr i8, ptr %at_kind, i64 24
  %kind = load i64, ptr %at_kind, align 8
  %object = load ptr, ptr %at_object, align 8
  %key = load ptr, ptr %at_key, align 8
  %was = load ptr, ptr %at_was, align 8
  %length = ptrtoint ptr %key to i64
  %number = ptrtoint ptr %was to i64
  switch i64 %kind, label %different [CASES]

compared:
  %found = phi ptr [%attribute_value, %attribute_read], [%item_value, %item],
    [%context_value, %context_read]
  %is_same = icmp eq ptr %found, %was
  %none = icmp eq ptr %found, null
  br i1 %none, label %borrowed, label %owned
owned:
  call void %Py_DecRef(ptr %found)
  br label %borrowed
borrowed:
  br i1 %is_same, label %check_error, label %different
check_error:
  br i1 %none, label %nothing, label %same
nothing:
  %raised = call ptr %PyErr_Occurred()
  %good = icmp eq ptr %raised, null
  br i1 %good, label %same, label %different

attribute:
  %attribute_state = call i32 %optional(ptr %object, ptr %key, ptr %held)
  %attribute_good = icmp sge i32 %attribute_state, 0
  br i1 %attribute_good, label %attribute_read, label %different
attribute_read:
  %attribute_value = load ptr, ptr %held, align 8
  br label %compared
item:
  %item_value = call ptr %PyObject_GetItem(ptr %object, ptr %key)
  br label %compared
context:
  %context_state = call i32 %PyContextVar_Get(ptr %object, ptr null, ptr %held)
  %context_good = icmp sge i32 %context_state, 0
  br i1 %context_good, label %context_read, label %different
context_read:
  %context_value = load ptr, ptr %held, align 8
  br label %compared

dict_item:
  %borrowed_item = call ptr %PyDict_GetItemWithError(ptr %object, ptr %key)
  %same_item = icmp eq ptr %borrowed_item, %was
  %no_item = icmp eq ptr %borrowed_item, null
  br i1 %same_item, label %dict_item_same, label %different
dict_item_same:
  br i1 %no_item, label %nothing, label %same

type_of_item:
  %typed_item = call ptr %PyDict_GetItemWithError(ptr %object, ptr %key)
  %untyped = icmp eq ptr %typed_item, null
  br i1 %untyped, label %different, label %type_of
type_of:
  %type = call ptr %PyObject_Type(ptr %typed_item)
  call void %Py_DecRef(ptr %type)
  %same_type = icmp eq ptr %type, %was
  br i1 %same_type, label %same, label %different

size:
  %size_now = call i64 %PyObject_Size(ptr %object)
  %same_size = icmp eq i64 %size_now, %number
  br i1 %same_size, label %same, label %different

list:
  %list_head = phi i64 [0, %row], [%list_next, %list_on]
  %list_more = icmp ult i64 %list_head, %length
  br i1 %list_more, label %list_item, label %same
list_item:
  %list_now = call ptr %PyList_GetItem(ptr %object, i64 %list_head)
  %list_was = call ptr %PyList_GetItem(ptr %was, i64 %list_head)
  %list_next = add i64 %list_head, 1
  %list_same = icmp eq ptr %list_now, %list_was
  br i1 %list_same, label %list_on, label %different
list_on:
  br label %list

keys:
  br label %dict
values:
  br label %dict
dict:
  %at_part = phi ptr [%key_of, %keys], [%held, %values]
  store i64 0, ptr %place, align 8
  br label %dict_next
dict_next:
  %dict_i = phi i64 [0, %dict], [%dict_after, %dict_part]
  %dict_state = call i32 %PyDict_Next(ptr %object, ptr %place, ptr %key_of, ptr %held)
  %dict_over = icmp eq i32 %dict_state, 0
  br i1 %dict_over, label %dict_end, label %dict_inside
dict_end:
  %dict_whole = icmp eq i64 %dict_i, %length
  br i1 %dict_whole, label %same, label %different
dict_inside:
  %dict_fits = icmp ult i64 %dict_i, %length
  br i1 %dict_fits, label %dict_part, label %different
dict_part:
  %part_now = load ptr, ptr %at_part, align 8
  %part_was = call ptr %PyList_GetItem(ptr %was, i64 %dict_i)
  %dict_after = add i64 %dict_i, 1
  %part_same = icmp eq ptr %part_now, %part_was
  br i1 %part_same, label %dict_next, label %different

elements:
  %iterator = call ptr %PyObject_GetIter(ptr %object)
  %no_iterator = icmp eq ptr %iterator, null
  br i1 %no_iterator, label %different, label %element
element:
  %element_i = phi i64 [0, %elements], [%element_after, %element_same]
  %element_now = call ptr %PyIter_Next(ptr %iterator)
  %element_over = icmp eq ptr %element_now, null
  br i1 %element_over, label %elements_end, label %element_inside
elements_end:
  call void %Py_DecRef(ptr %iterator)
  %elements_whole = icmp eq i64 %element_i, %length
  br i1 %elements_whole, label %nothing, label %different
element_inside:
  call void %Py_DecRef(ptr %element_now)
  %element_fits = icmp ult i64 %element_i, %length
  br i1 %element_fits, label %element_was, label %element_different
element_was:
  %element_before = call ptr %PyList_GetItem(ptr %was, i64 %element_i)
  %element_after = add i64 %element_i, 1
  %element_equal = icmp eq ptr %element_now, %element_before
  br i1 %element_equal, label %element_same, label %element_different
element_same:
  br label %element
element_different:
  call void %Py_DecRef(ptr %iterator)
  br label %different

instance:
  %is_instance = call i32 %PyObject_IsInstance(ptr %object, ptr %key)
  br label %answered
truth:
  %is_true = call i32 %PyObject_IsTrue(ptr %object)
  br label %answered
contains:
  %is_there = call i32 %PySequence_Contains(ptr %object, ptr %key)
  br label %answered
answered:
  %answer = phi i32 [%is_instance, %instance], [%is_true, %truth], [%is_there, %contains]
  %wide = sext i32 %answer to i64
  %same_answer = icmp eq i64 %wide, %number
  br i1 %same_answer, label %same, label %different

equal:
  %equal_state = call i32 %optional(ptr %object, ptr %key, ptr %held)
  %equal_good = icmp sgt i32 %equal_state, 0
  br i1 %equal_good, label %equal_read, label %different
equal_read:
  %equal_now = load ptr, ptr %held, align 8
  %equality = call i32 %PyObject_RichCompareBool(ptr %was, ptr %equal_now, i32 2)
  call void %Py_DecRef(ptr %equal_now)
  %is_equal = icmp eq i32 %equality, 1
  br i1 %is_equal, label %same, label %different

weak:
  %referent = call ptr %PyObject_CallNoArgs(ptr %object)
  %no_referent = icmp eq ptr %referent, null
  br i1 %no_referent, label %different, label %weak_read
weak_read:
  %weak_state = call i32 %optional(ptr %referent, ptr %key, ptr %held)
  call void %Py_DecRef(ptr %referent)
  %weak_good = icmp sgt i32 %weak_state, 0
  br i1 %weak_good, label %weak_found, label %different
weak_found:
  %weak_now = load ptr, ptr %held, align 8
  call void %Py_DecRef(ptr %weak_now)
  %weak_same = icmp eq ptr %weak_now, %was
  br i1 %weak_same, label %same, label %different

same:
  br label %head
all:
  ret i64 0
different:
  ret i64 1
}
"""


def _text() -> str:
    """The function ``differ``; the functions that it calls are passed in a table."""
    lines = []
    for i, name in enumerate([*_NAMES, "optional"]):
        lines.append(f"  %at_{name} = getelementptr ptr, ptr %functions, i64 {i}")
        lines.append(f"  %{name} = load ptr, ptr %at_{name}, align 8")
    cases = " ".join(f"i64 {i}, label %{kind}" for i, kind in enumerate(KINDS))
    return TEXT.replace("FUNCTIONS", "\n".join(lines)).replace("CASES", cases)


class _Interface(NamedTuple):
    """The machine code, and the addresses of Python's functions for it."""

    differ: Any
    functions: Any


@cache
def found_interface() -> _Interface | None:
    """None if Python lacks any of the functions."""
    own = ctypes.pythonapi
    optional = next((name for name in _OPTIONAL if hasattr(own, name)), None)
    if optional is None or not all(hasattr(own, name) for name in _NAMES):
        return None
    found = [ctypes.cast(getattr(own, name), ctypes.c_void_p).value for name in _NAMES]
    found.append(ctypes.cast(getattr(own, optional), ctypes.c_void_p).value)
    kind = ctypes.PYFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p)
    differ = kind(library(_text(), "differ")["differ"])
    return _Interface(differ, (ctypes.c_void_p * len(found))(*found))


class Number(int):
    """A length, a size or a truth value, stored directly in a row."""


NOTHING = object()
"""Represents a missing value in a row."""

Row = tuple[str, Any, Any, Any]
"""One of ``KINDS``, an object, its key or a ``Number``, and the expected answer."""


def question(rows: Sequence[Row]) -> Callable[[], int]:
    """The check of all rows: 0 if all answers are as expected, else 1.

    It keeps the objects of all rows alive, and raises errors of called objects.
    """
    interface = found_interface()
    if interface is None:
        raise RuntimeError("Python does not offer its C functions")
    words: list[int | None] = []
    for kind, *parts in rows:
        words.append(KINDS.index(kind))
        words += [x if type(x) is Number else None if x is NOTHING else id(x) for x in parts]
    table = (ctypes.c_void_p * len(words))(*words)
    functions = ctypes.addressof(interface.functions)
    ask: Any = partial(interface.differ, functions, len(rows), ctypes.addressof(table))
    ask.held = rows, table
    return cast(Callable[[], int], ask)


def can_ask() -> bool:
    """Whether machine code is available, and Python has its functions."""
    return machine_code.available() and found_interface() is not None
