"""Native code of `moving_average`: LLVM for CPUs, CUDA C++ for GPUs.

graphfw imports this file when the op is first compiled, by the entry point in `pyproject.toml`.
"""

from __future__ import annotations

from dataclasses import dataclass
from string import Template

import numpy as np

from graphfw.extend import Buffer, HandwrittenCode, Launch, Step, Variant, lowers
from graphfw_extras.moving_average import MovingAverage

LLVM = Template("""
define i32 @$symbol(ptr %operands, ptr %params, i64 %row, ptr %scratch) {
entry:
  %y = load ptr, ptr %operands
  %second = getelementptr ptr, ptr %operands, i64 1
  %x = load ptr, ptr %second
  %length = load i64, ptr %params
  %first = getelementptr i64, ptr %params, i64 1
  %offset = load i64, ptr %first
  %next_row = getelementptr i64, ptr %params, i64 2
  %row_stride = load i64, ptr %next_row
  %next_column = getelementptr i64, ptr %params, i64 3
  %column_stride = load i64, ptr %next_column
  %rows_above = mul i64 %row, %row_stride
  %begin_x = add i64 %offset, %rows_above
  %begin_y = mul i64 %row, %length
  %any = icmp sgt i64 %length, 0
  br i1 %any, label %loop, label %done
loop:
  %t = phi i64 [ 0, %entry ], [ %next, %loop ]
  %last = phi $kind [ 0.0, %entry ], [ %average, %loop ]
  %columns = mul i64 %t, %column_stride
  %at_x = add i64 %begin_x, %columns
  %at_y = add i64 %begin_y, %t
  %from = getelementptr $kind, ptr %x, i64 %at_x
  %to = getelementptr $kind, ptr %y, i64 %at_y
  %value = load $kind, ptr %from
  %old = fmul $kind $decay, %last
  %new = fmul $kind $rest, %value
  %average = fadd $kind %old, %new
  store $kind %average, ptr %to
  %next = add i64 %t, 1
  %more = icmp slt i64 %next, %length
  br i1 %more, label %loop, label %done
done:
  ret i32 0
}""")

CUDA = Template("""
GF void $name(
    $kind* y, const $kind* x, gf_i64 rows, gf_i64 length, gf_i64 offset, gf_i64 row_stride,
    gf_i64 column_stride, int* failed, char* scratch
) {
    for (gf_i64 row = (gf_i64)blockIdx.x * blockDim.x + threadIdx.x; row < rows;
         row += (gf_i64)gridDim.x * blockDim.x) {
        $kind last = 0;
        for (gf_i64 t = 0; t < length; t++) {
            const $kind value = x[offset + row * row_stride + t * column_stride];
            last = ($kind)$decay * last + ($kind)$rest * value;
            y[row * length + t] = last;
        }
    }
}
""")

KINDS = {"float32": "float", "float64": "double"}
THREADS = 128


@dataclass(frozen=True)
class RowCode:
    """An LLVM function that computes one row; the threads of a run call it for each row."""

    decay: float
    dtype: str

    @property
    def key(self) -> str:
        """Return all that the text depends on: functions with equal keys are compiled once."""
        return f"extras.moving_average {self.decay!r} {self.dtype}"

    def llvm(self, symbol: str) -> str:
        """Return the text of an LLVM module that defines the function."""
        kind = KINDS[self.dtype]
        numbers = np.array([self.decay, 1 - self.decay], self.dtype).astype(np.float64)
        decay, rest = [f"0x{bits:016X}" for bits in numbers.view(np.uint64)]
        return LLVM.substitute(symbol=symbol, kind=kind, decay=decay, rest=rest)


@lowers(MovingAverage, target="numpy")
def on_cpus(node, inputs, outputs, settings):
    """Return one step for a CPU, whose work items are the rows."""
    (x,), (y,) = inputs, outputs
    step = Step(
        nodes=(node,),
        code=RowCode(node.op.decay, x.storage.dtype.name),
        operands=(y.storage, x.storage),
        written=(True, False),
        params=(x.shape[1], x.offset, *x.strides),  # symbolic dims are numbers when it runs
        work_items=x.shape[0],
    )
    return [step]


@lowers(MovingAverage, target="cupy")
def on_gpus(node, inputs, outputs, settings):
    """Return one step for a GPU: a kernel with a thread for each row."""
    (x,), (y,) = inputs, outputs
    decay, dtype = node.op.decay, x.storage.dtype
    name = f"moving_average_{dtype.name}_{np.float64(decay).view(np.uint64):x}"
    code = HandwrittenCode(
        name=name,
        text=CUDA.substitute(name=name, kind=KINDS[dtype.name], decay=decay, rest=1 - decay),
        buffers=(Buffer(dtype, written=True), Buffer(dtype, written=False)),
        params=5,
        functions=(Variant("rows", name, THREADS),),
        launching=launched,
    )
    step = Step(
        nodes=(node,),
        code=code,
        operands=(y.storage, x.storage),
        written=(True, False),
        params=(*x.shape, x.offset, *x.strides),
        work_items=1,
    )
    return [step]


def launched(params):
    """Return the launch for the values of the step's `params`."""
    rows = params[0]
    return Launch("rows", -(-rows // THREADS), block=(THREADS, 1))
