"""`show`: a kernel as text, for people to read and as what its machine code is known by."""

from __future__ import annotations

from collections import Counter

from graphfw.ir.dtype import bool_, float32
from graphfw.runtime.kernels.ir import (
    Access,
    Accumulate,
    Axis,
    BoundsCheck,
    Call,
    Carried,
    Carry,
    Const,
    Draw,
    Expr,
    InnerLoop,
    Keep,
    Kernel,
    Load,
    Param,
    Position,
    Reduce,
    Ref,
    Size,
    SizeValue,
    While,
)
from graphfw.runtime.kernels.primitives import PRIMITIVES
from graphfw.runtime.kernels.walk import Statement, children, postorder, roots, statements

_SIGNS = {
    "add": "+",
    "sub": "-",
    "mul": "*",
    "div": "/",
    "eq": "==",
    "ne": "!=",
    "lt": "<",
    "le": "<=",
    "gt": ">",
    "ge": ">=",
    "and": "&",
    "or": "|",
    "xor": "^",
    "shl": "<<",
    "shr": ">>",
}


def show(kernel: Kernel) -> str:
    """Return the text of a kernel: kernels with equal texts do the same.

    Constants and references of a dtype other than float32 have it after them, and casts name what
    they make.
    Values that are used more than once are named, `v0`, `v1`, ..., where they are first used.

    >>> from graphfw.runtime.kernels.ir import Access, Buffer, InnerLoop, Store
    >>> at = Access(0, (("j", 1),))
    >>> double = Call(float32, "mul", (Load(float32, 0, at), Const(float32, 2.0)))
    >>> axis, buffers = Axis("j", Param(0)), (Buffer(float32, False), Buffer(float32, True))
    >>> body = (InnerLoop((Store(1, at, double),)),)
    >>> print(show(Kernel("rows", (), (axis,), 1, Param(1), buffers, 2, body)), end="")
    kernel rows [] x [j: p0], 1 a work item, split p1, 2 params
      in  b0: float32
      out b1: float32
      for j:
        b1[j] = b0[j] * 2.0
    """
    split = "" if kernel.split is None else f", split {_size(kernel.split)}"
    multiple = f", multiples of {kernel.multiple}" if kernel.multiple > 1 else ""
    outer, inner = (_axes(axes) for axes in (kernel.outer, kernel.inner))
    lines = [
        f"kernel {kernel.form} {outer} x {inner}, {_size(kernel.per_item)} a work item{split}, "
        f"{kernel.params} params{', asks' if kernel.asks else ''}{multiple}"
    ]
    for number, buffer in enumerate(kernel.buffers):
        way = "out" if buffer.written else "in "
        lines.append(f"  {way} b{number}: {buffer.dtype}")
    indent = "  "
    if kernel.outer:
        lines.append(f"{indent}for each {', '.join([axis.name for axis in kernel.outer])}:")
        indent += "  "
    names = _Names(kernel)
    over = ", ".join([axis.name for axis in kernel.inner])
    for item in kernel.body:
        if isinstance(item, InnerLoop):
            for statement in item.body:
                lines += [f"{indent}{line}" for line in names.begin(statement)]
            lines.append(f"{indent}for {over}:")
            for statement in item.body:
                lines += [f"{indent}  {line}" for line in names.statement(statement)]
        else:
            lines += [indent + line for line in names.statement(item)]
    return "\n".join([*lines, ""])


class _Names:
    """The texts of a kernel's expressions; those that are used several times get names."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._uses: Counter[Expr] = Counter()
        self._texts: dict[Expr, str] = {}
        self._open: set[Expr] = set()
        """The expressions whose text is put in brackets where it is an operand."""
        self._named = 0
        self._lines: list[str] = []
        for statement in statements(kernel):
            for root in roots(statement):
                self._count(root)

    def begin(self, statement: Statement) -> list[str]:
        """Return the lines of what happens before a statement's loop."""
        self._lines = []
        if isinstance(statement, Carry):
            text = self._text(statement.begin)
            self._lines.append(f"{statement.name} = {text}")
        return self._lines

    def statement(self, statement: Statement) -> list[str]:
        """Return the lines of a statement: the names that it makes, and itself."""
        self._lines = []
        value = self._text(statement.value)
        if isinstance(statement, Reduce):
            text = f"{statement.name} = {statement.kind}({value})"
        elif isinstance(statement, Carry):
            text = f"next {statement.name} = {value}"
        elif isinstance(statement, Keep):
            text = f"keep {statement.name} = {value}"
        elif isinstance(statement, While):
            text = f"while {value}"
        elif isinstance(statement, BoundsCheck):
            text = f"check {value} below {_size(statement.bound)}"
        else:
            element = f"b{statement.buffer}{self._access(statement.access)}"
            text = f"{element} = {value}"
            if isinstance(statement, Accumulate):
                line = "line " if statement.inner else ""
                text = f"{line}{element} {statement.kind}= {value}"
        return [*self._lines, text]

    def _count(self, root: Expr) -> None:
        stack = [root]
        while stack:
            expr = stack.pop()
            self._uses[expr] += 1
            if self._uses[expr] == 1:
                stack += children(expr)

    def _text(self, root: Expr) -> str:
        """Return the text of an expression."""
        for expr in postorder([root], self._texts.__contains__):
            text = self._of(expr)
            if self._uses[expr] > 1 and isinstance(expr, Call | Draw | Load):
                name = f"v{self._named}"
                self._named += 1
                self._lines.append(f"{name} = {text}")
                text = name
            elif isinstance(expr, Call) and (expr.function in _SIGNS or expr.function == "bits"):
                self._open.add(expr)
            self._texts[expr] = text
        return self._texts[root]

    def _of(self, expr: Expr) -> str:
        if isinstance(expr, Const):
            value = float(expr.value) if expr.dtype.is_floating else expr.value
            return repr(value) if expr.dtype in (float32, bool_) else f"{value!r}:{expr.dtype}"
        if isinstance(expr, Position):
            return expr.axis
        if isinstance(expr, SizeValue):
            return f"size({_size(expr.size)})"
        if isinstance(expr, Ref | Carried):
            return expr.name if expr.dtype is float32 else f"{expr.name}:{expr.dtype}"
        if isinstance(expr, Load):
            packed = f"{expr.dtype} of " if self._kernel.is_packed(expr) else ""
            return f"{packed}b{expr.buffer}{self._access(expr.access)}"
        if isinstance(expr, Draw):
            bits = 8 * expr.dtype.itemsize
            return f"bits{bits}(b{expr.buffer}[{_size(expr.key)}]){self._access(expr.access)}"
        if not isinstance(expr, Call):
            raise TypeError(f"{type(expr).__name__} is no expression of kernels")
        if expr.function in _SIGNS:
            return f" {_SIGNS[expr.function]} ".join(map(self._operand, expr.args))
        args = [self._texts[arg] for arg in expr.args]
        if PRIMITIVES[expr.function].result != "cast":
            return f"{expr.function}({', '.join(args)})"
        how = {"cast": "", "bits": "bits of "}.get(expr.function, expr.function)
        return f"{how}{expr.dtype.name}({', '.join(args)})"

    def _operand(self, expr: Expr) -> str:
        text = self._texts[expr]
        return f"({text})" if expr in self._open else text

    def _access(self, access: Access) -> str:
        terms = [f"{_factor(stride)}{axis}" for axis, stride in access.strides if stride != 0]
        for term in access.terms:
            self._text(term.value)
            value = self._operand(term.value)
            terms.append(f"{_factor(term.stride)}{value} below {_size(term.bound)}")
        if access.offset != 0 or not terms:
            terms.insert(0, _size(access.offset))
        return f"[{' + '.join(terms)}]"


def _size(size: Size) -> str:
    return f"p{size.number}" if isinstance(size, Param) else str(size)


def _factor(stride: Size) -> str:
    return "" if stride == 1 else f"{_size(stride)}*"


def _axes(axes: tuple[Axis, ...]) -> str:
    return f"[{', '.join([f'{axis.name}: {_size(axis.extent)}' for axis in axes])}]"
