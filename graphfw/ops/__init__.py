"""Every fact about every operation, and its public function: one folder a family.

| family | contents |
|---|---|
| `creation` | inputs, constants, filled tensors, ranges |
| `elementwise` | arithmetic, comparisons, mathematical functions, casts |
| `reduce` | reductions over axes, running sums, statistics |
| `sorting` | sorting, searching, quantiles, histograms |
| `shape` | movement, concatenation, padding, indexing |
| `linalg` | products, decompositions, linear equations, norms |
| `nn` | activations, normalisation, losses, attention, convolution, pooling, resizing |
| `random` | random draws; public as `graphfw.random` |
| `control` | branches, loops, checkpoints; effects and host calls |
| `signal` | Fourier transforms, sampled functions, polynomials |
| `data_dependent` | ops whose shapes depend on elements |
| `numerics` | numerics that array modules lack; no ops |

A *primitive* is an op, a class with its rules; a *composition* is a function that emits several
ops. In a family's docstring the files with classes come first or are called ops. The files beside
the folders are what families share: arguments, rules of dtypes, batching, bases that compilers ask
for, ops of users' own.
"""
