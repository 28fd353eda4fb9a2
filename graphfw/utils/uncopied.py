"""Objects that can't be copied or pickled."""

from __future__ import annotations

from typing import Any, ClassVar, NoReturn, SupportsIndex

from graphfw.errors import GraphError


class Uncopied:
    """A base whose objects refuse `copy.copy`, `copy.deepcopy` and `pickle`."""

    __slots__ = ()
    instead: ClassVar[str]
    """The advice in the error: which object to copy or save instead."""

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise GraphError(f"a {type(self).__name__} can't be copied or pickled", fix=self.instead)

    def __reduce__(self) -> Any:
        return self.__reduce_ex__(2)
