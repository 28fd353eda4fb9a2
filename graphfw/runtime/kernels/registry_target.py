"""The methods of a target that the registry of lowerings answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from graphfw.ir.tensor import Node
from graphfw.runtime.kernels.lowerings import (
    Lowering,
    ProductLowering,
    TargetName,
    lowering_of,
    product_lowering_of,
)
from graphfw.runtime.kernels.steps import Product, Step, View


class RegistryTarget:
    """Finds native code by the classes of ops; see `runtime.kernels.lower.Target`.

    Args:
        name: The name under which lowerings are registered.
        settings: The settings that they are called with.
    """

    def __init__(self, name: TargetName, settings: Any) -> None:
        self._name = name
        self._settings = settings

    def multiplies(self, node: Node) -> bool:
        found = self._product(node)
        return found is not None and found.when(node, self._settings)

    def keeps_rows(self, node: Node) -> bool:
        found = self._product(node)
        if found is None or found.keeps_rows is None:
            return False
        return found.keeps_rows(node, self._settings)

    def fills(self, node: Node) -> bool:
        found = self._lowering(node)
        return found is not None and found.fills

    def lower_node(
        self, node: Node, inputs: Sequence[View], outputs: Sequence[View]
    ) -> Sequence[Step]:
        found = self._lowering(node)
        if found is None:
            return []
        try:
            return found.steps(node, inputs, outputs, self._settings)
        except OverflowError:  # its numbers may have more than 64 bits
            return []

    def product(self, product: Product) -> Sequence[Step]:
        found = self._product(product.node)
        assert found is not None
        return found.steps(product, self._settings)

    def _lowering(self, node: Node) -> Lowering | None:
        return lowering_of(node, self._name)

    def _product(self, node: Node) -> ProductLowering | None:
        return product_lowering_of(node, self._name)
