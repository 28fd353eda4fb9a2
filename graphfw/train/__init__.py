"""Training loops: steps over data, evaluation, checkpoints to resume from, and loggers.

```python
@gf.function
def train_step(x, y):
    loss = gf.nn.cross_entropy(model(x), y)
    optimizer.minimize(loss)
    return loss


trainer = gf.train.Trainer(train_step, checkpoints=gf.train.Checkpoints("runs/first"))
result = trainer.fit(gf.data.batches({"x": images, "y": labels}, 32, seed=0, epochs=10))
```

`Trainer` is a loop over `gf.data.feeds` that calls a function, or a plan of a session. If it does
not fit, write your own loop with the same functions.
"""

from typing import TYPE_CHECKING

from graphfw.hints.names import hints_for_module
from graphfw.train.checkpoints import Checkpoints
from graphfw.train.evaluation import evaluate
from graphfw.train.loggers import Csv, JsonLines, Logger, TensorBoard
from graphfw.train.rates import LearningRates, find_learning_rate
from graphfw.train.records import run_record
from graphfw.train.services import MLflow, Trackio, Wandb
from graphfw.train.trainer import Callback, Trainer, Training

__all__ = [
    "Callback",
    "Checkpoints",
    "Csv",
    "JsonLines",
    "LearningRates",
    "Logger",
    "MLflow",
    "TensorBoard",
    "Trackio",
    "Trainer",
    "Training",
    "Wandb",
    "evaluate",
    "find_learning_rate",
    "run_record",
]

if not TYPE_CHECKING:  # which would take a module with `__getattr__` to have every name
    __getattr__, __dir__ = hints_for_module("gf.train", __name__, __all__)
