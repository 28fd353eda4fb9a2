"""Steps of drafts: axes are joined, sizes become parameters, work is divided into items."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from graphfw.ir.affine import Affine, LoopVariable
from graphfw.ir.dim import DimLike
from graphfw.ir.dtype import DType, int64
from graphfw.ir.shape import size_of
from graphfw.ir.tensor import Node, Tensor
from graphfw.passes.fuse_pools import first_column
from graphfw.runtime.kernels.elements import (
    ComputedIndex,
    Element,
    ElementAddress,
    IndexValue,
    RandomValue,
    ResultElement,
    RunTimeSize,
)
from graphfw.runtime.kernels.ir import (
    Access,
    Accumulate,
    Axis,
    BoundsCheck,
    Buffer,
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
    Size,
    SizeValue,
    Store,
    Term,
    While,
)
from graphfw.runtime.kernels.joined_axes import Joined, joined
from graphfw.runtime.kernels.kernel_target import KernelTarget
from graphfw.runtime.kernels.lower_in_place import in_place
from graphfw.runtime.kernels.lower_loops import (
    LEAVES,
    Draft,
    Going,
    Kept,
    LoopCarry,
    Partial,
    Statement,
    Stored,
    Swap,
    draft_exprs,
    roots_of,
    variables_of,
)
from graphfw.runtime.kernels.lower_numbers import StoredNumber
from graphfw.runtime.kernels.lower_values import (
    Bound,
    CrossRowReduction,
    K,
    RowReduction,
)
from graphfw.runtime.kernels.lower_work_items import (
    WorkDivision,
    columns,
    is_long,
    pieces,
    tiles,
    whole_rows,
)
from graphfw.runtime.kernels.steps import Epilogue, Step, Storage, Temp


class Finished(NamedTuple):
    """A kernel and what its numbers stand for.

    Attributes:
        kernel: The kernel.
        operands: Its buffers; with an epilogue None for the product.
        params: Its run-time integers.
        work_items: How many work items it has.
        inner: How many inner positions a row has.
        partials: Where the partial results of reductions over rows go.
        in_place: See `Step`.
        can_fail: See `Step`.
    """

    kernel: Kernel
    operands: tuple[Storage, ...]
    params: tuple[DimLike, ...]
    work_items: DimLike
    inner: DimLike
    partials: dict[CrossRowReduction, Temp]
    in_place: tuple[tuple[int, int], ...]
    can_fail: bool


def step(
    finished: Finished,
    nodes: Sequence[Node],
    target: KernelTarget,
    nonzero: Sequence[DimLike] = (),
) -> Step:
    """Return the step of a kernel, for sizes of which some must not be 0."""
    per_inner, constant = target.scratch(finished.kernel)
    written = tuple([buffer.written for buffer in finished.kernel.buffers])
    results = zip(finished.operands, written, strict=True)
    return Step(
        nodes=tuple(nodes),
        code=target.kernel(finished.kernel, [one.size for one, is_new in results if is_new]),
        operands=finished.operands,
        written=written,
        params=finished.params,
        work_items=finished.work_items,
        scratch=per_inner * finished.inner + constant,
        in_place=finished.in_place,
        can_fail=finished.can_fail,
        nonzero=tuple(nonzero),
    )


def finished(draft: Draft, target: KernelTarget | None = None) -> Finished:
    """Settle a draft; one that draws no random bits needs no target."""
    return _Finisher(draft, target).result()


def epilogue(
    draft: Draft, target: KernelTarget, product: Tensor, factors: Sequence[Storage]
) -> Epilogue | None:
    """Settle a draft as what is done to a product's elements; None where it does not fit that.

    Args:
        draft: The draft.
        target: What compiles it.
        product: That of a matrix product or a convolution.
        factors: Where the product's operands lie.
    """
    finisher = _Finisher(draft, target, product)
    kinds = {type(one) for one in draft.statements()}
    # Rows of a matrix product are one axis, however many dims they have: these lie in order.
    most = max(first_column(product.node), 1)
    if len(finisher.outer) > most or len(finisher.inner) != 1 or Kept in kinds:
        return None
    done = finisher.result()
    is_complex = any([storage.dtype.is_complex for storage in done.operands])
    if done.can_fail or is_complex or not finisher.reads_product:
        return None
    return Epilogue(
        kernel=done.kernel,
        operands=tuple([None if s is product else s for s in done.operands]),
        params=done.params,
        product=next(i for i, s in enumerate(done.operands) if s is product),
        row_stride=finisher.row_stride.number,
        in_place=tuple(
            [
                (out, read)
                for out, read in done.in_place
                if not any(done.operands[read] is s for s in (product, *factors))
            ]
        ),
        sections=finisher.sections,
        begins=tuple(finisher.begins.items()),
        member=finisher.member,
        is_whole=RowReduction in kinds,
    )


def joined_axes(draft: Draft) -> tuple[list[Joined], list[Joined]]:
    """Return the outer and the inner axes that the kernel of a draft will have."""
    finisher = _Finisher(draft, None)
    return finisher.outer, finisher.inner


class _Finisher:
    """Settles one draft."""

    def __init__(
        self, draft: Draft, target: KernelTarget | None, product: Tensor | None = None
    ) -> None:
        self.draft = draft
        self.target = target
        self.product = product
        self.reads_product = False
        self.begins: dict[int, int] = {}
        self.leaves: dict[Element | RandomValue | IndexValue, None] = {}
        roots = [root for s in draft.statements() for root in roots_of(s)]
        found = draft_exprs(roots)
        self.leaves.update(dict.fromkeys([expr for expr in found if isinstance(expr, LEAVES)]))
        self.stores = [s for s in draft.statements() if isinstance(s, Stored)]
        # Where an axis stands as a number, or is looked up by one, it is not joined.
        self.fixed: set[LoopVariable] = set()
        self.strides: list[dict[LoopVariable, DimLike]] = []
        self.strides += [dict(s.address.strides) for s in self.stores]
        for leaf in self.leaves:
            if isinstance(leaf, IndexValue):
                self.fixed.update(variables_of(leaf))
            else:
                self.strides.append(dict(leaf.address.strides))
        outer = joined(draft.outer, self.fixed, self.strides)
        if draft.inner is None:
            cut = max(len(outer) - 1, 0)
            outer, inner = outer[:cut], outer[cut:]
        else:
            inner = joined(draft.inner, self.fixed, self.strides)
        if draft.form == "rows" and not inner:
            inner = [Joined(LoopVariable("one", 1), 1)]
        if product is not None and not outer:
            outer = [Joined(LoopVariable("one", 1), 1)]
        self.outer, self.inner = outer, inner
        self._near = 0 if target is None else target.narrow
        self.work = self._divided()
        self._params: dict[tuple[Any, ...], int] = {}
        self._values: list[DimLike] = []
        self._buffers: dict[tuple[Storage, bool], int] = {}
        self._dtypes: dict[tuple[Storage, bool], DType] = {}
        self._names: dict[LoopVariable, str] = {}
        self._vectors = (outer if draft.form == "columns" else inner)[-1].last
        self._swap = Swap(self._settled)
        self._partials: dict[CrossRowReduction, Temp] = {}
        self._can_fail = False

    # Division into work items.

    def _divided(self) -> WorkDivision:
        nbytes = sum([dtype.itemsize for dtype in self._traffic()]) or 4
        rows = size_of([joined.extent for joined in self.outer])
        inner = size_of([joined.extent for joined in self.inner])
        if self.draft.form == "columns":
            others = size_of([joined.extent for joined in self.outer[:-1]])
            return columns(others, self.outer[-1].extent, inner, nbytes)
        has_partials = any(
            isinstance(s, Partial) and s.across.inner for s in self.draft.statements()
        )
        is_plain = self.draft.inner is None or not any(
            isinstance(s, RowReduction | Kept) for s in self.draft.statements()
        )
        is_cut = is_plain and len(self.inner) == 1 and not has_partials and inner != 1
        if is_cut and (not self.outer or is_long(inner)):
            return pieces(rows, inner, nbytes)
        if self.draft.inner is None and self.outer and self._is_transposed():
            return tiles(rows, inner)
        passes = len([loop for loop in self.draft.loops if loop])
        is_across = bool(self.outer and self.inner) and self._is_transposed()
        some_rows = has_partials or is_across
        return whole_rows(rows, inner, nbytes, passes=passes, some_rows=some_rows)

    def _is_transposed(self) -> bool:
        """Return whether something is dense along rows' numbers and not along rows."""
        (outer, rows), (inner, _) = self.outer[-1], self.inner[-1]
        # What few rows want of elements near one another is taken out of dense loads.
        near = range(self._near + 1 if isinstance(rows, int) and rows <= self._near else 2)
        return any(s.get(outer, 0) == 1 and s.get(inner, 0) not in near for s in self.strides)

    def _traffic(self) -> list[Any]:
        inner = {j.last for j in self.inner}
        if self.draft.form == "columns":
            inner.add(self.outer[-1].last)
        found = {}
        for leaf in self.leaves:
            if isinstance(leaf, Element) and any(v in inner for v in variables_of(leaf)):
                found[leaf.address] = leaf.dtype
        for store in self.stores:
            if any(variable in inner for variable, _ in store.address.strides):
                found[store.address] = store.value.dtype
        return list(found.values())

    # Parameters and names.

    def _size(self, size: DimLike, role: tuple[Any, ...] = ()) -> Size:
        """Return a size as kernels write it. Equal sizes in one role are one parameter."""
        if isinstance(size, int) and 0 <= size <= (self._near if role == ("section",) else 1):
            return size
        key = (*role, size)
        number = self._params.setdefault(key, len(self._values))
        if number == len(self._values):
            self._values.append(size)
        return Param(number)

    def _axes(self, joined: Iterable[Joined], letter: str) -> tuple[Axis, ...]:
        axes = []
        for number, one in enumerate(joined):
            name = f"{letter}{number}"
            self._names[one.last] = name
            # Each extent is a parameter of its own: so that sizes may differ in other layers.
            axes.append(Axis(name, self._size(one.extent, (name,))))
        return tuple(axes)

    def _buffer(self, storage: Storage, dtype: DType, *, written: bool) -> int:
        """Return the number of the buffer of a storage's elements, or of their components."""
        key = storage, written
        self._dtypes[key] = dtype if storage.dtype.is_complex else storage.dtype
        return self._buffers.setdefault(key, len(self._buffers))

    # Expressions.

    def _access(self, address: ElementAddress, role: str = "offset") -> Access:
        strides, terms = [], []
        for variable, stride in address.strides:
            if isinstance(variable, ComputedIndex):
                bound = self._size(variable.extent, ("bound",))
                if bound in (0, 1):
                    bound = self._param(variable.extent)
                terms.append(Term(self._swap(variable.value), self._size(stride, ("term",)), bound))
                self._can_fail = True
            elif variable in self._names:
                name = self._names[variable]
                strides.append((name, self._stride(variable, stride)))
        strides.sort(key=lambda entry: entry[0])
        return Access(self._size(address.offset, (role,)), tuple(strides), tuple(terms))

    def _stride(self, variable: LoopVariable, stride: DimLike) -> Size:
        if variable == self._vectors and isinstance(stride, int) and abs(stride) <= self._near:
            return stride
        return self._size(stride, ("stride", self._names[variable]))

    def _param(self, size: DimLike) -> Param:
        """Return a parameter even for 0 and 1."""
        number = self._params.setdefault(("param", size), len(self._values))
        if number == len(self._values):
            self._values.append(size)
        return Param(number)

    def _settled(self, expr: Expr) -> Expr | None:
        if isinstance(expr, Element) and expr.address.storage is self.product:
            return self._of_product(expr)
        if isinstance(expr, Element):
            return self._load(expr, self._access(expr.address))
        if isinstance(expr, RandomValue):
            assert self.target is not None
            storage, key = self.target.drawn(expr.key)
            buffer = self._buffer(storage, storage.dtype, written=False)
            return Draw(expr.dtype, buffer, self._param(key), self._access(expr.address))
        if isinstance(expr, IndexValue):
            return self._number(expr.index)
        if isinstance(expr, RunTimeSize):
            return SizeValue(int64, self._param(expr.size))
        if isinstance(expr, StoredNumber):
            buffer = self._buffer(expr.table, expr.dtype, written=False)
            return Load(expr.dtype, buffer, Access(expr.index, ()))
        return None

    @property
    def row_stride(self) -> Param:
        """The parameter that is the distance between rows of the product only."""
        return self._distance(self.outer[-1])

    @property
    def member(self) -> tuple[int, DimLike] | None:
        """See `Epilogue`."""
        if len(self.outer) == 1:
            return None
        return self._distance(self.outer[0]).number, self.outer[-1].extent

    def _distance(self, axis: Joined) -> Param:
        number = self._params.setdefault(("product", axis.last), len(self._values))
        if number == len(self._values):
            self._values.append(axis.extent)  # not used: see `Epilogue`
        return Param(number)

    @property
    def sections(self) -> int:
        """The number of times that the kernel's columns go into those of the product."""
        assert self.product is not None
        whole, section = self.product.shape[-1], self.inner[0].extent
        if not isinstance(whole, int) or not isinstance(section, int) or not 0 < section < whole:
            return 1
        return whole // section

    def _of_product(self, expr: Element) -> Expr:
        column = self._names[self.inner[0].last]
        self.reads_product = True
        begin: Size = 0
        offset, section = expr.address.offset, self.inner[0].extent
        if isinstance(offset, int) and isinstance(section, int) and offset:
            number = self.begins.setdefault(offset // section, len(self._values))
            if number == len(self._values):
                self._values.append(offset)
            begin = Param(number)
        rows = [(self._names[axis.last], self._distance(axis)) for axis in self.outer]
        access = Access(begin, (*rows, (column, 1)))
        return self._load(expr, access)

    def _load(self, expr: Element, access: Access) -> Load:
        storage, is_result = expr.address.storage, isinstance(expr, ResultElement)
        buffer = self._buffer(storage, expr.dtype, written=is_result)
        return Load(expr.dtype, buffer, access)

    def _number(self, index: Affine) -> Expr:
        """Return an index as a value."""
        total: Expr | None = None
        for variable, coefficient in index.terms.items():
            if isinstance(variable, ComputedIndex):
                term = self._swap(variable.value)
            else:
                term = Position(int64, self._names[variable])
            if coefficient != 1:
                term = K.mul(term, self._size_value(coefficient))
            total = term if total is None else K.add(total, term)
        if total is None:
            return self._size_value(index.offset)
        return total if index.offset == 0 else K.add(total, self._size_value(index.offset))

    def _size_value(self, size: DimLike) -> Expr:
        if isinstance(size, int):
            return Const(int64, size)
        return SizeValue(int64, self._size(size, ("value",)))

    # The kernel.

    def result(self) -> Finished:
        """Return the kernel."""
        draft, work = self.draft, self.work
        outer = self._axes(self.outer, "i")
        inner = self._axes(self.inner, "j")
        before = [self._statement(s) for s in draft.before]
        loops = [
            InnerLoop(tuple([self._statement(s) for s in loop])) for loop in draft.loops if loop
        ]
        after = [self._statement(s) for s in draft.after]
        per_item = self._size(work.per_item, ("work_item",))
        split = None if work.split is None else self._size(work.split, ("work_item",))
        buffers = tuple([Buffer(self._dtypes[key], key[1]) for key in self._buffers])
        kernel = Kernel(
            form="columns" if draft.form == "columns" else "rows",
            outer=outer,
            inner=inner,
            per_item=per_item,
            split=split,
            buffers=buffers,
            params=len(self._values),
            body=tuple([*before, *loops, *after]),
            asks=work.asks,
        )
        return Finished(
            kernel=kernel,
            operands=tuple([storage for storage, _ in self._buffers]),
            params=tuple(self._values),
            work_items=work.work_items,
            inner=size_of([joined.extent for joined in self.inner]),
            partials=self._partials,
            in_place=in_place(draft, self._buffers),
            can_fail=self._can_fail,
        )

    def _statement(self, s: Statement) -> Any:
        value = self._swap(s.value)
        if isinstance(s, RowReduction):
            return Reduce(s.name, s.kind, value)
        if isinstance(s, LoopCarry):
            return Carry(s.name, self._swap(s.begin), value)
        if isinstance(s, Going):
            return While(value)
        if isinstance(s, Kept):
            return Keep(s.name, value)
        if isinstance(s, Bound):
            self._can_fail = True
            return BoundsCheck(value, self._param(s.bound))
        if isinstance(s, Stored):
            buffer = self._buffer(s.address.storage, value.dtype, written=True)
            return Store(buffer, self._access(s.address, "section"), value)
        return self._accumulate(s.across, value)

    def _accumulate(self, across: CrossRowReduction, value: Expr) -> Accumulate:
        strides: list[tuple[str, Size]] = []
        width: DimLike = 1
        for one in reversed(self.inner) if across.inner else ():
            name = self._names[one.last]
            strides.insert(0, (name, self._size(width, ("stride", name))))
            width = width * one.extent
        why = f"partial results of {across.node.op.name}"
        memory = self._partials[across] = Temp(value.dtype, self.work.work_items * width, why)
        buffer = self._buffer(memory, value.dtype, written=True)
        return Accumulate(buffer, Access(0, tuple(strides)), across.kind, value, across.inner)
