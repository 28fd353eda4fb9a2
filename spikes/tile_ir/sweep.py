"""Compare kernels with NumPy at random sizes, on two threads.

python -m spikes.tile_ir.sweep
"""

from __future__ import annotations

import numpy as np

from spikes.tile_ir.bench import checked
from spikes.tile_ir.cases import Case, matmul_case, softmax_case
from spikes.tile_ir.target import here


def main() -> None:
    """Compare 25 products in five forms, and six softmaxes."""
    random, target = np.random.default_rng(), here()
    found: list[tuple[str, Case]] = []
    for _ in range(25):
        m, k, n = (int(size) for size in random.integers(1, [300, 700, 300]))
        name = f"{m}x{k}x{n}"
        found += [
            (name, matmul_case(target, random, m, k, n)),
            (f"{name} symbolic", matmul_case(target, random, m, k, n, symbolic=True)),
            (f"{name} bias, relu", matmul_case(target, random, m, k, n, epilogue=True)),
            (f"{name} int32", matmul_case(target, random, m, k, n, dtype="int32")),
            (f"{name} packed", matmul_case(target, random, m, k, n, packed=True)),
        ]
    for columns in random.integers(1, 400, 6):
        found.append((f"softmax {columns}", softmax_case(target, random, int(columns))))
    for name, case in found:
        try:
            checked(case, case.program().bind(case.arrays, 2))
        except AssertionError as error:
            raise AssertionError(f"{name}: {error}") from error
    print(f"{len(found)} results agree with NumPy's")


if __name__ == "__main__":
    main()
