"""What a graph is: dtypes, shapes, ops, nodes, and the rules that they obey."""
