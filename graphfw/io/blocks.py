"""Arrays on their way to a file and from one: blocks of 1 MiB, each with its checksum.

A block is read and its checksum computed, or computed and written, while a cache has it, so that
memory is gone through once. Several threads share the blocks of large files.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from io import FileIO
from typing import Any, TypeAlias

import numpy as np

from graphfw.io.crc32 import Bytes, bytes_of, crc32_for

BLOCK_BYTES = 1 << 20
_PARALLEL_BYTES = 16 << 20
"""The smallest number of bytes on which several threads work."""
_MOST_THREADS = 8

_Arrays: TypeAlias = "Mapping[str, np.ndarray[Any, Any]]"


def read_blocks(
    file: FileIO, arrays: _Arrays, positions: Mapping[str, int], *, checked: bool
) -> dict[str, list[str]]:
    """Fill arrays from a file.

    Args:
        file: The file, not buffered.
        arrays: The arrays, C-contiguous, by name.
        positions: Where in the file the bytes of each begin.
        checked: Whether checksums are wanted.

    Returns:
        The checksums of each array's blocks, 8 hexadecimal digits each; "" where none are wanted.

    Raises:
        OSError: The file can't be read, or has become shorter.
    """
    crc32 = crc32_for(_nbytes(arrays)) if checked else None
    read_at = _reader(file)

    def read(content: Bytes, position: int) -> str:
        done = 0
        while done < content.size:
            count = read_at(content[done:], position + done)
            if not count:
                raise OSError("it has become shorter while it was read")
            done += count
        return "" if crc32 is None else f"{crc32(content):08x}"

    return _each_block(arrays, positions, read)


def write_blocks(
    file: FileIO, arrays: _Arrays, positions: Mapping[str, int]
) -> dict[str, list[str]]:
    """Write arrays, C-contiguous, to a file; return the checksums of each one's blocks.

    Raises:
        OSError: The file can't be written.
    """
    crc32 = crc32_for(_nbytes(arrays))
    write_at = _writer(file)

    def write(content: Bytes, position: int) -> str:
        checksum = f"{crc32(content):08x}"
        done = 0
        while done < content.size:
            done += write_at(content[done:], position + done)
        return checksum

    return _each_block(arrays, positions, write)


def block_count(nbytes: int) -> int:
    """Return how many blocks an array of so many bytes has."""
    return -(-nbytes // BLOCK_BYTES)


def _each_block(
    arrays: _Arrays, positions: Mapping[str, int], act: Callable[[Bytes, int], str]
) -> dict[str, list[str]]:
    """Return a function's results for all blocks, given their bytes and offsets in the file.

    It is called by several threads where there is much to do.
    """
    found = {name: [""] * block_count(array.nbytes) for name, array in arrays.items()}
    todo: deque[tuple[list[str], int, Bytes, int]] = deque()
    for name in sorted(arrays, key=positions.__getitem__):
        content = bytes_of(arrays[name])
        for number in range(len(found[name])):
            first = number * BLOCK_BYTES
            block = content[first : first + BLOCK_BYTES]
            todo.append((found[name], number, block, positions[name] + first))

    def work() -> None:
        while True:
            try:
                results, number, block, position = todo.popleft()
            except IndexError:
                return
            results[number] = act(block, position)

    threads = min(os.cpu_count() or 1, _MOST_THREADS)
    if threads == 1 or _nbytes(arrays) < _PARALLEL_BYTES:
        work()
        return found
    with ThreadPoolExecutor(threads) as pool:
        workers = [pool.submit(work) for _ in range(threads)]
        try:
            for worker in workers:
                worker.result()
        except BaseException:
            todo.clear()  # so that the others end, too
            raise
    return found


def _nbytes(arrays: _Arrays) -> int:
    return sum(array.nbytes for array in arrays.values())


def _reader(file: FileIO) -> Callable[[Bytes, int], int]:
    """Return a function that reads bytes from a position on, as many as it can, and says how many.

    Several threads may call it at once.
    """
    if hasattr(os, "preadv"):
        descriptor = file.fileno()
        return lambda content, position: os.preadv(descriptor, [content.data], position)
    lock = threading.Lock()

    def read_at(content: Bytes, position: int) -> int:
        with lock:
            file.seek(position)
            return file.readinto(content.data) or 0

    return read_at


def _writer(file: FileIO) -> Callable[[Bytes, int], int]:
    """Return a function that writes bytes from a position on, as `_reader` returns one."""
    if hasattr(os, "pwrite"):
        descriptor = file.fileno()
        return lambda content, position: os.pwrite(descriptor, content.data, position)
    lock = threading.Lock()

    def write_at(content: Bytes, position: int) -> int:
        with lock:
            file.seek(position)
            return file.write(content.data) or 0

    return write_at
