"""Faults of kernels, found on the CPU: races, accesses out of place, undefined C++.

With GRAPHFW_TEST_CHECK=1 kernels are compiled so that `cuda_checks.h` sees each of their accesses;
another number has threads take turns in another order. A launch in which something is found fails,
and says what, where, and which threads have to do with it.
"""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

FLAGS = [
    "-g1",
    "-fsanitize=thread,shift,alignment,bounds,signed-integer-overflow,integer-divide-by-zero",
    "-fsanitize=float-cast-overflow,bool",
    "-ftrivial-auto-var-init=pattern",  # what is read before it is set shows in results
    "-fno-gnu-unique",  # two modules have a block's memory of their own each
]
"""The compiler's flags for kernels that are checked."""

_WIDTH = 120
"""The number of characters of a line of code that are shown."""

_VARIABLES = "bBdDuVv"
"""The letters by which `nm` marks variables."""

_GIVEN, _FRESH, _ONLY_READ, _OWN = range(4)
_SIZES = {"char": 1, "unsigned char": 1, "signed char": 1, "short": 2, "unsigned short": 2}
_SIZES |= {"gf_half": 2, "gf_bf16": 2, "int": 4, "unsigned": 4, "float": 4}


def seed() -> int:
    """Return in which order threads take turns where kernels are checked; 0: they are not."""
    return int(os.environ.get("GRAPHFW_TEST_CHECK") or 0)


class Room(NamedTuple):
    """Memory that a launch is given.

    Attributes:
        begin: Its address.
        nbytes: How much it is.
        is_fresh: Whether nothing is there yet that a kernel may read.
    """

    begin: int
    nbytes: int
    is_fresh: bool = False

    @property
    def end(self) -> int:
        """The end of the range."""
        return self.begin + self.nbytes

    def has(self, address: int) -> bool:
        """Whether an address lies in it."""
        return self.begin <= address < self.end


class Pointer(NamedTuple):
    """An argument of a kernel that is an address.

    Attributes:
        name: The parameter's.
        kind: What it points to.
        address: The argument.
    """

    name: str
    kind: str
    address: int


class _Region(ctypes.Structure):
    _fields_ = (
        ("begin", ctypes.c_size_t),
        ("size", ctypes.c_size_t),
        ("grain", ctypes.c_uint),
        ("kind", ctypes.c_uint),
    )


class _Party(ctypes.Structure):
    _fields_ = (("site", ctypes.c_size_t), ("block", ctypes.c_uint), ("thread", ctypes.c_uint))


class _Fault(ctypes.Structure):
    _fields_ = (
        ("what", ctypes.c_char_p),
        ("address", ctypes.c_size_t),
        ("size", ctypes.c_size_t),
        ("now", _Party),
        ("before", _Party),
        ("callers", ctypes.c_size_t * 4),
    )


class Checks:
    """The checks of one module's kernels.

    Attributes:
        own: Variables that are a block's own memory: the name, the address, and the bytes of each.

    Args:
        machine: The library that runs threads.
        path: Where the module's library lies.
        text: What it was compiled from.
        function: The name of one of its functions, and where that lies.
    """

    def __init__(
        self, machine: ctypes.CDLL, path: Path, text: str, function: tuple[str, int]
    ) -> None:
        self._machine = machine
        self._path = path
        self._lines = text.splitlines()
        symbols = {
            fields[-1]: fields for fields in [line.split() for line in _run("nm", "-S", path)]
        }
        name, address = function
        self._begin = address - int(symbols[name][0], 16)
        self._locations: dict[int, str] = {}
        variables = {name: fields for name, fields in symbols.items() if fields[-2] in _VARIABLES}
        names = [name for name in variables if name.startswith("_ZZ")]  # those of functions
        self.own: list[tuple[str, int, int]] = []
        for name, plain in zip(names, _run("c++filt", *names) if names else [], strict=True):
            begin, size = [int(number, 16) for number in symbols[name][:2]]
            self.own.append((_short(plain), self._begin + begin, size))

    def prepare(self, pointers: Sequence[Pointer], rooms: Sequence[Room]) -> None:
        """Say what the next launch may access: what its arguments point to."""
        regions = [_Region(begin, size, 1, _OWN) for _, begin, size in self.own]
        for room in rooms:
            kinds = [pointer.kind for pointer in pointers if room.has(pointer.address)]
            if not kinds:
                continue
            grain = min([_SIZES.get(kind.removeprefix("const "), 8) for kind in kinds])
            is_read = all([kind.startswith("const ") for kind in kinds])
            kind = _FRESH if room.is_fresh else _ONLY_READ if is_read else _GIVEN
            regions.append(_Region(room.begin, room.nbytes, grain, kind))
        flag = [pointer.address for pointer in pointers if pointer.name == "failed"]
        given = (_Region * len(regions))(*regions)
        check = self._machine.gf_check
        check.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_uint]
        check(given, len(regions), flag[0] if flag else None, seed())

    def found(self, pointers: Sequence[Pointer], rooms: Sequence[Room], shared: int) -> str:
        """Return the faults of the last launch; "" where there are none."""
        begin, dynamic = ctypes.POINTER(_Fault)(), ctypes.c_size_t()
        self._machine.gf_faults.restype = ctypes.c_size_t
        count = self._machine.gf_faults(ctypes.byref(begin), ctypes.byref(dynamic))
        known = [*self.own, ("the block's memory", dynamic.value, shared)]
        for room in rooms:
            known += [
                (one.name, one.address, room.end - one.address)
                for one in pointers
                if room.has(one.address)
            ]
        lines = []
        for fault in begin[:count]:
            what = fault.what.decode()
            if fault.address:
                what += f": {fault.size} bytes {_where(fault.address, known)}"
            lines += [what, f"    {self._party(fault.now)}"]
            locations = [self._location(site) for site in fault.callers if site]
            lines += [f"        called by {location}" for location in locations]
            if fault.before.site:
                lines.append(f"    and {self._party(fault.before)}")
        return "\n".join(lines)

    def _party(self, party: _Party) -> str:
        return f"thread {party.thread} of block {party.block}, {self._location(party.site)}"

    def _location(self, site: int) -> str:
        """Return the function and the line of code behind which an address is."""
        if site not in self._locations:
            address = hex(site - 1 - self._begin)
            function, line = _run("addr2line", "-f", "-C", "-e", self._path, address)
            number = re.search(r":([1-9]\d*)", line)
            text = self._lines[int(number[1]) - 1].strip() if number else "?"
            self._locations[site] = f"{_short(function)}: {text}"[:_WIDTH]
        return self._locations[site]


def _run(program: str, *arguments: str | Path) -> list[str]:
    command = [program, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


def _where(address: int, known: Sequence[tuple[str, int, int]]) -> str:
    """Return where an address lies, or beside what."""
    inside = [one for one in known if one[1] <= address < one[1] + one[2]]
    if inside:
        name, begin, _ = max(inside, key=lambda one: one[1])
        return f"at {name} + {address - begin}"
    name, begin, size = min(
        known, key=lambda one: min(abs(address - one[1]), abs(address - one[1] - one[2]))
    )
    if address < begin:
        return f"{begin - address} before {name}"
    return f"{address - begin - size} behind {name}, which has {size}"


def _short(name: str) -> str:
    """Return the name of a function or a variable without what templates and arguments are.

    >>> _short("gf_block::join<gf_sum<float> >(gf_sum<float>::S)::found")
    'gf_block::join::found'
    """
    while (shorter := re.sub(r"<[^<>]*>|\([^()]*\)", "", name)) != name:
        name = shorter
    return name.split()[-1] if name.split() else name
