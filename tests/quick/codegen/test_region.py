"""Malformed regions: each is refused with the right error, which marks the line in the text."""

import pytest

from eagerflow.codegen.builder import Builder
from eagerflow.codegen.region import Constant, Input, Output, Region, Statement
from eagerflow.errors import ArgumentError, DTypeError, ShapeError

X = Input("x", "float32", ("m", "n"))
B = Input("b", "bool", ("m", "n"))
I = Input("i", "int32", ("m", "n"))
ROW = Input("r", "float32", ("m",))
INDEX = Input("k", "int64", ("m",))
STATE = Input("s", "uint64", ())


def region(*parts, axes="m n", sizes=(), outputs=None, name="bad"):
    """A region of inputs and statements; its output is the last value, if no others are given."""
    inputs = tuple(p for p in parts if isinstance(p, Input))
    body = tuple(p for p in parts if isinstance(p, Statement))
    if outputs is None:
        value = (inputs + body)[-1]
        outputs = [Output("y", value.name, value.dtype, value.axes)]
    return Region(name, tuple(axes.split()), inputs, body, tuple(outputs), sizes)


def make(instruction, *operands, dtype="float32", axes="m n", over="", name="1"):
    operands = tuple(o.name if isinstance(o, Input) else o for o in operands)
    return Statement(name, instruction, operands, dtype, tuple(axes.split()), tuple(over.split()))


def write(value, dtype="float32", axes="m n", inplace=None, name="y"):
    return Output(name, value, dtype, tuple(axes.split()), inplace)


def table(gather, dtype="float32", axes="m n"):
    return Input("t", dtype, tuple(axes.split()), gather)


COLUMN = make("sum", X, axes="n", over="m")
ABS = make("abs", X)

# Name: (error, words of the message, the marked line, region).
BAD = {
    # Types of instructions
    "number of bool": (DTypeError, "takes number, not bool", "%1",
                       lambda: region(B, make("add", B, B, dtype="bool"))),
    "float of integer": (DTypeError, "sqrt takes float, not int32", "%1",
                         lambda: region(I, make("sqrt", I, dtype="int32"))),
    "integer of float": (DTypeError, "takes integer, not float32", "%1",
                         lambda: region(X, make("bitwise_and", X, X))),
    "bool of integer": (DTypeError, "takes bool, not int32", "%1",
                        lambda: region(I, make("logical_not", I, dtype="bool"))),
    "two types": (DTypeError, "operands of one type are needed, not float32, int32", "%1",
                  lambda: region(X, I, make("add", X, I))),
    "type of a constant": (DTypeError, "not float32, float64", "%1",
                           lambda: region(X, make("add", X, Constant(1.0, "float64")))),
    "condition": (DTypeError, "select needs a condition of bool, not float32", "%1",
                  lambda: region(X, make("select", X, X, X))),
    "choices": (DTypeError, "one type", "%1", lambda: region(X, B, I, make("select", B, X, I))),
    "result": (DTypeError, "add gives float32, not float64", "%1",
               lambda: region(X, make("add", X, X, dtype="float64"))),
    "comparison": (DTypeError, "less gives bool, not float32", "%1",
                   lambda: region(X, make("less", X, X))),
    "bits": (DTypeError, "float32 has 32 bits, and int64 64", "%1",
             lambda: region(X, make("bitcast", X, dtype="int64"))),
    "small float as a value": (DTypeError, "'float16' is not a type of values", "%1",
                               lambda: region(X, make("convert", X, dtype="float16"))),
    "complex input": (DTypeError, "'complex64' is not a type of arrays", "in x",
                      lambda: region(Input("x", "complex64", ("m", "n")))),
    # Constants
    "constant of no type": (DTypeError, "'bfloat16' is not a type of values", "%1",
                            lambda: region(X, make("add", X, Constant(1.0, "bfloat16")))),
    "too large a constant": (DTypeError, "3000000000 is no int32", "%1",
        lambda: region(I, make("add", I, Constant(3_000_000_000, "int32"), dtype="int32"))),
    "fraction of integers": (DTypeError, "0.5 is no int32", "%1",
        lambda: region(I, make("add", I, Constant(0.5, "int32"), dtype="int32"))),
    "text": (DTypeError, "'one' is no float32", "%1",
             lambda: region(X, make("add", X, Constant("one", "float32")))),
    "truth as a number": (DTypeError, "True is no float32", "%1",
                          lambda: region(X, make("add", X, Constant(True, "float32")))),
    # Operands
    "no such instruction": (ArgumentError, "there is no instruction 'cbrt'", "%1",
                            lambda: region(X, make("cbrt", X))),
    "too few operands": (ArgumentError, "add has 2 operands, not 1", "%1",
                         lambda: region(X, make("add", X))),
    "too many operands": (ArgumentError, "exp has 1 operand, not 2", "%1",
                          lambda: region(X, make("exp", X, X))),
    "sum of two": (ArgumentError, "sum has 1 operand, not 2", "%1",
                   lambda: region(X, make("sum", X, X, axes="m", over="n"))),
    "undefined": (ArgumentError, "%z is not defined before it is used", "%1",
                  lambda: region(X, make("abs", "z"))),
    "itself": (ArgumentError, "%1 is not defined before it is used", "%1",
               lambda: region(X, make("abs", "1"))),
    "later": (ArgumentError, "%2 is not defined before it is used", "%1",
              lambda: region(X, make("abs", "2"), make("abs", X, name="2"))),
    "defined twice": (ArgumentError, "%1 is defined twice", "%1: float32[m, n] = exp",
                      lambda: region(X, ABS, make("exp", X))),
    "input twice": (ArgumentError, "%x is defined twice", "in x: float32[m]",
                    lambda: region(X, Input("x", "float32", ("m",)))),
    "input again": (ArgumentError, "%x is defined twice", "%x",
                    lambda: region(X, make("abs", X, name="x"))),
    "column's result": (ArgumentError, "%1 is complete only after the last row", "%2",
                        lambda: region(X, COLUMN, make("subtract", X, "1", name="2"))),
    # Axes
    "no axes": (ShapeError, "one or more axes", "region bad[]", lambda: region(STATE, axes="")),
    "axis twice": (ShapeError, "each named once", "region bad[m, m]",
                   lambda: region(X, axes="m m")),
    "unknown axis": (ShapeError, "there is no axis 'k'", "in x",
                     lambda: region(Input("x", "float32", ("m", "k")))),
    "axis of an input twice": (ShapeError, "once each", "in x",
                               lambda: region(Input("x", "float32", ("m", "m")))),
    "order of axes": (ShapeError, "[n, m] are not axes in the region's order", "in x",
                      lambda: region(Input("x", "float32", ("n", "m")))),
    "lost axis": (ShapeError, "the result varies along [m, n], not [m]", "%1",
                  lambda: region(X, make("abs", X, axes="m"))),
    "axis too many": (ShapeError, "the result varies along [m], not [m, n]", "%1",
                      lambda: region(ROW, make("abs", ROW))),
    "size of no axis": (ShapeError, "'k', which is no axis", "region bad[m, n]",
                        lambda: region(X, sizes=(("k", 3),))),
    "negative size": (ShapeError, "axis 'm' needs one size, of 0 or more", "region bad[m=-1, n]",
                      lambda: region(X, sizes=(("m", -1),))),
    "two sizes": (ShapeError, "axis 'm' needs one size", "region bad[m=4, n]",
                  lambda: region(X, sizes=(("m", 3), ("m", 4)))),
    "name": (ArgumentError, "'a b' is not a name", "region a b[m, n]",
             lambda: region(X, name="a b")),
    # Reductions
    "sum of bool": (DTypeError, "numbers are summed and multiplied, not bool", "%1",
                    lambda: region(B, make("sum", B, dtype="bool", axes="m", over="n"))),
    "any of numbers": (DTypeError, "any is a question about bool", "%1",
                       lambda: region(X, make("any", X, axes="m", over="n"))),
    "wider sum": (DTypeError, "sum of float32 gives float32, not float64", "%1",
                  lambda: region(X, make("sum", X, dtype="float64", axes="m", over="n"))),
    "over nothing": (ShapeError, "one or more of the first axes, or of the last", "%1",
                     lambda: region(X, make("sum", X))),
    "over an unknown axis": (ShapeError, "there is no axis 'k'", "%1",
                             lambda: region(X, make("sum", X, axes="m", over="k"))),
    "over an axis twice": (ShapeError, "once each", "%1",
                           lambda: region(X, make("sum", X, axes="m", over="n n"))),
    "over the middle": (
        ShapeError,
        "first axes, or of the last",
        "%1",
        lambda: region(
            Input("x", "float32", ("a", "m", "n")),
            make("sum", X, axes="a n", over="m"),
            axes="a m n",
        ),
    ),
    "over an axis that it lacks": (ShapeError, "varies along [m], not along all of [n]", "%1",
                                   lambda: region(ROW, make("sum", ROW, axes="m", over="n"))),
    "rows along different axes": (
        ShapeError,
        "which are [n] before and [m, n] here",
        "%2",
        lambda: region(
            X, make("max", X, axes="m", over="n"), make("sum", X, axes="", over="m n", name="2")
        ),
    ),
    "add over an axis": (ShapeError, "add is not over axes", "%1",
                         lambda: region(X, make("add", X, X, over="n"))),
    # What makes values of the index space
    "position of a type": (DTypeError, "position is an int64 along one axis", "%1",
                           lambda: region(X, make("position", axes="n", over="n"))),
    "position along two": (DTypeError, "position is an int64 along one axis", "%1",
                           lambda: region(X, make("position", dtype="int64", over="m n"))),
    "extent of bool": (DTypeError, "extent is a number", "%1",
                       lambda: region(X, make("extent", dtype="bool", axes="", over="n"))),
    "bits of floats": (DTypeError, "of three uint64", "%1",
                       lambda: region(X, make("random_bits", X, X, X, dtype="uint32", over="m n"))),
    "float bits": (DTypeError, "random_bits makes uint32 or uint64", "%1",
                   lambda: region(STATE, make("random_bits", STATE, STATE, STATE, over="m n"))),
    "states of rows": (
        ShapeError,
        "the state is the same for all of the region",
        "%1",
        lambda: region(
            Input("s", "uint64", ("m",)), make("random_bits", *"sss", dtype="uint32", over="m n")
        ),
    ),
    # Rows that are looked up
    "gather by nothing": (ArgumentError, "%k is not an input", "in t",
                          lambda: region(X, table("k"))),
    "gather by a value": (ArgumentError, "%1 is not an input", "in t",
                          lambda: region(X, table("1"), ABS)),
    "gather by floats": (DTypeError, "by int32 or int64, not float32: %r", "in t",
                         lambda: region(ROW, table("r"))),
    "gather of elements": (ShapeError, "%i varies along [m, n]", "in t",
                           lambda: region(I, table("i"))),
    "gather of a number": (ShapeError, "one number for each row", "in t",
                           lambda: region(INDEX, table("k", axes=""))),
    "gather by what is gathered": (ArgumentError, "%k is looked up itself", "in k",
                                   lambda: region(Input("k", "int64", ("m",), "k"))),
    "gather along another axis": (ShapeError, "and not along [m, n] alone", "in t",
        lambda: region(Input("k", "int64", ("a",)), table("k"), axes="a m n")),
    # Outputs
    "no outputs": (ArgumentError, "without outputs", "region bad[m, n]",
                   lambda: region(X, ABS, outputs=[])),
    "undefined output": (ArgumentError, "%2 is not defined", "out y",
                         lambda: region(X, ABS, outputs=[write("2")])),
    "output twice": (ArgumentError, "two outputs have the name y", "out y: float32[m, n] = %x",
                     lambda: region(X, ABS, outputs=[write("1"), write("x")])),
    "type of an output": (DTypeError, "a float32 cannot be stored as 'int8'", "out y",
                          lambda: region(X, ABS, outputs=[write("1", "int8")])),
    "float64 in half": (DTypeError, "a float64 cannot be stored as 'float16'", "out y",
        lambda: region(Input("x", "float64", ("m", "n")), outputs=[write("x", "float16")])),
    "axes of an output": (ShapeError, "%1 varies along [m, n], which [m] lacks", "out y",
                          lambda: region(X, ABS, outputs=[write("1", axes="m")])),
    "unknown axis of an output": (ShapeError, "there is no axis 'k'", "out y",
                                  lambda: region(X, ABS, outputs=[write("1", axes="m k")])),
    "in place of nothing": (ArgumentError, "%z is not an input", "out y",
                            lambda: region(X, ABS, outputs=[write("1", inplace="z")])),
    "in place of another shape": (ShapeError, "has its type and axes", "out y",
                                  lambda: region(X, ROW, ABS, outputs=[write("1", inplace="r")])),
    "in place of another type": (ShapeError, "has its type and axes", "out y",
        lambda: region(X, ABS, outputs=[write("1", "bfloat16", inplace="x")])),
    "in place of a table": (ShapeError, "replaces no rows that are looked up", "out y",
        lambda: region(X, INDEX, table("k"), ABS, outputs=[write("1", inplace="t")])),
    "two in one place": (
        ArgumentError,
        "two outputs take the place of %x",
        "out z",
        lambda: region(
            X, ABS, outputs=[write("1", inplace="x"), write("x", inplace="x", name="z")]
        ),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_malformed_regions_are_refused(name):
    error, words, line, build = BAD[name]
    with pytest.raises(error) as caught:
        build()
    message = str(caught.value)
    print(message)
    assert type(caught.value) is error
    assert words in message
    marked = [text for text in message.splitlines() if text.endswith("   <-- here")]
    assert len(marked) == 1 and marked[0].startswith(f"    > {line}")


def test_the_error_shows_the_whole_region():
    with pytest.raises(DTypeError) as caught:
        region(X, B, ABS, make("select", X, "1", X, name="2"), outputs=[write("2")])
    assert str(caught.value) == (
        "region bad: select needs a condition of bool, not float32\n"
        "    region bad[m, n]\n"
        "      in x: float32[m, n]\n"
        "      in b: bool[m, n]\n"
        "      %1: float32[m, n] = abs %x\n"
        "    > %2: float32[m, n] = select %x, %1, %x   <-- here\n"
        "      out y: float32[m, n] = %2"
    )


def test_error_suggests_a_fix():
    with pytest.raises(DTypeError) as caught:
        region(X, I, make("add", X, I))
    assert str(caught.value).endswith("\n  try: the instruction convert")


def test_parts_of_the_malformed_regions_are_valid():
    parts = (X, B, I, ROW, INDEX, STATE, table("k"), ABS)
    sound = region(*parts, make("sum", X, axes="n", over="m", name="2"), sizes=(("m", 3),))
    assert str(sound).splitlines()[0] == "region bad[m=3, n]"
    assert str(sound).splitlines()[-1] == "  out y: float32[n] = %2"


def test_signed_zeros_and_nan_compare_by_bits():
    def plus(number):
        return region(X, make("add", X, Constant(number, "float32")))

    assert plus(0.0) == plus(0.0) and hash(plus(0.0)) == hash(plus(0.0))
    assert plus(0.0) != plus(-0.0)
    assert plus(float("nan")) == plus(float("nan"))


def test_a_builder_writes_both_zeros_down():
    b = Builder("zeros", "n")
    x = b.input("x", "float32", "n")
    b.output("y", b.copysign(x, 0.0) + b.copysign(x, -0.0) + b.copysign(x, 0.0))
    found = [str(s).partition(" = ")[2] for s in b.region().body]
    assert found == ["copysign %x, 0.0", "copysign %x, -0.0", "add %1, %2", "add %3, %1"]


# One for all that are equal ----------------------------------------------------------------------


def scaled(factor, name="scaled"):
    builder = Builder(name, "m n")
    builder.output("y", builder.multiply(builder.input("x", "float32", "m n"), factor))
    return builder.region()


def test_equal_regions_that_are_written_are_one():
    first = scaled(0.5)
    assert scaled(0.5) is first
    assert scaled(0.25) is not first
    assert scaled(0.5, "other") is not first
    assert scaled(0.0) is not scaled(-0.0)
    assert first == region(X, make("multiply", X, Constant(0.5, "float32")), name="scaled")


def test_unreferenced_region_is_collected():
    first = scaled(0.125)
    first.calls["what was made ready"] = 1
    del first
    assert not scaled(0.125).calls


def test_invalid_region_is_refused_every_time():
    for _ in range(2):
        with pytest.raises(ArgumentError, match="without outputs"):
            Builder("nothing", "m n").region()
