"""Instructions of Python 3.11 to 3.13 that need no handler of their own."""

from __future__ import annotations

__all__ = ["EFFECTS", "ENDS", "OPERATORS", "TEXTS", "TRUTH"]

# What is taken from the stack and what is put on it, where nothing is read from the values.
EFFECTS: dict[str, tuple[int, int]] = {
    name: effect
    for effect, names in {
        (0, 0): """
            ASYNC_GEN_WRAP CACHE COPY_FREE_VARS DELETE_DEREF DELETE_FAST DELETE_GLOBAL DELETE_NAME
            EXIT_INIT_CHECK EXTENDED_ARG INTERPRETER_EXIT JUMP_BACKWARD NOP NOT_TAKEN
            JUMP_BACKWARD_NO_INTERRUPT JUMP_FORWARD MAKE_CELL PRECALL RESUME RETURN_CONST
            RETURN_GENERATOR SETUP_ANNOTATIONS""",
        (0, 1): """
            LOAD_ASSERTION_ERROR LOAD_BUILD_CLASS LOAD_COMMON_CONSTANT LOAD_LOCALS
            WITH_EXCEPT_START""",
        (1, 0): """
            POP_EXCEPT POP_JUMP_BACKWARD_IF_NONE POP_JUMP_BACKWARD_IF_NOT_NONE
            POP_JUMP_FORWARD_IF_NONE POP_JUMP_FORWARD_IF_NOT_NONE POP_JUMP_IF_NONE
            POP_JUMP_IF_NOT_NONE POP_TOP RERAISE STORE_NAME""",
        (1, 1): """
            CALL_INTRINSIC_1 CHECK_EG_MATCH CHECK_EXC_MATCH GET_AITER GET_AWAITABLE YIELD_VALUE
            LOAD_SPECIAL""",
        (1, 2): "BEFORE_ASYNC_WITH BEFORE_WITH PUSH_EXC_INFO",
        (2, 0): "END_ASYNC_FOR",
        (2, 1): "CALL_INTRINSIC_2 PREP_RERAISE_STAR",
        (3, 2): "CLEANUP_THROW",
        (0, 2): "GET_ANEXT",
    }.items()
    for name in names.split()
}

# Operators look at all of their operands.
OPERATORS = {
    "BINARY_OP": 2,
    "COMPARE_OP": 2,
    "UNARY_INVERT": 1,
    "UNARY_NEGATIVE": 1,
    "UNARY_POSITIVE": 1,
    "PRINT_EXPR": 1,
}
TEXTS = {"CONVERT_VALUE": 1, "FORMAT_SIMPLE": 1, "FORMAT_WITH_SPEC": 2}
TRUTH = {
    "TO_BOOL",
    "UNARY_NOT",
    "POP_JUMP_IF_FALSE",
    "POP_JUMP_IF_TRUE",
    "POP_JUMP_FORWARD_IF_FALSE",
    "POP_JUMP_FORWARD_IF_TRUE",
    "POP_JUMP_BACKWARD_IF_FALSE",
    "POP_JUMP_BACKWARD_IF_TRUE",
}
ENDS = {
    "RETURN_VALUE",
    "RETURN_CONST",
    "RAISE_VARARGS",
    "RERAISE",
    "JUMP_FORWARD",
    "JUMP_BACKWARD",
    "JUMP_BACKWARD_NO_INTERRUPT",
}
