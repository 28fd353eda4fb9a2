"""`blake2b` without `hashlib`, which loads OpenSSL: that takes 3 ms."""

from __future__ import annotations

try:
    from _blake2 import blake2b
except ImportError:  # a Python that is built without
    from hashlib import blake2b

__all__ = ["blake2b"]
