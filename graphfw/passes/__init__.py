"""The compiler's passes: rewrites from graph to graph that keep every value as it is."""
