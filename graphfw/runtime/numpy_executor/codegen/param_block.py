"""`ParamBlock`: the integers that a kernel takes at run time, by name."""

from __future__ import annotations

from typing import ClassVar


class ParamBlock:
    """Numbers of run-time integers: a subclass lists their names in order, after its base's.

    Lengths and distances in memory are in elements. Other blocks may follow, from `COUNT` on.

    >>> class Sizes(ParamBlock):
    ...     ROWS: int
    ...     COLUMNS: int
    >>> Sizes.COLUMNS, Sizes.COUNT
    (1, 2)
    """

    COUNT: ClassVar[int] = 0

    def __init_subclass__(cls) -> None:
        for name in cls.__annotations__:
            setattr(cls, name, cls.COUNT)
            cls.COUNT += 1
