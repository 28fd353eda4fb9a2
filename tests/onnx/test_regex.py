"""Regular expressions: RE2's signs, and time that nobody can make long."""

from __future__ import annotations

import random
import re
import time

import pytest

from graphfw.onnx.optional.regex import Pattern, PatternError

ATOMS = [
    *("a", "b", "A", "0", ".", "[ab]", "[^a]", "[a-c0]", r"\d", r"\w", r"\s", r"\W", r"\b", r"\B"),
    *("(?:ab)", "(a|b)", "(?P<n>a*)", "a?", "b*", "[ab]+", "a{2}", "b{1,2}", "a{1,}", "|", r"\."),
    *("(?i:aB)", "(?s:.)", "^", r"\n", "(b+?|a)*"),
]


@pytest.mark.parametrize("seed", range(20))
def test_what_python_has_as_well(seed):
    draw = random.Random(seed)
    texts = [
        "".join(draw.choice("abAB0 .\n") for _ in range(draw.randrange(1, 6))) for _ in range(60)
    ]
    for _ in range(60):
        text = "".join(draw.choice(ATOMS) for _ in range(draw.randrange(1, 6)))
        try:
            wanted = re.compile(text, re.ASCII)
        except re.error:
            continue
        pattern = Pattern(text)
        for each in texts:
            assert pattern.matches(each) == bool(wanted.fullmatch(each)), (text, each)


@pytest.mark.parametrize(
    ("pattern", "right", "wrong"),
    [
        ("[[:alpha:]]+", ["abZ"], ["a1", ""]),
        ("[^[:digit:]x]", ["a"], ["1", "x"]),
        ("[[:^space:]]", ["a"], [" "]),
        (r"\pL\p{Nd}", ["é5"], ["55"]),
        (r"\P{L}[\pL]", ["1é"], ["éé"]),
        (r"\Qa.b\E?", ["a.b", "a."], ["axb"]),
        (r"\x41\x{e9}\101", ["AéA"], ["AeA"]),
        ("(?i)straße", ["STRAßE"], ["STRASSE"]),
        ("a(?i)b|c", ["aB", "C"], ["AB"]),
        ("(?m:a$\n^b)", ["a\nb"], ["ab"]),
        ("a$\n", [], ["a\n"]),
        (r"(?s).\z", ["\n"], [""]),
        ("(?U)a+", ["aaa"], ["b"]),
        ("a{,2}", ["a{,2}"], ["aa"]),
        ("", [""], ["a"]),
        (r"\d", ["5"], ["\u0665"]),
        ("[]a-]+", ["]a-"], ["b"]),
        ("(((a?){3}){3}){3}", ["", "a" * 27], ["a" * 28]),
    ],
)
def test_signs(pattern, right, wrong):
    made = Pattern(pattern)
    assert [made.matches(text) for text in right] == [True] * len(right)
    assert [made.matches(text) for text in wrong] == [False] * len(wrong)


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (r"(a)\1", "refers back"),
        ("(?=a)", "nothing that RE2 has"),
        ("(?<=a)", r"> is missing|no name"),
        (r"\Z", "nothing that RE2 has"),
        ("(a", "not closed"),
        ("a)", "closes nothing"),
        ("[a", "ends in the middle"),
        ("[b-a]", "no beginning or end"),
        ("*a", "repeats nothing"),
        ("a**", "is repeated"),
        ("a{2000}", "from 0 to 1000"),
        ("((((a{99}){99}){99}){99})", "states"),
        ("(" * 200 + ")" * 200, "nested"),
        (r"\p{Greek}", "scripts are not supported"),
        ("[[:letter:]]", "no class"),
        ("a\\", "ends in the middle"),
    ],
)
def test_patterns_that_are_none(pattern, text):
    with pytest.raises(PatternError, match=text):
        Pattern(pattern)


@pytest.mark.parametrize("pattern", ["(a+)+", "(a|a)*", "(a*)*b", "a?" * 30 + "a" * 30])
def test_no_pattern_takes_long(pattern):
    begin = time.process_time()
    Pattern(pattern).matches("a" * 3000 + "c")
    assert time.process_time() - begin < 5


def test_a_text_that_is_too_long():
    with pytest.raises(PatternError, match="too long"):
        Pattern("a{1000}").matches("a" * 10**6)
