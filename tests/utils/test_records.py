from __future__ import annotations

import copy
import pickle
import sys
from collections.abc import Callable
from dataclasses import FrozenInstanceError, dataclass, field, fields, replace
from typing import Any, ClassVar

import pytest

from graphfw.loc import user_frame
from graphfw.utils.records import record


@record
class Point:
    """A point.

    The tests below ask of it what they ask of `Frozen`.
    """

    x: int
    y: tuple[int, ...] = ()
    names: list[str] = field(default_factory=list, compare=False, repr=False)
    scale: float = field(default=1.0, kw_only=True)
    origin: ClassVar[int] = 0


@dataclass(frozen=True)
class Frozen:
    x: int
    y: tuple[int, ...] = ()
    names: list[str] = field(default_factory=list, compare=False, repr=False)
    scale: float = field(default=1.0, kw_only=True)
    origin: ClassVar[int] = 0


@record
class Deep(Point):
    z: int = 5


@record(eq=False)
class Entity:
    x: int


BOTH = pytest.mark.parametrize("kind", [Point, Frozen])


@BOTH
def test_objects_are_as_those_of_a_dataclass(kind: Callable[..., Any]) -> None:
    one = kind(1, (2,), scale=3.0)
    assert (one.x, one.y, one.names, one.scale, one.origin) == (1, (2,), [], 3.0, 0)
    assert repr(one) == f"{kind.__name__}(x=1, y=(2,), scale=3.0)"
    assert one == kind(x=1, y=(2,), names=["a"], scale=3.0)
    assert hash(one) == hash(kind(1, (2,), ["b"], scale=3.0)) == hash((1, (2,), 3.0))
    assert one != kind(1, (2,))
    assert one != (1, (2,), 3.0)
    assert kind(1).names is not kind(1).names
    assert [f.name for f in fields(one)] == ["x", "y", "names", "scale"]
    assert replace(one, x=7) == kind(7, (2,), scale=3.0)
    assert kind.__match_args__ == ("x", "y", "names")  # type: ignore[attr-defined]  # made
    assert copy.deepcopy(one) == one == pickle.loads(pickle.dumps(one))


@BOTH
def test_they_cannot_be_changed(kind: Callable[..., Any]) -> None:
    one = kind(1)
    with pytest.raises(FrozenInstanceError):
        one.x = 2
    with pytest.raises(FrozenInstanceError):
        one.other = 2
    with pytest.raises(FrozenInstanceError):
        del one.x
    assert one.x == 1


@BOTH
@pytest.mark.parametrize("arguments", [(), (1, (), [], 2.0)])
def test_arguments_are_checked(kind: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    with pytest.raises(TypeError, match="__init__"):
        kind(*arguments)
    with pytest.raises(TypeError, match="unexpected"):
        kind(1, other=2)


def test_records_have_the_fields_of_their_bases() -> None:
    assert repr(Deep(1, z=2)) == "Deep(x=1, y=(), scale=1.0, z=2)"
    assert Deep(1) == Deep(1, (), [], 5) != Point(1)


def test_records_and_frozen_dataclasses_inherit_from_each_other() -> None:
    @dataclass(frozen=True)
    class Below(Point):
        z: int = 0

    @record
    class Above(Frozen):
        z: int = 0

    for kind in (Below, Above):
        one = kind(1, z=2)
        assert (one.x, one.z, one == kind(1, z=2), one == kind(1)) == (1, 2, True, False)
        with pytest.raises(FrozenInstanceError):
            one.z = 3  # type: ignore[misc]  # the mistake


def test_without_equality_an_object_equals_itself() -> None:
    one = Entity(1)
    assert one == one != Entity(1)
    assert len({one, Entity(1)}) == 2


def test_methods_of_the_class_stay() -> None:
    @record
    class Checked:
        x: int

        def __post_init__(self) -> None:
            if self.x < 0:
                raise ValueError("negative")

        def __repr__(self) -> str:
            return "own"

        def __hash__(self) -> int:
            return 7

    assert repr(Checked(1)) == "own"
    assert (hash(Checked(1)), Checked(1) == Checked(1)) == (7, True)
    with pytest.raises(ValueError, match="negative"):
        Checked(-1)


def test_errors_show_the_callers_line() -> None:
    seen: list[Any] = []

    @record
    class Looking:
        def __post_init__(self) -> None:
            seen.append(sys._getframe(1).f_globals["__name__"])
            seen.append(user_frame())

    Looking()
    assert seen[0] == __name__
    assert seen[1] is not None
    assert seen[1].f_code.co_name == "__post_init__"
