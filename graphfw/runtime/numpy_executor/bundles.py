"""Machine code on disk: bundles of functions that were compiled together.

A function takes a millisecond or two more by itself than beside others. So a bundle holds
several, and under the name of each function lies the name of the bundle that it is in.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import NamedTuple

from graphfw.runtime.cache import Cache
from graphfw.utils.hashing import blake2b


class Bundle(NamedTuple):
    """Machine code of functions.

    Attributes:
        defines: Their names.
        calls: The names of the functions of other bundles that they call.
        content: The object file.
    """

    defines: tuple[str, ...]
    calls: tuple[str, ...]
    content: bytes

    @property
    def name(self) -> str:
        """The name that it is kept under."""
        return "gb_" + blake2b(" ".join(self.defines).encode(), digest_size=20).hexdigest()


def keep(cache: Cache, bundle: Bundle) -> None:
    """Keep a bundle on disk."""
    names = " ".join(bundle.defines), " ".join(bundle.calls)
    cache.store(bundle.name, "\n".join((*names, "")).encode() + bundle.content)
    for name in bundle.defines:
        cache.store(name, bundle.name.encode())


def collect(
    cache: Cache, names: Iterable[str], loaded: Container[str]
) -> tuple[list[Bundle], list[str]]:
    """Return the bundles in which functions lie, with all that these call.

    Args:
        cache: Where they are kept.
        names: Of the functions.
        loaded: Those that are not needed any more.

    Returns:
        The bundles, of which no two define the same, and the names of the functions that are not in
        them.
    """
    found: dict[str, Bundle] = {}
    absent: list[str] = []
    for name in names:
        if name not in loaded and name not in found:
            more = _closure(cache, name, found, loaded)
            if more is None:
                absent.append(name)
            else:
                found.update(more)
    bundles = {bundle.name: bundle for bundle in found.values()}
    # What could not be found by its own name may have come with something else.
    return list(bundles.values()), [name for name in absent if name not in found]


def _closure(
    cache: Cache, name: str, found: dict[str, Bundle], loaded: Container[str]
) -> dict[str, Bundle] | None:
    """Return the bundle of a function and those that it needs, under all that they define."""
    more: dict[str, Bundle] = {}
    todo = [name]
    while todo:
        needed = todo.pop()
        if needed in loaded or needed in found or needed in more:
            continue
        address = cache.load(needed)
        bundle = (
            None if address is None else _restored(cache.load(address.decode("ascii", "replace")))
        )
        if bundle is None or needed not in bundle.defines:
            return None
        if any([own in found or own in more for own in bundle.defines]):
            return None  # two processes have compiled one function, each beside others
        more.update(dict.fromkeys(bundle.defines, bundle))
        todo.extend(bundle.calls)
    return more


def _restored(stored: bytes | None) -> Bundle | None:
    if stored is None or stored.count(b"\n", 0) < 2:
        return None
    defines, calls, content = stored.split(b"\n", 2)
    return Bundle(tuple(defines.decode().split()), tuple(calls.decode().split()), content)
