"""The bases of ops whose native code may take up what follows them."""

from __future__ import annotations

from typing import ClassVar

from graphfw.ir.op import Op


class FusibleProduct(Op):
    """The base of sums of products that may be computed with what is done to their elements.

    Attributes:
        columns: The first of the result's dims that are its columns: they lie beside each other,
            and pieces of some rows and columns are computed at a time. All before are its rows.
    """

    columns: ClassVar[int] = -1


class FusiblePool(Op):
    """The base of ops that may pool a product while it is computed."""
