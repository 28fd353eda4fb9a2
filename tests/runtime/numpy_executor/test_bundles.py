from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from graphfw.runtime.cache import Cache
from graphfw.runtime.numpy_executor import bundles
from graphfw.runtime.numpy_executor.bundles import Bundle, collect
from graphfw.runtime.numpy_executor.engine import Engine
from graphfw.runtime.numpy_executor.names import name_of
from tests.runtime.numpy_executor.small_code import SmallCode, constant
from tests.runtime.numpy_executor.test_engine import muted, value


@dataclass(frozen=True)
class Calling:
    """A code that returns what another returns."""

    callee: SmallCode

    @property
    def key(self) -> str:
        return f"test calling {self.callee}"

    @property
    def callees(self) -> tuple[SmallCode, ...]:
        return (self.callee,)

    def llvm(self, symbol: str) -> str:
        name, types = name_of(self.callee), "ptr, ptr, i64, ptr"
        return (
            f"declare i32 @{name}({types})\n"
            f"define i32 @{symbol}(ptr %b, ptr %p, i64 %work_item, ptr %s) {{\n"
            f"  %x = call i32 @{name}(ptr %b, ptr %p, i64 %work_item, ptr %s)\n  ret i32 %x\n}}\n"
        )


def bundle(defines: str, calls: str = "") -> Bundle:
    return Bundle(tuple(defines.split()), tuple(calls.split()), f"of {defines}\n\n".encode())


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path)


def test_functions_are_found_with_all_that_they_call(cache: Cache) -> None:
    first, second, other = bundle("a b", "c"), bundle("c d", "a"), bundle("e")
    for one in (first, second, other):
        bundles.keep(cache, one)
    assert collect(cache, ["b"], ()) == ([first, second], [])
    assert collect(cache, ["d", "e", "x"], ()) == ([second, first, other], ["x"])
    assert collect(cache, ["b"], {"c"}) == ([first], [])
    assert collect(cache, ["b"], {"b"}) == ([], [])


def test_what_calls_something_lost_counts_as_lost(cache: Cache) -> None:
    bundles.keep(cache, bundle("a", "gone"))
    assert collect(cache, ["a"], ()) == ([], ["a"])
    assert collect(cache, ["a"], {"gone"}) == ([bundle("a", "gone")], [])


def test_no_function_is_defined_twice(cache: Cache) -> None:
    first, second = bundle("a b"), bundle("b c")
    bundles.keep(cache, first)
    bundles.keep(cache, second)
    assert collect(cache, ["a", "b", "c"], ()) == ([first], ["c"])
    assert collect(cache, ["b", "c"], ()) == ([second], [])


def test_what_comes_with_others_is_not_compiled_again(cache: Cache) -> None:
    bundles.keep(cache, bundle("a b"))
    bundles.keep(cache, bundle("a", "gone"))
    assert collect(cache, ["a", "b"], ()) == ([bundle("a b")], [])


def test_functions_that_others_call_are_compiled_once(cache: Cache) -> None:
    codes = [Calling(constant(51)), Calling(constant(52)), constant(51)]
    first = Engine(cache)
    made = first.addresses(codes)
    assert [value(a) for a in made] == [51, 52, 51]
    later = Engine(cache)
    assert value(*later.addresses([muted(constant(51))])) == 51
    again = later.addresses([Calling(muted(constant(51))), Calling(constant(53))])
    assert [value(a) for a in again] == [51, 53]
