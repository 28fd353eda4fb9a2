"""Philox4x32-10: known answers, the stated order of the stream, and a look at its statistics."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphfw.ops.numerics.philox import _CHUNK, philox_blocks, random_bits, stream_key

MASK = 0xFFFFFFFF
WORDS = st.integers(0, MASK)
KEYS = st.tuples(WORDS, WORDS)
LONG_WORDS = st.integers(0, 2**64 - 1)


def philox(counter: list[int], key: tuple[int, int]) -> list[int]:
    """One block, word by word as the paper states it."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1, c2, c3 = p1 >> 32 ^ c1 ^ k0, p1 & MASK, p0 >> 32 ^ c3 ^ k1, p0 & MASK
        k0, k1 = (k0 + 0x9E3779B9) & MASK, (k1 + 0xBB67AE85) & MASK
    return [c0, c1, c2, c3]


def words_of(blocks: np.ndarray) -> list[int]:
    return [w for pair in blocks.reshape(-1).tolist() for w in (pair & MASK, pair >> 32)]


# The lines "philox4x32 10" of Random123's tests/kat_vectors: counter, key, output.
@pytest.mark.parametrize(
    "line",
    [
        "00000000 00000000 00000000 00000000 00000000 00000000 6627e8d5 e169c58d bc57ac4c 9b00dbd8",
        "ffffffff ffffffff ffffffff ffffffff ffffffff ffffffff 408f276d 41c83b0e a20bc7c6 6d5451fd",
        "243f6a88 85a308d3 13198a2e 03707344 a4093822 299f31d0 d16cfe09 94fdcceb 5001e420 24126ea1",
    ],
)
def test_known_answers(line: str) -> None:
    c0, c1, c2, c3, k0, k1, *want = (int(word, 16) for word in line.split())
    blocks = philox_blocks(np, (k0, k1), c2 | c3 << 32, c0 | c1 << 32, 1)
    assert words_of(blocks) == want


@given(KEYS, LONG_WORDS, st.integers(0, 2**64 - 9), st.integers(0, 9))
def test_blocks_match_the_plain_algorithm(
    key: tuple[int, int], step: int, first: int, count: int
) -> None:
    want = [
        word
        for block in range(first, first + count)
        for word in philox([block & MASK, block >> 32, step & MASK, step >> 32], key)
    ]
    assert words_of(philox_blocks(np, key, step, first, count)) == want


def test_blocks_carry_into_the_second_counter_word() -> None:
    first = 2**32 - 3
    key = (11, 12)
    want = [w for b in range(first, first + 6) for w in philox([b & MASK, b >> 32, 5, 0], key)]
    assert words_of(philox_blocks(np, key, 5, first, 6)) == want


def test_blocks_do_not_depend_on_the_chunks() -> None:
    first, count = 2**32 - _CHUNK - 7, 2 * _CHUNK + 20
    whole = philox_blocks(np, (3, 4), 2**40 + 9, first, count)
    for at in (0, 6, 7, _CHUNK + 6, _CHUNK + 7, 2 * _CHUNK + 7, count - 1):
        one = philox_blocks(np, (3, 4), 2**40 + 9, first + at, 1)
        np.testing.assert_array_equal(whole[at : at + 1], one)


@given(KEYS, LONG_WORDS, st.integers(0, 40), st.sampled_from([1, 2]))
def test_elements_are_words_in_order(key: tuple[int, int], step: int, n: int, words: int) -> None:
    got = random_bits(np, key, step, n, words)
    assert got.shape == (n,)
    assert got.dtype == (np.uint32 if words == 1 else np.uint64)
    w = words_of(philox_blocks(np, key, step, 0, 20))
    want = w[:n] if words == 1 else [w[2 * i] | w[2 * i + 1] << 32 for i in range(n)]
    assert got.tolist() == want


@pytest.mark.parametrize("words", [1, 2])
def test_a_shorter_draw_is_a_prefix(words: int) -> None:
    sizes = np.random.default_rng().integers(0, 9 * _CHUNK, 6)
    whole = random_bits(np, (7, 8), 1, 9 * _CHUNK, words)
    for n in sizes:
        np.testing.assert_array_equal(random_bits(np, (7, 8), 1, n, words), whole[:n])


def test_steps_and_keys_give_different_streams() -> None:
    streams = [
        random_bits(np, key, step, 4096)
        for key in [(0, 0), (1, 0), (0, 1)]
        for step in [0, 1, 2**32, 2**64 - 1]
    ]
    # Of 12 * 4096 random words some 0.3 pairs coincide by chance; a shared stretch would be 4096.
    distinct = np.unique(np.concatenate(streams)).size
    assert distinct > 12 * 4096 - 8


def test_numpy_integers_are_integers() -> None:
    key = (np.uint32(5), np.uint32(MASK))
    got = random_bits(np, key, np.int64(2**40), np.int32(9))
    np.testing.assert_array_equal(got, random_bits(np, (5, MASK), 2**40, 9))


@pytest.mark.parametrize("words", [1, 2])
def test_statistics(words: int) -> None:
    """Fixed key: the limits are five standard deviations, so a right generator passes them."""
    n = 2**18
    x = random_bits(np, stream_key(2024, "statistics"), 3, n, words)
    bits = 32 * words
    u = x / 2.0**bits
    assert abs(u.mean() - 1 / 2) < 5 * np.sqrt(1 / 12 / n)
    assert abs(u.var() - 1 / 12) < 5 * np.sqrt(1 / 180 / n)
    assert abs(np.corrcoef(u[:-1], u[1:])[0, 1]) < 5 / np.sqrt(n)
    for shift in range(0, bits, 8):
        counts = np.bincount((x >> x.dtype.type(shift)) & x.dtype.type(255), minlength=256)
        chi2 = ((counts - n / 256) ** 2 / (n / 256)).sum()
        assert abs(chi2 - 255) < 5 * np.sqrt(2 * 255), shift
    set_bits = np.array([(x >> x.dtype.type(b)).astype(np.uint8) & 1 for b in range(bits)])
    assert np.abs(set_bits.mean(axis=1) - 0.5).max() < 5 * 0.5 / np.sqrt(n)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (((2**32, 0), 0, 1), r"two 32-bit words, got \(4294967296, 0\)"),
        (((0, -1), 0, 1), "two 32-bit words"),
        (((0, 0, 0), 0, 1), "two 32-bit words"),
        (((0, 0), -1, 1), "step must be in .* got -1"),
        (((0, 0), 2**64, 1), "step must be in"),
        (((0, 0), 0, -1), "n must not be negative, got -1"),
        (((0, 0), 0, 1, 3), "words must be 1 or 2, got 3"),
    ],
)
def test_bad_arguments(arguments: tuple[object, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        random_bits(np, *arguments)


@pytest.mark.parametrize(("first", "count"), [(-1, 2), (0, -1), (2**64 - 1, 2)])
def test_blocks_out_of_range(first: int, count: int) -> None:
    with pytest.raises(ValueError, match="are not within"):
        philox_blocks(np, (0, 0), 0, first, count)


def test_arguments_that_are_no_integers() -> None:
    with pytest.raises(TypeError, match="integer"):
        random_bits(np, (0, 0), 0.0, 1)
    with pytest.raises(TypeError, match="integer"):
        random_bits(np, (0, 0), 0, 1.0)


def test_stream_key_is_the_stated_hash() -> None:
    message = (2).to_bytes(8, "little") + (-129).to_bytes(2, "little", signed=True) + b"a/\xc3\xa9"
    digest = hashlib.blake2b(message, digest_size=8).digest()
    want = int.from_bytes(digest[:4], "little"), int.from_bytes(digest[4:], "little")
    assert stream_key(-129, "a/é") == want


def test_stream_key_is_pinned() -> None:
    """Saved states depend on these."""
    assert stream_key(0, "") == (0x5877D9E9, 0xB75DAE30)
    assert stream_key(2**70, "mlp.dropout") == (0x7115213B, 0x3CFF44E1)


def test_stream_keys_are_distinct() -> None:
    large = [sign * (2**b + d) for b in range(6, 5001, 617) for d in (-1, 0, 1) for sign in (1, -1)]
    seeds = [*range(-300, 301), *large]
    paths = ["", "a", "b", "ab", "a.b", "\0", "\0\0", "é"]
    keys = {stream_key(seed, path) for seed in seeds for path in paths}
    assert len(keys) == len(set(seeds)) * len(paths)
    assert all(0 <= k <= MASK for key in keys for k in key)


def test_stream_key_takes_any_integer_and_nothing_else() -> None:
    assert stream_key(np.int64(-5), "p") == stream_key(-5, "p")
    with pytest.raises(TypeError, match="integer"):
        stream_key(1.0, "p")
    with pytest.raises(TypeError, match="path must be a str, got bytes"):
        stream_key(1, b"p")
    with pytest.raises(UnicodeEncodeError):
        stream_key(1, "\ud800")
