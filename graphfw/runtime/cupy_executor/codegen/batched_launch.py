"""Several launches of one kernel as one: what is small takes longer to be launched than to run.

The updates of a hundred biases, or their copies in 16 bits, are such. The kernel is given the
arguments of several launches; blocks with the same `blockIdx.y` do what one of these would.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from graphfw.runtime.kernels.handwritten_cuda import Launch

TOGETHER = (
    *("elements", "vector", "single", "across"),
    *("warp", "warp_vector", "block", "block_vector"),
)
"""The variants that may do several launches at once: no block has to do with another."""

MANY = "_many"
"""The suffix of their names then."""

_SMALL = 256
"""A launch of more blocks keeps a GPU busy by itself."""

_MOST = 16
_ARGUMENTS = 480
"""A kernel is given 4 KB of arguments at most, each of 8 bytes; some are for all launches."""


def kind_of(launch: Launch) -> tuple[object, ...] | None:
    """Return the key of launches that can become one; None where a launch stays one."""
    is_plain = launch.pieces == 1 and not (launch.scratch or launch.counters)
    if not is_plain or launch.variant not in TOGETHER or not 0 < launch.grid <= _SMALL:
        return None
    return launch.variant, launch.block, launch.is_wide


def most(arguments: int) -> int:
    """Return how many launches may become one, if each has so many arguments of its own.

    >>> most(3), most(40), most(200)
    (16, 12, 2)
    """
    return max(1, min(_MOST, _ARGUMENTS // max(arguments, 1)))


def joined(launches: Sequence[Launch]) -> Launch:
    """Return the launch that several become."""
    first = launches[0]
    return first._replace(
        variant=f"{first.variant}{MANY}",
        grid=max([launch.grid for launch in launches]),
        pieces=len(launches),
        shared=max([launch.shared for launch in launches]),
    )


def together_lines(
    name: str,
    bound: str,
    call: str,
    parameters: Sequence[str],
    shared: Sequence[str],
    guard: Sequence[str],
) -> Iterator[str]:
    """Yield the lines of the function that does what several launches would.

    Args:
        name: What it is called.
        bound: Its launch bounds.
        call: What one of the launches calls.
        parameters: Each launch's own, buffers first, as "type name".
        shared: Those that are the same for all.
        guard: Lines that come first.
    """
    count = most(len(parameters))
    kinds = [text.rsplit(" ", 1) for text in parameters]
    own_parameters = [
        f"{kind} {own}_{n}" for n in range(count) for kind, own in kinds if own[0] == "b"
    ]
    own_parameters += [
        f"{kind} {own}_{n}" for n in range(count) for kind, own in kinds if own[0] != "b"
    ]
    yield f'extern "C" __global__ void {bound} {name}({", ".join([*own_parameters, *shared])}) {{'
    yield from guard
    for text in parameters:
        yield f"    {text};"
    yield "    switch (blockIdx.y) {"
    for n in range(count):
        sets = " ".join([f"{own} = {own}_{n};" for _, own in kinds])
        yield f"    {'default' if n == count - 1 else f'case {n}'}: {sets} break;"
    yield "    }"
    names = ", ".join([*[own for _, own in kinds], *[text.split()[-1] for text in shared]])
    yield f"    {call}({names});"
    yield "}"
