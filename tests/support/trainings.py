"""A small training for tests of `gf.train`: a model, its data, and its weights as bytes."""

import numpy as np

import graphfw as gf


class Model:
    """A regression of noise and a sum, with dropout and Adam."""

    def __init__(self, learning_rate=1e-2, seed=1, width=8):
        with gf.Graph() as g:
            self.x = gf.placeholder(("batch", 4), name="x")
            self.y = gf.placeholder(("batch", 1), name="y")
            layers = gf.nn.Sequential(
                gf.nn.Linear(4, width), gf.nn.ReLU(), gf.nn.Dropout(0.2), gf.nn.Linear(width, 1)
            )
            self.loss = gf.mean((layers(self.x) - self.y) ** 2)
            self.step = gf.optim.Adam(learning_rate).minimize(self.loss)
            self.error = gf.mean((layers(self.x, training=False) - self.y) ** 2)
        self.session = gf.Session(g, seed=seed)

    def trainer(self, **options):
        feeds = [self.x, self.y]
        return gf.train.Trainer(
            self.session, self.step, {"loss": self.loss}, feeds=feeds, **options
        )


def columns(rows=96):
    x = np.random.default_rng(0).standard_normal((rows, 4)).astype(np.float32)
    return {"x": x, "y": x.sum(axis=1, keepdims=True)}


def data(**options):
    return gf.data.batches(columns(), 8, **{"seed": 3, "epochs": 3} | options)


def weights(session):
    return {name: array.tobytes() for name, array in session.state_dict().items()}
