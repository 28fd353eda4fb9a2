"""Mistakes in the text of graphs come with their line."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphfw.errors import ParseError, VerifyError
from graphfw.ir.parser import parse

GOOD = """graph "g" opset 2 {
  %0 = placeholder(name="x") : float32[n, 3]
  %1 = variable("w", initial=[1.0, 2.0, 3.0]) : float32[3]
  %2 = multiply(%0, %1) : float32[n, 3]
  %3 = sum(%2, axes=(0,), keepdims=False) : float32[3]
  update "w" = %3
  output %2
}"""


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        ('graph "g"', "grap g", 1, "does not begin with a graph"),
        ("opset 2", "opset 99", 1, "has opset 99, this version reads up to 2"),
        ("\n}", "", 7, "the graph's closing } is missing"),
        ("sum(", "sums(", 5, "(?s)there is no op named 'sums'.*did you mean \"sum\""),
        ("keepdims=", "keepdim=", 5, "(?s)has no field 'keepdim'.*did you mean \"keepdims\""),
        ("axes=(0,), ", "", 5, "field 'axes' is missing"),
        ("axes=(0,)", "axes=[0]", 5, r"\[0\] is no value of a field"),
        ("axes=(0,)", "axes=0, axes=1", 5, "axes is given twice"),
        ("axes=(0,)", 'axes=("a",)', 5, "axes=.* does not fit"),
        ("axes=(0,)", "axes=dtype.flot32", 5, '(?s)flot32 is no dtype.*did you mean "float32"'),
        ("axes=(0,)", "axes=(lambda: 0)", 5, "is no value of a field"),
        ("axes=(0,)", "axes=__import__('os')", 5, "is no value of a field"),
        ("axes=(0,)", "**{}", 5, r"\*\* is not allowed"),
        ("axes=(0,)", "axes=%0", 5, "%0 is no value of a field"),
        ("sum(%2", "sum(2", 5, "2 stands where a tensor should"),
        ("sum(%2", "sum(%5", 5, "%5 is not defined above this line"),
        ("sum(%2", "sum(%2, %2", 5, "takes x; the line has 2 tensors"),
        ("%3 = sum", "%2 = sum", 5, "%2 is defined twice"),
        ("%3 = sum", "%3, %4 = sum", 5, "1 result for 2 names"),
        ("False) : float32[3]", "False) : float32[n]", 5, r"says float32\[n\], sum gives"),
        ("False) : float32[3]", "False) : flot[3]", 5, "is not a tensor type"),
        ("False) : float32[3]", "False) : float32[3 3]", 5, "cannot read the size"),
        ("False) : float32[3]", "False)", 5, "this is no statement"),
        ("multiply(%0, %1)", "matmul(%1, %0)", 4, "matmul: "),
        (": float32[n, 3]\n  %1", ": float32[-3, 3]\n  %1", 2, "is negative"),
        ('(name="x")', '("x")', 2, "a placeholder has a name and one type"),
        ('(name="x")', "(name=3)", 2, "name=3 is no string"),
        ('(name="x")', '(nam="x")', 2, "(?s)no field 'nam'.*did you mean \"name\""),
        ('variable("w"', "variable(3", 3, "write it like variable"),
        ("initial=", "inital=", 3, "(?s)no field 'inital'.*did you mean \"initial\""),
        ("2.0, 3.0]", "2.0]", 3, "does not have the shape of"),
        ("2.0, 3.0]", "True, 3.0]", 3, r"True is no element of float32\[3\]"),
        ("2.0, 3.0]", "1e300, 3.0]", 3, "does not fit float32"),
        ("[1.0, 2.0, 3.0]", "%0", 3, r"says float32\[3\], its initial value is float32\[n, 3\]"),
        ('update "w"', 'update "v"', 6, 'there is no variable "v"'),
        (
            'update "w" = %3',
            'update "w" = %2',
            6,
            r'"w" is float32\[3\], the value float32\[n, 3\]',
        ),
        ('update "w" = %3', "update w = %3", 6, "can't read this update"),
        ("output %2", "output %9", 7, "%9 is not defined"),
        ("output %2", "output %2\n  output %3", 8, "outputs already"),
        ("output %2", "outputs %2", 7, "this is no statement"),
    ],
)
def test_mistakes(old, new, line, message):
    parse(GOOD)
    assert GOOD.count(old) == 1
    text = GOOD.replace(old, new)
    with pytest.raises(ParseError, match=message) as caught:
        parse(text)
    assert caught.value.at.line == line
    assert caught.value.at.text == text.split("\n")[line - 1]
    assert f"  at   line {line}:   {caught.value.at.text.strip()}" in str(caught.value)


def test_names_that_are_taken():
    again = GOOD.replace("  output", '  %4 = placeholder(name="x") : float32[]\n  output')
    with pytest.raises(ParseError, match='the name "x" is taken'):
        parse(again)
    again = GOOD.replace("  output", '  %4 = variable("w") : float32[]\n  output')
    with pytest.raises(ParseError, match='a variable named "w" exists already'):
        parse(again)


@pytest.mark.parametrize("text", ["", "\n\n", "# nothing"])
def test_no_graph_at_all(text):
    with pytest.raises(ParseError, match="has no graph in it"):
        parse(text)


@given(st.randoms(use_true_random=False), st.text("%@#:=(),[]{}\"'. -+n03x\\", max_size=3))
@settings(max_examples=300)
def test_damaged_text_never_fails_otherwise(source: random.Random, junk: str):
    start = source.randrange(len(GOOD))
    damaged = GOOD[:start] + junk + GOOD[start + source.randrange(4) :]
    try:
        again = parse(damaged)
    except (ParseError, VerifyError):
        return
    assert str(parse(str(again))) == str(again)
