"""The functions of `ops.numerics.library` in CUDA C++: written from the references themselves."""

from __future__ import annotations

import functools
from collections.abc import Callable

from graphfw.ir.dtype import DType, float64
from graphfw.ops.numerics.library import FUNCTIONS
from graphfw.ops.numerics.wide import written
from graphfw.runtime.cupy_executor.codegen.types import called, literal
from graphfw.runtime.kernels.primitives import PRIMITIVES


@functools.cache
def definition(function: str) -> str:
    """Return the definition of a function, `double gf_NAME(double x0, …)`."""
    arity, compute = FUNCTIONS[function]
    operands = [f"x{number}" for number in range(arity)]
    values = _CudaMathValues()
    result = written(compute, values, *operands)
    parameters = ", ".join([f"double {operand}" for operand in operands])
    head = f"__device__ double gf_{function}({parameters}) {{"
    body = [f"    {line}" for line in [*values.lines, f"return {result};"]]
    return "\n".join([head, *body, "}"])


class _CudaMathValues:
    """Makes variables of a function of CUDA C++, as `Scalars` makes expressions: their names."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._kinds: dict[str, str] = {}

    def call(self, function: str, *operands: str | float) -> str:
        """A call of a primitive of kernels, of float64 or conditions."""
        args = [x if isinstance(x, str) else literal(x, float64) for x in operands]
        kind = self._kinds.get(args[0], "double")
        if function in ("and", "or", "not"):
            sign = {"and": " && ", "or": " || ", "not": "!"}[function]
            return self._let("bool", f"!{args[0]}" if len(args) == 1 else sign.join(args))
        is_test = PRIMITIVES[function].result == "bool"
        return self._let("bool" if is_test else kind, called(function, float64, args))

    def const(self, value: float, dtype: DType) -> str:
        """A number."""
        return literal(value, dtype)

    def select(self, condition: str, x: str, y: str) -> str:
        """The value of x where the condition holds, else y's."""
        return self._let("double", f"{condition} ? {x} : {y}")

    def isnan(self, x: str) -> str:
        """Return whether it is NaN."""
        return self._let("bool", f"{x} != {x}")

    def repeat(
        self,
        values: tuple[str, ...],
        again: Callable[..., str],
        step: Callable[..., tuple[str, ...]],
    ) -> tuple[str, ...]:
        """Values that are replaced by `step(*values)` as long as `again(*values)` holds."""
        names = tuple([self._let(self._kinds.get(v, "double"), v) for v in values])
        self.lines.append("for (;;) {")
        goes_on = again(*names)
        self.lines.append(f"if (!{goes_on}) break;")
        # The new values may be other old ones: all are known before any is replaced.
        following = [self._let(self._kinds[n], v) for n, v in zip(names, step(*names), strict=True)]
        self.lines += [f"{n} = {v};" for n, v in zip(names, following, strict=True)]
        self.lines.append("}")
        return names

    def where_rare(self, condition: str, other: Callable[[], str], usual: str) -> str:
        """The usual value; where the condition holds another one, which is computed only then."""
        name = self._let("double", usual)
        self.lines.append(f"if ({condition}) {{")
        value = other()
        self.lines += [f"{name} = {value};", "}"]
        return name

    def _let(self, kind: str, text: str) -> str:
        name = f"v{len(self.lines)}"
        self._kinds[name] = kind
        self.lines.append(f"{kind} {name} = {text};")
        return name
