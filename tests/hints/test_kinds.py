"""Arguments of a kind that a function does not take: graphfw's errors, with what to write."""

from __future__ import annotations

import functools
import inspect

import numpy as np
import pytest

import graphfw as gf
from tests.hints.test_signatures import MADE_BY_FUNCTIONS, OWN_PARAMETERS, PUBLIC

x = gf.ones((3, 3))


class Odd:
    """Nothing that a function takes."""


class Unprintable(Odd):
    def __repr__(self):
        raise RuntimeError("no text")


CALLS = [
    (lambda: gf.softplus(x, beta=None), "softplus: beta=None does not fit", "beta must be a float"),
    (lambda: gf.diff(x, n=(1, 2)), "diff: n=(1, 2)", "n must be an int; where you leave it out, i"),
    (lambda: gf.linspace(0, 1, (1, 1)), "linspace: num=(1, 1)", "num must be an int or a dim"),
    (lambda: gf.fft.rfftn(x, s=3), "rfftn: s=3", "s must be a sequence of ints or dims or None"),
    (lambda: gf.histogram(x, range=3), "histogram: range=3", "a tuple of floats or tensors or N"),
    (lambda: gf.switch(0, 0.5), "switch: branches=0.5", "branches must be a sequence of functions"),
    (lambda: gf.verify(3), "verify: graph=3", "graph must be a Graph"),
    (lambda: gf.parse(None), "parse: text=None", "text must be a string"),
    (lambda: gf.bisect(1, 2), "bisect: a=1, b=2 do not fit", "a must be a Session; b must be a S"),
    (lambda: gf.vecdot(x, x, axis=Unprintable()), "vecdot: axis=an Unp", "axis must be an int"),
    (lambda: gf.optim.global_norm(3), "global_norm: grads=3", "must be a sequence of tensors"),
    (lambda: gf.optim.clip_by_value(3, 1), "clip_by_value: grads=3", "must be a sequence of ten"),
    (lambda: gf.optim.schedules.cosine(1, "a"), "cosine: steps='a'", "steps must be an int"),
    (lambda: gf.optim.Adam(name=[]), "Adam: name=[]", "name must be a string or None"),
    (lambda: gf.nn.init.he_normal(in_axis=0.5), "he_normal: in_axis=0.5", "must be an int; where"),
    (lambda: gf.nn.Hardswish(name=2**64), "Hardswish: name=18446744073709551616", "a string or No"),
    # These would fail in calls only.
    (lambda: gf.nn.ELU(None), "ELU: alpha=None", "alpha must be a float"),
    (lambda: gf.nn.PReLU(2, axis=(0, 1)), "PReLU: axis=(0, 1)", "axis must be an int"),
]


@pytest.mark.parametrize(("mistake", "text", "fix"), CALLS)
def test_the_error_names_the_argument_and_what_to_write(mistake, text, fix):
    with gf.Graph(), pytest.raises(gf.CallError) as caught:
        mistake()
    assert caught.value.summary.startswith(text)
    assert fix in caught.value.fix
    assert caught.value.at.file == __file__


ODD = [
    *(2**63, -(2**63), 2**64, 10**400, 10**5000, -1, 0, True, 0.5, float("nan"), -1e308, None, 1j),
    *(
        "",
        "x",
        "a" * 300,
        "\ud800",
        b"x",
        (),
        [],
        {},
        set(),
        (2**62, 2**62),
        [1, -1],
        [[1, 2], [3]],
    ),
    *({"a": 1}, (None, None), Odd(), object, int, print, ..., slice(2**70, None, 0), range(3)),
    *(np.array([1, 2]), np.array(["a"]), np.array([None]), np.zeros((0, 3)), np.array(2)),
    *(np.float32(2), np.datetime64("2020"), np.dtype("float64"), gf.float16, (1,) * 70),
]

WITHOUT_ARGUMENTS_OF_ONE_KIND = {
    *("gf.breakpoint", "gf.set_default_dtype", "gf.set_default_executor", "gf.print"),
    *("gf.op", "gf.apply", "gf.Op", "gf.extend"),
    "gf.tree.map",  # the errors are those of the function that it is given
}


@functools.cache
def _callables():
    """Return functions by their paths, how many arguments each needs, and what else it takes."""
    found = []
    for path, value in PUBLIC.items():
        module, _, name = path.rpartition(".")
        is_own = path in OWN_PARAMETERS or module in ("gf.extend", "gf.errors", "gf.onnx")
        if path in WITHOUT_ARGUMENTS_OF_ONE_KIND or is_own or name in MADE_BY_FUNCTIONS:
            continue
        is_abstract = inspect.isclass(value) and inspect.isabstract(value)
        is_method = "self" in inspect.signature(value).parameters
        if not is_abstract and not is_method:
            parameters = inspect.signature(value).parameters.values()
            count = len([p for p in parameters if p.default is p.empty and p.kind < 2])
            options = [
                p.name for p in parameters if p.kind is p.KEYWORD_ONLY or p.default is not p.empty
            ]
            found.append((path, value, count, options))
    return found


@pytest.mark.exhaustive(every=4)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("number", range(len(ODD)))
def test_no_public_function_leaks_an_error_of_python_s(number):
    odd, leaks = ODD[number], []
    for path, function, count, options in _callables():
        for args, kwargs in [
            ((odd,) * count, {}),
            ((x,) * count, dict.fromkeys(options[:1], odd)),
            ((x,) * count, dict.fromkeys(options[-1:], odd)),
        ]:
            try:
                with gf.Graph():
                    function(*args, **kwargs)
            except gf.GraphfwError as error:
                str(error)
            except Exception as error:
                leaks.append(f"{path}: {args[:1]!r:.30} {list(kwargs)} {error!r:.90}")
    assert not leaks, "\n".join(leaks)
