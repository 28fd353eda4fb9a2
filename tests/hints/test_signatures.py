"""Public callables show what they take, and say what to write where the arguments don't fit."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import pytest

import graphfw as gf
from tests.test_public_api import MODULES, own_members

NAMED_VALUES = {"gf.breakpoint", "gf.check", "gf.print", "gf.extend.bad", "gf.extend.ok"}
"""Functions that take values of the user's by names of the user's."""

NAMED_VALUES.add("gf.extend.measure")  # the fields of an op

OF_THE_USER = {
    "gf.Function.plan",
    "gf.Function.result_types",
    "gf.nn.Module.forward",
    "gf.nn.Module.summary",
    "gf.nn.augment.Augment",
}
"""Methods, and a layer, that take the arguments of a function of the user's."""

REFUSED = {"gf.nn.metrics.ConfusionMatrix.forward", "gf.nn.metrics.Mean.forward"}
"""Methods that refuse all arguments."""

SIZES = {"gf.Plan.max_dim"}
"""Methods that take sizes by the names of the user's dims."""

OWN_PARAMETERS = NAMED_VALUES | OF_THE_USER | REFUSED | SIZES

WITHIN = {
    *("append", "check_names", "check_update", "fail", "fresh_symbol", "is_poisoned", "located"),
    *(
        "contents_of",
        "location",
        "poison",
        "reads",
        "rename",
        "settle",
        "share",
        "spread_poison",
        "standing_for",
    ),
    *("succeeds", "symbol_origin", "take", "takes_over", "unique"),
    *("direction", "draw", "extra_repr", "forward", "from_torch", "rule", "shared", "slots"),
    "slots_for",
    "gf.__array_namespace_info__",
}
"""Methods that the package calls, some for each node, and those that subclasses define for it."""

MADE_BY_FUNCTIONS = {"DType", "Dim", "Function", "Plan", "Tensor", "TensorType", "Update"}
"""Classes that users make no objects of."""


def _public() -> Iterator[tuple[str, Any]]:
    """Yield public functions and classes by path, and public methods of classes."""
    for path, module in MODULES.items():
        own = path.replace("graphfw", "gf", 1)
        for name in module.__all__:
            value = getattr(module, name)
            is_error = inspect.isclass(value) and issubclass(value, (Exception, tuple))
            if callable(value) and not (is_error or isinstance(value, gf.DType)):
                yield f"{own}.{name}", value
                for method in (
                    own_members(value)
                    if inspect.isclass(value) and path != "graphfw.extend"
                    else ()
                ):
                    if not method.startswith("_") and inspect.isfunction(getattr(value, method)):
                        yield f"{own}.{name}.{method}", getattr(value, method)


PUBLIC = dict(_public())


def test_no_signature_hides_its_parameters():
    bare = []
    for path, value in PUBLIC.items():
        try:
            signature = inspect.signature(value)
        except ValueError:  # an enum of some versions of Python
            continue
        kinds = {p.kind for p in signature.parameters.values()}
        if inspect.Parameter.VAR_KEYWORD in kinds:
            bare.append(path)
    assert sorted(bare) == sorted(OWN_PARAMETERS)


def _refusing() -> Iterator[tuple[str, bool]]:
    """Yield the paths of what says which arguments it takes, and whether it is a method."""
    for path, value in PUBLIC.items():
        module, _, name = path.rpartition(".")
        parameters = () if inspect.isclass(value) else inspect.signature(value).parameters
        is_method = "self" in parameters
        is_own = module in ("gf.extend", "gf.errors") or path in OWN_PARAMETERS
        is_within = (name if is_method else path) in WITHIN or module in (
            "gf.Op",
            "gf.errors.Operand",
        )
        is_made = inspect.isclass(value) and (
            name in MADE_BY_FUNCTIONS or inspect.isabstract(value)
        )
        if not (is_own or is_within or is_made) and (inspect.isclass(value) or parameters):
            yield path, is_method


def test_what_an_argument_is_called_is_said():
    paths = dict(_refusing())
    assert len(paths) > 300
    for path, is_method in paths.items():
        owner = [object()] * is_method
        with gf.Graph(), pytest.raises(gf.CallError) as caught:
            PUBLIC[path](*owner, unknown_argument=1)
        assert caught.value.fix, path


def test_a_layer_shows_what_its_call_takes():
    class Own(gf.nn.Module):
        def forward(self, x: gf.Tensor, *others: gf.Tensor, mask: gf.Tensor | None = None) -> None:
            pass

    class Flagged(gf.nn.Module):
        def forward(self, x, training):
            pass

    with gf.Graph():
        linear, attention = gf.nn.Linear(3, 4), gf.nn.MultiHeadAttention(4, 2)
        own, flagged = Own(), Flagged()
    assert list(inspect.signature(linear).parameters) == ["x", "training"]
    named = ["query", "key", "value", "mask", "cache", "training"]
    assert list(inspect.signature(attention).parameters) == named
    assert list(inspect.signature(own).parameters) == ["x", "others", "mask", "training"]
    assert list(inspect.signature(flagged).parameters) == ["x", "training"]
    assert "in_features" in inspect.signature(gf.nn.Linear).parameters


def test_ops_and_initialisers_show_their_options():
    class Twice(gf.Op):
        axis: int
        times: int = 2

    assert str(inspect.signature(Twice)) == "(axis, times=2)"
    with pytest.raises(gf.CallError, match=r"its arguments are: axis, times"):
        Twice(factor=1)
    assert list(inspect.signature(gf.nn.init.normal).parameters) == [
        "shape",
        "dtype",
        "mean",
        "std",
    ]


def test_modules_that_a_package_consists_of_are_hidden():
    assert not hasattr(gf.optim, "adam")
    assert not hasattr(gf.nn, "linear")
    from graphfw.optim import adam

    assert adam.Adam is gf.optim.Adam
