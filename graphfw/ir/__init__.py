"""Graphs: dtypes, shapes, ops, nodes, and the rules that they obey."""
