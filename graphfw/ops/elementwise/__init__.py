"""Ops that compute each element of the result from the elements at its index.

- `table`: `unary` and `binary` make an op class and its public function from one row
- `arithmetic`, `comparisons` (with logic and bits), `math_functions`: rows
- `complex_numbers`: complex numbers and their components
- `statistical_functions`, `bessel`, `incomplete_gamma_beta`: rows of `graphfw.special`
- `where_clip`: choices between elements, by a mask or by bounds
- `cast`: conversions between dtypes, and questions about dtypes
- `packed_bits`: numbers of less than 8 bits, packed into bytes
- `isclose`: comparisons within a tolerance
"""
