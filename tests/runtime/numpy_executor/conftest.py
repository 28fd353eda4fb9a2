"""Fixtures of the tests of native code."""

import pytest

from graphfw.passes.short_products import ShortProductToSum


@pytest.fixture(autouse=True)
def small_products_are_products(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small products run the code of products too, which symbolic sizes leave to it."""
    monkeypatch.setattr(ShortProductToSum, "fits", lambda self, node: False)
