"""Random bits from the counter-based generator Philox4x32-10.

J. K. Salmon, M. A. Moraes, R. O. Dror, D. E. Shaw, "Parallel random numbers: as easy as 1, 2, 3",
SC 2011. A bijection, chosen by a 64-bit key, maps a 128-bit counter to four random 32-bit words.
So any element of any stream can be computed alone, in any order and on any device.

The stream of a `key` at a `step` is fixed here, once for all executors:

* The words come in blocks of four. Block b is the Philox output for the counter
  (b mod 2^32, b div 2^32, step mod 2^32, step div 2^32), first counter word first.
* Of 32-bit elements, element i is word i mod 4 of block i div 4.
* Of 64-bit elements, element i is made of words 2 i and 2 i + 1, the low one first.

`xp` is an array module (NumPy or CuPy); the bits are the same.
"""

from __future__ import annotations

import operator
from typing import Any

from graphfw.utils.hashing import blake2b

__all__ = ["philox_blocks", "random_bits", "stream_key"]

_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_KEY_INCREMENTS = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10
_MASK = 0xFFFFFFFF

# Blocks worked on at a time: small enough for the temporaries (32 bytes a block) to stay in a
# core's cache, large enough to drown the cost of calling NumPy. A power of two, so that a chunk
# never straddles a change of the counter's second word.
_CHUNK = 2**13


def stream_key(seed: int, path: str) -> tuple[int, int]:
    """The Philox key of the random stream at `path` under `seed`: two 32-bit words.

    Any integer is a seed, of any sign and size; different (seed, path) have different keys up to
    the collisions of a 64-bit hash (BLAKE2b of the length of the seed's two's complement
    representation in 8 bytes, that representation, and the path in UTF-8; little-endian).

    Raises:
        TypeError: seed is not an integer, or path not a string.
        UnicodeEncodeError: path has lone surrogates.

    >>> stream_key(0, "mlp.dropout") == stream_key(0, "mlp.dropout") != stream_key(1, "mlp.dropout")
    True
    """
    if not isinstance(path, str):
        raise TypeError(f"path must be a str, got {type(path).__name__}")
    seed = operator.index(seed)
    size = seed.bit_length() // 8 + 1  # one bit more than the magnitude: the sign
    message = size.to_bytes(8, "little") + seed.to_bytes(size, "little", signed=True)
    digest = blake2b(message + path.encode(), digest_size=8).digest()
    return int.from_bytes(digest[:4], "little"), int.from_bytes(digest[4:], "little")


def random_bits(xp: Any, key: tuple[int, int], step: int, n: int, words: int = 1) -> Any:
    """The first n elements of the stream of `key` at `step`: [n], every bit uniform.

    Args:
        xp: the array module.
        key: two 32-bit words, from `stream_key`.
        step: 0 <= step < 2^64; each step has a stream of its own.
        n: how many elements.
        words: 32-bit words an element: 1 gives uint32, 2 gives uint64.

    Raises:
        TypeError: an argument is not an integer.
        ValueError: an argument is out of its range.

    >>> import numpy as np
    >>> [hex(w) for w in random_bits(np, (0, 0), 0, 3)]
    ['0x6627e8d5', '0xe169c58d', '0xbc57ac4c']
    >>> [hex(w) for w in random_bits(np, (0, 0), 0, 1, words=2)]
    ['0xe169c58d6627e8d5']
    """
    n = operator.index(n)
    if n < 0:
        raise ValueError(f"n must not be negative, got {n}")
    if words not in (1, 2):
        raise ValueError(f"words must be 1 or 2, got {words}")
    count = -(-n * words // 4)
    blocks = philox_blocks(xp, key, step, 0, count)
    dtype = xp.uint32 if words == 1 else xp.uint64
    return blocks.reshape(-1).view(dtype)[:n]


def philox_blocks(xp: Any, key: tuple[int, int], step: int, first: int, count: int) -> Any:
    """Blocks `first` to `first + count - 1` of the stream of `key` at `step`.

    -> uint64 [count, 2]: words 0 and 1, then words 2 and 3, each pair low word first.

    Raises:
        TypeError: an argument is not an integer.
        ValueError: a key word is not in [0, 2^32), or step or a block number not in [0, 2^64).
    """
    # As Python's integers: NumPy's would overflow below.
    key_words = [operator.index(k) for k in key]
    step, first, count = operator.index(step), operator.index(first), operator.index(count)
    if len(key_words) != 2 or not all(0 <= k <= _MASK for k in key_words):
        raise ValueError(f"key must be two 32-bit words, got {key}")
    if not 0 <= step < 2**64:
        raise ValueError(f"step must be in [0, 2**64), got {step}")
    if first < 0 or count < 0 or first + count > 2**64:
        raise ValueError(f"blocks {first} to {first + count} are not within [0, 2**64)")
    # The round keys, each word already in the upper half, where it is used.
    k0, k1 = key_words
    w0, w1 = _KEY_INCREMENTS
    keys = [(((k0 + r * w0) & _MASK) << 32, ((k1 + r * w1) & _MASK) << 32) for r in range(_ROUNDS)]
    out = xp.empty((count, 2), dtype=xp.uint64)
    done = 0
    while done < count:
        block = first + done
        size = min(count - done, _CHUNK - block % _CHUNK)
        _fill(xp, out[done : done + size], keys, step, block)
        done += size
    return out


def _fill(xp: Any, out: Any, keys: list[tuple[int, int]], step: int, first: int) -> None:
    """Write blocks first, first + 1, ... to `out`: [m, 2]; they agree in the upper 32 bits.

    With the 64-bit products p0 = m0 c0 and p1 = m1 c2, one round maps the words (c0, c1, c2, c3)
    to (hi(p1) ^ c1 ^ k0, lo(p1), hi(p0) ^ c3 ^ k1, lo(p0)). Kept as the two packed values
    a = (c0, c1) and b = (c2, c3), upper half first, that is

        a' = m1 (b >> 32) ^ (a << 32) ^ (k0 << 32)      b' = m0 (a >> 32) ^ (b << 32) ^ (k1 << 32)

    which needs no masks: what a shift to the left pushes out is what the round drops.
    """
    m0, m1 = _MULTIPLIERS
    word = xp.uint64  # NumPy and CuPy differ on Python integers beyond int64

    # Only c0 varies between the blocks, so after one round a is still the same for all, and the
    # first two rounds cost little.
    a1 = (m1 * (step & _MASK)) ^ (first >> 32 << 32) ^ keys[0][0]
    c0 = first & _MASK
    counters = xp.arange(c0, c0 + out.shape[0], dtype=word)
    b1 = counters * word(m0) ^ word((step >> 32 << 32) ^ keys[0][1])
    state = xp.empty((2, out.shape[0]), dtype=word)
    a, b = state
    a[:] = (b1 >> word(32)) * word(m1) ^ word(((a1 & _MASK) << 32) ^ keys[1][0])
    b[:] = (b1 << word(32)) ^ word((m0 * (a1 >> 32)) ^ keys[1][1])

    upper = xp.empty_like(state)
    upper_a, upper_b = upper
    for k0, k1 in keys[2:]:
        xp.right_shift(state, word(32), out=upper)
        xp.left_shift(state, word(32), out=state)
        xp.multiply(upper_a, word(m0), out=upper_a)
        xp.multiply(upper_b, word(m1), out=upper_b)
        xp.bitwise_xor(a, word(k0), out=a)
        xp.bitwise_xor(b, word(k1), out=b)
        xp.bitwise_xor(a, upper_b, out=a)
        xp.bitwise_xor(b, upper_a, out=b)

    xp.right_shift(state, word(32), out=upper)
    xp.left_shift(state, word(32), out=state)
    xp.bitwise_or(a, upper_a, out=out[:, 0])  # the first word of a pair leaves as the low one
    xp.bitwise_or(b, upper_b, out=out[:, 1])
