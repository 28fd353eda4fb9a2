"""What belongs to one graph and can't be copied or pickled on its own."""

from __future__ import annotations

from typing import Any, NoReturn, SupportsIndex

from graphfw.errors import GraphError


class Uncopied:
    """A base whose objects refuse `copy.copy`, `copy.deepcopy` and `pickle`.

    A copy would belong to the same graph, or drag a copy of the whole graph along.
    """

    __slots__ = ()

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise GraphError(
            f"a {type(self).__name__} can't be copied or pickled",
            fix="describe the graph again, in a function that is called twice, or with "
            "gf.parse(str(g)); take contents along with session.state_dict or session.save",
        )

    def __reduce__(self) -> Any:
        return self.__reduce_ex__(2)
