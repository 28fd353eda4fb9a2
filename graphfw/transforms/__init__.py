"""Graph → graph for the user: differentiation, batching."""

from graphfw.transforms.custom import custom_gradient
from graphfw.transforms.functional import jvp, linearize, vjp
from graphfw.transforms.grad import grad, value_and_grad
from graphfw.transforms.jacobians import hessian, hvp, jacfwd, jacobian, jacrev
from graphfw.transforms.vmap import vmap

__all__ = [
    "custom_gradient",
    "grad",
    "hessian",
    "hvp",
    "jacfwd",
    "jacobian",
    "jacrev",
    "jvp",
    "linearize",
    "value_and_grad",
    "vjp",
    "vmap",
]
