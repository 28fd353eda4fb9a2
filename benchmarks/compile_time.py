"""A program that compiles once: `python -m benchmarks.compile_time gpt-step jax`.

It prints a JSON object, in seconds: `described`, how long it took to describe the program (to trace
and lower it, in JAX), and `compiled`, how long it took to compile what was described. Before the
clock runs the library has compiled another program, so imports and what a process does once are
left out; the kernels of that are not used again.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.frameworks import Described, described, jax_function
from benchmarks.workloads import gpt, loops, mlp, recurrent, transforms

CONTENDERS = ("graphfw", "jax")

_FORMULAS = {
    "newton-while": loops.NEWTON,
    "ode-scan-neural": loops.FIELD,
    "ode-scan-neural-grad": loops.FIELD_GRADIENT,
    "rnn-scan-1000": loops.RNN,
    "hvp-mlp": transforms.HVP,
    "hessian-small": transforms.HESSIAN,
    "per-example-grads": transforms.EXAMPLES,
}
_LSTMS = {"lstm": False, "lstm-grad": True}
_STEPS = ("mlp-step", "gpt-step")

PROGRAMS = (*_FORMULAS, *_LSTMS, *_STEPS)


def main() -> None:
    """Describe and compile a program and print what they took."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compile_time")
    parser.add_argument("program", choices=PROGRAMS)
    parser.add_argument("contender", choices=CONTENDERS)
    options = parser.parse_args()
    measure = _graphfw if options.contender == "graphfw" else _jax
    described, compiled = measure(options.program)
    print(json.dumps({"described": described, "compiled": compiled}), flush=True)


def _graphfw(program: str) -> tuple[float, float]:
    import graphfw as gf

    with gf.Graph() as other:
        x = gf.placeholder((3, 5, 7), gf.int32, name="x")
        doubled = x * 2
    gf.Session(other, verify="off").compile(doubled, feeds=[x])
    describe = _describer(program)
    begin = time.perf_counter()
    graph, fetches, feeds = describe()
    middle = time.perf_counter()
    gf.Session(graph, verify="off").compile(fetches, feeds=feeds)
    return middle - begin, time.perf_counter() - middle


def _describer(program: str) -> Callable[[], Described]:
    """Return what describes a program; its arrays are made before."""
    if program in _FORMULAS:
        formula = _FORMULAS[program]
        arrays, cotangent = formula.arguments()
        return lambda: described(formula, arrays, cotangent)
    if program in _LSTMS:
        return lambda: recurrent.described(recurrent.LSTM, _LSTMS[program])[0]
    if program == "mlp-step":
        held = mlp.weights()
        return lambda: mlp.described(held)
    held = gpt.SMALL.weights()
    return lambda: gpt.described(gpt.SMALL, held)


def _jax(program: str) -> tuple[float, float]:
    import jax

    jax.jit(lambda x: x * 2).lower(jax.device_put(np.ones((3, 5, 7), np.int32))).compile()
    function, arguments = _jax_function(program)
    jax.block_until_ready(arguments)
    begin = time.perf_counter()
    lowered = function.lower(*arguments)
    middle = time.perf_counter()
    lowered.compile()
    return middle - begin, time.perf_counter() - middle


def _jax_function(program: str) -> tuple[Any, Any]:
    """Return a function that jax.jit has not seen, and its arguments."""
    import jax

    if program in _FORMULAS:
        return jax_function(_FORMULAS[program])
    if program in _LSTMS:
        return recurrent.jax_function(recurrent.LSTM, _LSTMS[program])
    if program == "mlp-step":
        update, state = mlp.jax_update()
        return update, [state, *map(jax.device_put, mlp.batches(128, 1)[0])]
    update, state = gpt.jax_update(gpt.SMALL)
    return update, [state, *map(jax.device_put, gpt.SMALL.batches()[0])]


if __name__ == "__main__":
    main()
