"""`CudaValues`: writes the expressions of a kernel, each once in the scope where it is needed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

from graphfw.ir.dtype import DType
from graphfw.runtime.cupy_executor.codegen.types import called, converted, literal, register
from graphfw.runtime.kernels.handwritten_cuda import memory
from graphfw.runtime.kernels.ir import (
    Access,
    Axis,
    Call,
    Carried,
    Const,
    Draw,
    Expr,
    Keep,
    Kernel,
    Load,
    Param,
    Position,
    Ref,
    Size,
    SizeValue,
    Store,
)
from graphfw.runtime.kernels.walk import children, postorder, roots, statements


class Varying:
    """The expressions that differ from position to position of a loop.

    Args:
        kernel: The kernel.
        axes: The axes along which positions of the loop differ.
    """

    def __init__(self, kernel: Kernel, axes: Iterable[Axis]) -> None:
        self._kernel = kernel
        self._axes = frozenset([axis.name for axis in axes])
        keeps = [s for s in statements(kernel) if isinstance(s, Keep)]
        self._kept = frozenset([keep.name for keep in keeps])
        self._found: dict[Expr, bool] = {}
        for expr in postorder([root for s in statements(kernel) for root in roots(s)]):
            self._found[expr] = self._of(expr)

    def __call__(self, expr: Expr) -> bool:
        return self._found[expr]

    def offset(self, access: Access) -> bool:
        """Return whether another element is meant at each position."""
        return any([axis in self._axes for axis, _ in access.strides]) or self.terms(access)

    def terms(self, access: Access) -> bool:
        """Return whether a computed term of an access varies."""
        return any([self._found[term.value] for term in access.terms])

    def _of(self, expr: Expr) -> bool:
        if isinstance(expr, Position):
            return expr.axis in self._axes
        if isinstance(expr, Load) and self._kernel.is_of_result(expr):
            return True
        if isinstance(expr, Load | Draw):
            return self.offset(expr.access)
        if isinstance(expr, Ref):
            return expr.name in self._kept
        return isinstance(expr, Carried) or any([self._found[child] for child in children(expr)])


class CudaValues:
    """Writes lines of a function's body.

    Attributes:
        lines: What was written.
        index: Where each axis stands, by name.
        results: What a `Ref` or a `Carried` stands for, by name.
        guard: The condition under which what a thread finds counts; "" where it always does. Where
            it does not, a thread reads nothing: others may write over it meanwhile.
        packs: What loads find that were read several elements at once: an element of memory.
    """

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.lines: list[str] = []
        self.index: dict[str, str] = {}
        self.results: dict[str, str] = {}
        self.guard = ""
        self.packs: dict[Expr, str] = {}
        self._scopes: list[dict[Expr, str]] = [{}]
        self._count = 0

    def write(self, line: str) -> None:
        """Add a line, as far in as there are open blocks."""
        self.lines.append("    " * len(self._scopes) + line)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Open a block; what is computed in it is forgotten at its end."""
        self.write(f"{head} {{")
        self._scopes.append({})
        yield
        self._scopes.pop()
        self.write("}")

    def name(self, letter: str) -> str:
        """Return a name that nothing else has."""
        self._count += 1
        return f"{letter}{self._count}"

    def size(self, size: Size) -> str:
        """Return a size as an index."""
        return str(size) if isinstance(size, int) else f"p{size.number}"

    def wide(self, size: Size) -> str:
        """Return a size as an int64."""
        return f"(gf_i64){size}" if isinstance(size, int) else f"w{size.number}"

    def product(self, axes: Sequence[Axis]) -> str:
        """Return the product of extents."""
        return " * ".join([self.size(a.extent) for a in axes if a.extent != 1]) or "1"

    def stand(self, number: str, axes: Sequence[Axis]) -> None:
        """Write where axes stand at the number of a position over all of them."""
        for axis in axes:
            if axis.extent == 1:
                self.index[axis.name] = "0"
        rest = [axis for axis in axes if axis.extent != 1]
        for axis in reversed(rest[1:]):
            name, left, size = self.name("i"), self.name("n"), f"(gf_count){self.size(axis.extent)}"
            self.write(f"const gf_index {name} = (gf_index)((gf_count){number} % {size});")
            self.write(f"const gf_index {left} = (gf_index)((gf_count){number} / {size});")
            self.index[axis.name], number = name, left
        if rest:
            self.index[rest[0].name] = number

    def evaluate(
        self, wanted: Iterable[Expr], select: Callable[[Expr], bool] | None = None
    ) -> None:
        """Write expressions and all that they need; with `select` those for which it says so."""
        for expr in postorder(wanted):
            if self._known(expr) is None and (select is None or select(expr)):
                self._scopes[-1][expr] = self._written(expr)

    def value(self, expr: Expr) -> str:
        """Return the name of an expression in the code."""
        known = self._known(expr)
        assert known is not None, "it was not written"
        return known

    def _known(self, expr: Expr) -> str | None:
        return next((scope[expr] for scope in self._scopes if expr in scope), None)

    def _written(self, expr: Expr) -> str:
        if isinstance(expr, Const):
            return literal(expr.value, expr.dtype)
        if isinstance(expr, Position):
            return f"((gf_i64){self.index[expr.axis]})"
        if isinstance(expr, SizeValue):
            return self.wide(expr.size)
        if isinstance(expr, Ref | Carried):
            found = self.results[expr.name]
            return found if found.isidentifier() else self._named(expr.dtype, found)
        if isinstance(expr, Load):
            return self._loaded(expr)
        if isinstance(expr, Draw):
            offset, good = self.offset(expr.access)
            bits = 8 * expr.dtype.itemsize
            call = f"gf_draw{bits}(b{expr.buffer}, {self.wide(expr.key)}, {offset})"
            return self._named(expr.dtype, f"{good} ? {call} : 0" if good else call)
        assert isinstance(expr, Call)
        args = [self.value(arg) for arg in expr.args]
        if expr.function == "cast":
            return self._named(expr.dtype, converted(expr.args[0].dtype, expr.dtype, args[0]))
        if expr.function == "bits":
            return self._named(expr.dtype, f"gf_bits<{register(expr.dtype)}>({args[0]})")
        text = called(expr.function, expr.args[-1].dtype, args)
        is_narrow = register(expr.dtype) in ("signed char", "short", "unsigned char")
        return self._named(expr.dtype, f"({register(expr.dtype)})({text})" if is_narrow else text)

    def _named(self, dtype: DType, text: str) -> str:
        name = self.name("v")
        self.write(f"const {register(dtype)} {name} = {text};")
        return name

    # Memory

    def _loaded(self, expr: Load) -> str:
        dtype = expr.dtype
        kind, load = register(dtype), f"gf_memory<{memory(dtype)}>::load<{register(dtype)}>"
        if expr in self.packs:
            return self._named(dtype, f"{load}({self.packs[expr]})")
        offset, good = self.offset(expr.access)
        good = self.guarded(good)
        element = f"b{expr.buffer}[{offset}]"
        if self.kernel.is_packed(expr):
            element = f"gf_packed<{dtype.bits}>(b{expr.buffer}, {offset})"
        text = f"{load}({element})"
        return self._named(dtype, f"{good} ? {text} : ({kind})0" if good else text)

    def offset(self, access: Access) -> tuple[str, str]:
        """Write which element is meant; return it, and the condition under which it is there."""
        terms = [] if access.offset == 0 else [self.size(access.offset)]
        for axis, stride in access.strides:
            terms.append(_times(self.index[axis], self.size(stride)))
        good: list[str] = []
        for term in access.terms:
            number, is_there = self.checked(term.value, term.bound)
            good.append(is_there)
            terms.append(_times(f"(gf_index){number}", self.size(term.stride)))
        return " + ".join([term for term in terms if term != "0"]) or "0", " && ".join(good)

    def checked(self, expr: Expr, bound: Size) -> tuple[str, str]:
        """Write that the run fails unless an integer is in range; return it, and whether it is."""
        number, good = self.name("t"), self.name("g")
        self.write(f"const gf_i64 {number} = (gf_i64){self.value(expr)};")
        self.write(f"const bool {good} = (gf_u64){number} < (gf_u64){self.wide(bound)};")
        self.write(f"if ({self.guarded(f'!{good}')}) *failed = 1;")
        return number, good

    def guarded(self, condition: str) -> str:
        """Return a condition for what counts."""
        return " && ".join([text for text in (self.guard, condition) if text])

    def store(self, store: Store, condition: str = "") -> None:
        """Write that a value, which was evaluated, is stored."""
        dtype = self.kernel.buffers[store.buffer].dtype
        offset, good = self.offset(store.access)
        conditions = self.guarded(" && ".join([text for text in (condition, good) if text]))
        value = f"gf_memory<{memory(dtype)}>::made({self.value(store.value)})"
        text = f"b{store.buffer}[{offset}] = {value};"
        self.write(f"if ({conditions}) {text}" if conditions else text)


def _times(a: str, b: str) -> str:
    if "0" in (a, b):
        return "0"
    return a if b == "1" else b if a == "1" else f"{a} * {b}"


def number_of(size: Size, params: Sequence[int]) -> int:
    """Return the number of a size."""
    return params[size.number] if isinstance(size, Param) else size
