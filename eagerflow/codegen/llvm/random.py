"""Random bits in LLVM IR: the Philox generator of ``philox``, number by number."""

from __future__ import annotations

from eagerflow.codegen.llvm.instructions import Code, Operand, llvm_type
from eagerflow.codegen.numpy.philox import BLOCK_WORDS, KEY_STEPS, MULTIPLIERS

_NAME = "philox"


def random_lanes(code: Code, first: str, state: list[Operand], dtype: str, lanes: int) -> Operand:
    """Numbers ``first`` to ``first + lanes - 1`` of a draw, as a vector.

    A block of the generator gives four words, or eight halves. The blocks of the vector are
    computed one by one and stored consecutively, and the vector is loaded from there.
    """
    per_block = BLOCK_WORDS * (2 if dtype == "uint32" else 1)
    size = 4 if dtype == "uint32" else 8
    count = -(-lanes // per_block) + 1
    code.functions[_NAME] = _philox()
    # The stack is reserved at the function's entry: within a loop it would grow each time.
    room = code.entry(f"alloca [{count * 4} x i64], align 64")
    block = code.value(f"udiv i64 {first}, {per_block}")
    within = code.value(f"urem i64 {first}, {per_block}")
    words = ", ".join(f"i64 {x.text}" for x in state)
    for i in range(count):
        if i == count - 1:  # only numbers that do not begin with a block extend into the last one
            after = code.name("drawn_")
            code.go_on(code.value(f"icmp ne i64 {within}, 0"), after)
        number = code.value(f"add i64 {block}, {i}")
        place = code.value(f"getelementptr i64, ptr {room}, i64 {i * BLOCK_WORDS}")
        code.line(f"call void @{_NAME}(ptr {place}, i64 {number}, {words})")
    code.line(f"br label %{after}")
    code.label(after)
    start = code.value(f"getelementptr i{8 * size}, ptr {room}, i64 {within}")
    text = code.value(f"load {llvm_type(dtype, lanes)}, ptr {start}, align {size}")
    return Operand(text, dtype, lanes)


def _philox() -> str:
    """The function that writes the four words of one block: ten rounds of the cipher."""
    code = Code()
    a, b, c, d = "%block", "0", "0", "0"
    b = "%draw"
    keys = ["%key0", "%key1"]
    for _ in range(10):
        low, high = [], []
        for factor, word in zip(MULTIPLIERS, (a, c), strict=True):
            wide = code.value(f"zext i64 {word} to i128")
            product = code.value(f"mul i128 {wide}, {factor}")
            low.append(code.value(f"trunc i128 {product} to i64"))
            upper = code.value(f"lshr i128 {product}, 64")
            high.append(code.value(f"trunc i128 {upper} to i64"))
        mixed = [code.value(f"xor i64 {h}, {w}") for h, w in ((high[1], b), (high[0], d))]
        a, c = (code.value(f"xor i64 {m}, {k}") for m, k in zip(mixed, keys, strict=True))
        b, d = low[1], low[0]
        steps = [_signed(x) for x in KEY_STEPS]
        keys = [code.value(f"add i64 {k}, {s}") for k, s in zip(keys, steps, strict=True)]
    for i, word in enumerate((a, b, c, d)):
        place = code.value(f"getelementptr i64, ptr %out, i64 {i}")
        code.line(f"store i64 {word}, ptr {place}, align 8")
    head = f"define private void @{_NAME}(ptr noalias %out, i64 %block, i64 %key0, i64 %key1, "
    return "\n".join([head + "i64 %draw) nounwind {", *code.lines, "  ret void", "}"])


def _signed(word: int) -> int:
    return word - 2**64 if word >= 2**63 else word
