"""New tensors: inputs of a graph, constants, filled tensors, ranges.

- `inputs`: placeholders, constants, `identity`, `stop_gradient`, facts about shapes
- `constructors`: `asarray`, `from_dlpack`, `full`, `zeros`, `ones`, `empty` and their `_like` forms
- `ranges`: `arange`, `linspace`, `eye`, and the triangles `tril` and `triu`
"""
