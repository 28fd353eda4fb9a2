"""Data for training: batches of arrays and files, and feeds that are made in advance of a run.

```python
batches = gf.data.batches({"x": images, "y": labels}, 32, seed=0, epochs=3)
for feed in gf.data.feeds(batches, plan):
    loss, _ = plan(*feed.values())
```

`gf.data.feeds` also takes datasets of the package grain, PyTorch's `DataLoader`, lists and
generators.
"""

from typing import TYPE_CHECKING

from graphfw.data.arrays import Batches, batches
from graphfw.data.combined import mixed, packed
from graphfw.data.feeds import Feeds, feeds
from graphfw.data.files import (
    ImageFolder,
    ParquetBatches,
    TarExamples,
    decode_image,
    images,
    parquet,
    tar,
)
from graphfw.data.padding import padded
from graphfw.hints.names import hints_for_module

__all__ = [
    "Batches",
    "Feeds",
    "ImageFolder",
    "ParquetBatches",
    "TarExamples",
    "batches",
    "decode_image",
    "feeds",
    "images",
    "mixed",
    "packed",
    "padded",
    "parquet",
    "tar",
]

if not TYPE_CHECKING:  # which would take a module with `__getattr__` to have every name
    __getattr__, __dir__ = hints_for_module("gf.data", __name__, __all__)
