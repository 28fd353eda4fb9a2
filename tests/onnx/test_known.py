"""Every operator that ONNX knows is one that graphfw loads, in all versions."""

from __future__ import annotations

import onnx

from graphfw.onnx import functions
from graphfw.onnx.table import find_reader

NOT_LOADED: dict[tuple[str, str], str] = {}
"""Operators that there is no form of, by domain and name, with the reason."""


def test_operators_are_known():
    schemas = onnx.defs.get_all_schemas_with_history()
    unknown = {
        (schema.domain, schema.name)
        for schema in schemas
        if find_reader(schema.domain, schema.name) is None
        and not functions.has_standard_function(schema.domain, schema.name, schema.since_version)
    }
    assert len(schemas) > 500
    assert unknown == NOT_LOADED.keys()
