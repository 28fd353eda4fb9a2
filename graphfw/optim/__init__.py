"""Optimisers, learning-rate schedules, gradient clipping: public as `graphfw.optim`."""

from typing import TYPE_CHECKING

from graphfw.hints.names import hints_for_module
from graphfw.optim import schedules, transforms
from graphfw.optim.adafactor import Adafactor
from graphfw.optim.adam import Adam, AdamW
from graphfw.optim.adam_relatives import Adamax, NAdam, RAdam
from graphfw.optim.adaptive import Adadelta, Adagrad, RMSprop
from graphfw.optim.averages import EMA, SWA
from graphfw.optim.base import Optimizer
from graphfw.optim.carried import layer_updates
from graphfw.optim.chained import chain
from graphfw.optim.clip import clip_by_global_norm, clip_by_value, global_norm
from graphfw.optim.layerwise import LAMB, LARS
from graphfw.optim.lbfgs import LBFGS
from graphfw.optim.lion import Lion
from graphfw.optim.lookahead import Lookahead
from graphfw.optim.loss_scale import LossScale
from graphfw.optim.multi_steps import MultiSteps
from graphfw.optim.muon import Muon
from graphfw.optim.plateau import ReduceOnPlateau
from graphfw.optim.sam import SAM
from graphfw.optim.sgd import SGD
from graphfw.optim.soap import SOAP
from graphfw.optim.sophia import Sophia

__all__ = [
    "EMA",
    "LAMB",
    "LARS",
    "LBFGS",
    "SAM",
    "SGD",
    "SOAP",
    "SWA",
    "Adadelta",
    "Adafactor",
    "Adagrad",
    "Adam",
    "AdamW",
    "Adamax",
    "Lion",
    "Lookahead",
    "LossScale",
    "MultiSteps",
    "Muon",
    "NAdam",
    "Optimizer",
    "RAdam",
    "RMSprop",
    "ReduceOnPlateau",
    "Sophia",
    "chain",
    "clip_by_global_norm",
    "clip_by_value",
    "global_norm",
    "layer_updates",
    "schedules",
    "transforms",
]

if not TYPE_CHECKING:  # which would take a module with `__getattr__` to have every name
    __getattr__, __dir__ = hints_for_module("gf.optim", __name__, __all__)
