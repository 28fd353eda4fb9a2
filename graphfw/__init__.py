"""graphfw: describe a computation first, run it later."""

from graphfw.errors import *
from graphfw.ir.ambient import *
from graphfw.ir.dtype import *
from graphfw.ir.graph import Graph, current_graph
from graphfw.ir.variable import Update, Variable, group, update
from graphfw.ir.tensor import Tensor
from graphfw.ops.elementwise import *
from graphfw.ops.inputs import *
from graphfw.ops.linalg import *
from graphfw.ops.movement import *
from graphfw.ops.reduce import *
