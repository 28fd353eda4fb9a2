"""Control flow, effects, and Python functions in a graph.

Ops that own a body:
- `region_op`: the base `Region` of these ops
- `branch_op`, `scan_op`, `loop_op`, `checkpoint_ops`: the ops, with gradients and batching
- `shape_checks`, `variable_updates`, `deferred_sums`: rules that bodies share

Public functions:
- `control_flow`: cond, switch, while_loop, fori_loop, scan, map, checkpoint
- `associative_scan`, `scan_blocks`: compositions of scans

Ops that do something when the graph runs:
- `effects`: the base `Effect`; `debug`: print, check, breakpoint
- `host_call`: calls of Python functions of NumPy arrays
"""
