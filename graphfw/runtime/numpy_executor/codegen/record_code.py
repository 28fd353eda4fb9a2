"""`RecordCode`: the base of code that is made from the fields of a record."""

from __future__ import annotations

import abc


class RecordCode(abc.ABC):
    """A `Code` that depends on the fields of its record, and on nothing else."""

    @property
    def key(self) -> str:
        """The class and all fields."""
        return str(self)

    @abc.abstractmethod
    def llvm(self, symbol: str) -> str:
        """Return the LLVM module, see `LlvmCode`."""
