"""The arena: blocks that are needed together never overlap, and memory is used again."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphfw.runtime.planning.arena import ALIGNMENT, Arena, Block

SIZES = st.sampled_from([0, 1, 63, 64, 65, 1000, 4096, 100_000])


@st.composite
def problems(draw):
    """Blocks, their sizes in the first run, and in two others."""
    count = draw(st.integers(0, 30))
    starts = draw(st.lists(st.integers(0, 12), min_size=count, max_size=count))
    blocks = [Block(first, first + draw(st.integers(0, 6))) for first in starts]
    return blocks, [draw(st.lists(SIZES, min_size=count, max_size=count)) for _ in range(3)]


def rounded(size):
    return -(-size // ALIGNMENT) * ALIGNMENT


def assert_apart(blocks, sizes, offsets, total):
    for number, (a, size, offset) in enumerate(zip(blocks, sizes, offsets, strict=True)):
        assert offset % ALIGNMENT == 0
        assert 0 <= offset <= offset + size <= total
        for b, other_size, other in list(zip(blocks, sizes, offsets, strict=True))[:number]:
            together = a.first <= b.last and b.first <= a.last
            if together and size and other_size:
                assert offset + size <= other or other + other_size <= offset


def lower_bound(blocks, sizes):
    levels = range(max((b.last for b in blocks), default=-1) + 1)
    return max(
        (
            sum(rounded(s) for b, s in zip(blocks, sizes, strict=True) if b.first <= n <= b.last)
            for n in levels
        ),
        default=0,
    )


@given(problems())
def test_blocks_that_are_needed_together_never_overlap_at_any_sizes(problem):
    blocks, runs = problem
    arena = Arena(blocks, runs[0])
    for sizes in (*runs, [0] * len(blocks), runs[0]):
        offsets, total = arena.offsets(sizes)
        assert_apart(blocks, sizes, offsets, total)
        assert total >= lower_bound(blocks, sizes)


def test_nothing_to_place():
    assert Arena([], []).offsets([]) == ([], 0)


def test_a_chain_needs_two_blocks_however_long_it_is():
    blocks = [Block(i, i + 1) for i in range(100)]
    arena = Arena(blocks, [1000] * 100)
    for size in (1000, 64, 5000):
        assert arena.offsets([size] * 100)[1] == 2 * rounded(size)


def test_memory_of_dead_blocks_is_joined():
    """Two small ones that lie side by side make room for a large one."""
    blocks = [Block(0, 0), Block(0, 0), Block(0, 2), Block(1, 2)]
    offsets, total = Arena(blocks, [640, 640, 64, 1280]).offsets([640, 640, 64, 1280])
    assert total == 1280 + 64
    assert_apart(blocks, [640, 640, 64, 1280], offsets, total)


def test_blocks_of_one_level_are_apart_though_one_is_read_and_one_is_written():
    blocks = [Block(0, 1), Block(1, 2)]
    offsets, _ = Arena(blocks, [64, 64]).offsets([64, 64])
    assert offsets[0] != offsets[1]


def test_a_block_of_no_bytes_in_the_first_run_has_room_in_the_next():
    blocks = [Block(0, 3), Block(0, 3), Block(1, 2)]
    arena = Arena(blocks, [0, 0, 0])
    sizes = [100, 200, 300]
    assert_apart(blocks, sizes, *arena.offsets(sizes))


@pytest.mark.parametrize("scale", [1, 7])
def test_training_comes_near_the_lower_bound(rng, scale):
    """Activations live from the forward pass to the backward pass, as in a stack."""
    depth = 60
    sizes = [int(s) * 64 for s in rng.integers(1, 2000, depth)]
    blocks = [Block(i, 2 * depth - i) for i in range(depth)]
    blocks += [Block(depth + i, depth + i + 2) for i in range(1, depth)]
    sizes += [int(s) * 64 for s in rng.integers(1, 2000, depth - 1)]
    offsets, total = Arena(blocks, sizes).offsets([scale * s for s in sizes])
    assert total <= 1.1 * lower_bound(blocks, [scale * s for s in sizes])


def test_random_lifetimes_come_near_the_lower_bound(rng):
    ratios = []
    for _ in range(20):
        firsts = rng.integers(0, 100, 150)
        blocks = [
            Block(int(a), int(a + d)) for a, d in zip(firsts, rng.integers(0, 9, 150), strict=True)
        ]
        sizes = [int(s) for s in np.exp(rng.uniform(4, 14, 150))]
        ratios.append(Arena(blocks, sizes).offsets(sizes)[1] / lower_bound(blocks, sizes))
    assert np.median(ratios) < 1.2
    assert max(ratios) < 1.6
