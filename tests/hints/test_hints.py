"""Names and arguments of other frameworks: the error says what to write."""

from __future__ import annotations

import inspect
import pickle
import subprocess
import sys

import numpy as np
import pytest

import graphfw as gf
from graphfw.hints import foreign_names, public

a = b = x = gf.ones((2, 3))
image = np.ones((2, 3))
softened = gf.softmax

CALLS = [
    (lambda: gf.softmax(x, dim=-1), "gf.softmax(x, axis=-1)"),
    (lambda: softened(x, dim=-1), "softened(x, axis=-1)"),
    (lambda: gf.sum(x, dim=0), "gf.sum(x, axis=0)"),
    (lambda: gf.sum(x, 0, True), "gf.sum(x, axis=0, keepdims=True)"),
    (lambda: gf.sum(input=x, dim=0), "gf.sum(x, axis=0)"),
    (lambda: gf.zeros(3, 4), "gf.zeros((3, 4))"),
    (lambda: gf.zeros(3, 4, gf.int32), "gf.zeros((3, 4), dtype=gf.int32)"),
    (lambda: gf.full(2, 3, 1.0), "gf.full((2, 3), 1.0)"),
    (lambda: gf.concat(a, b), "gf.concat([a, b])"),
    (lambda: gf.concat([a, b], 1), "gf.concat([a, b], axis=1)"),
    (lambda: gf.stack(a, b, dim=1), "gf.stack([a, b], axis=1)"),
    (lambda: gf.reshape(x, 2, 3), "gf.reshape(x, (2, 3))"),
    (lambda: gf.permute_dims(x, 0, 1), "gf.permute_dims(x, (0, 1))"),
    (
        lambda: gf.scaled_dot_product_attention(a, a, a, mask=b),
        "gf.scaled_dot_product_attention(a, a, a, b)",
    ),
    (lambda: gf.nn.cross_entropy(x, target=a), "gf.nn.cross_entropy(x, a)"),
    (lambda: gf.ones_like(x, requires_grad=True), "gf.ones_like(x); without requires_grad=: "),
    (lambda: gf.max(a, b), "its arguments are: x, axis, keepdims"),
    (lambda: list(map(gf.zeros, [3], [4])), "gf.zeros((3, 4))"),
    (lambda: gf.sum(*[x, 0]), "gf.sum(x, axis=0)"),
]

NAMES = [
    (lambda: gf.cat([a, b], dim=1), "gf.concat([a, b], axis=1)"),
    (lambda: gf.tensor([1, 2]), "gf.asarray([1, 2])"),
    (lambda: gf.clamp(x, min=0), "gf.clip(x, min=0)"),
    (lambda: gf.nn.relu(x), "gf.relu(x)"),
    (lambda: gf.nn.Dense(64), "write gf.nn.Linear(…); its arguments are: in_features, out_feat"),
    (lambda: gf.nn.CrossEntropyLoss(), "write gf.nn.cross_entropy(…); its arguments are: logits"),
    (lambda: gf.nn.functional.relu(x), "functions are in gf"),
    (lambda: gf.optim.LBFGS(), "not in graphfw: scipy.optimize.minimize"),
    (lambda: gf.linalg.solv(x, x), 'did you mean "solve"?'),
]


@pytest.mark.parametrize(("mistake", "fix"), CALLS, ids=lambda p: p if isinstance(p, str) else "")
def test_arguments(mistake, fix):
    with pytest.raises(gf.CallError) as caught:
        mistake()
    assert isinstance(caught.value, TypeError)
    assert caught.value.fix.startswith(fix)
    assert (caught.value.at.file, caught.value.at.line) == _line_of(mistake, caught.value)


@pytest.mark.parametrize(("mistake", "fix"), NAMES, ids=lambda p: p if isinstance(p, str) else "")
def test_names(mistake, fix):
    with pytest.raises(gf.UnknownNameError) as caught:
        mistake()
    assert isinstance(caught.value, AttributeError)
    assert caught.value.fix.startswith(fix)
    assert pickle.loads(pickle.dumps(caught.value)).name == caught.value.name


def _line_of(mistake, error):
    lines, first = inspect.getsourcelines(mistake)
    return __file__, error.at.line if first <= error.at.line < first + len(lines) else None


def test_an_error_from_inside_of_a_call_stays_what_it_is():
    with pytest.raises(TypeError, match="broken") as caught:
        gf.cond(gf.asarray(True), _broken, _broken)
    assert not isinstance(caught.value, gf.GraphfwError)


def _broken():
    raise TypeError("broken")


def test_python_looks_for_names_as_in_any_module():
    assert not hasattr(gf, "cat")
    assert getattr(gf, "cat", None) is None
    assert set(dir(gf)) == set(gf.__all__)
    assert inspect.unwrap(gf.nn.Linear) is gf.nn.Linear
    with pytest.raises(ImportError) as caught:
        from graphfw import cat  # noqa: F401
    assert "it is gf.concat here" in str(caught.value)
    namespace = {}
    exec("from graphfw.nn import *", namespace)
    assert namespace["Linear"] is gf.nn.Linear


def test_what_is_to_be_written_exists():
    for name, target in foreign_names.RENAMED.items():
        assert public.find(target) is not None, f"{name}: there is no {target}"


def test_no_row_for_a_name_that_exists():
    own = {name for _, name in public.everything()}
    rows = foreign_names.RENAMED.keys() | foreign_names.INSTEAD.keys()
    known = sorted(own & rows)
    assert not known, f"graphfw has {known}: delete the rows in hints/foreign_names.py"


def test_the_table_is_loaded_by_the_first_error():
    code = "import sys, graphfw; print('graphfw.hints.foreign_names' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "False\n"


@pytest.mark.parametrize("name", [n for n in gf.nn.__all__ if inspect.isclass(getattr(gf.nn, n))])
def test_layers_have_signatures(name):
    parameters = inspect.signature(getattr(gf.nn, name)).parameters
    assert "name" in parameters
    assert not {"args", "kwargs"} & parameters.keys()
