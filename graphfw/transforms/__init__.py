"""Graph → graph for the user: differentiation."""

from graphfw.transforms.custom import custom_gradient
from graphfw.transforms.grad import grad, value_and_grad

__all__ = ["custom_gradient", "grad", "value_and_grad"]
