"""What other libraries call it: hints for attributes that tensors don't have."""

from __future__ import annotations

from graphfw.ir.functions import FUNCTIONS

_HINTS = {
    "assign": "write gf.update(variable, value), and fetch that",
    "backward": "write gf.grad(loss, xs), or optimizer.minimize(loss)",
    "clone": "tensors don't change, so none needs a copy",
    "copy": "tensors don't change, so none needs a copy",
    "cpu": "the session chooses the machine: gf.Session(g, executor=…)",
    "cuda": "the session chooses the machine: gf.Session(g, executor=…)",
    "detach": "write gf.stop_gradient(x)",
    "double": "write x.astype(gf.float64)",
    "flatten": "write x.reshape(-1)",
    "float": "write x.astype(gf.float32)",
    "int": "write x.astype(gf.int32)",
    "long": "write x.astype(gf.int64)",
    "numel": "write x.size",
    "permute": "write gf.permute_dims(x, axes)",
    "requires_grad": "write gf.grad(loss, [x]): gradients exist for every tensor",
    "to": "write x.astype(dtype); the session chooses the machine: gf.Session(g, executor=…)",
    "tolist": "write x.numpy().tolist()",
    "transpose": "write gf.permute_dims(x, axes), or x.mT for the last two dims",
    "unique": "write gf.unique_values(x), or gf.unique_all(x)",
    "unsqueeze": "write gf.expand_dims(x, axis=…)",
    "view": "write x.reshape(…)",
}


def hint(name: str) -> str:
    """Say what to write instead of an attribute, or nothing."""
    if name in _HINTS:
        return _HINTS[name]
    return f"write gf.{name}(x)" if name in FUNCTIONS else ""
