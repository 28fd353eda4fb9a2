"""Random small networks trained beside PyTorch, in float64; their losses are compared.

A few trainings are chaotic: a norm over two features lets rounding errors grow tenfold in each step
or two. A twin in PyTorch, whose first weights differ in their last bits, shows how far they grow.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np

import graphfw as gf
from tests.fuzz.checks import seen

STEPS = 40
SMOOTH = ("Tanh", "GELU", "SiLU", "Softplus", "Sigmoid", "Mish", "ELU", "Softsign")
"""Functions without kinks: those that turn rounding errors into other signs part losses sooner."""

GROWTH = 1000.0
"""The most that our losses may differ from PyTorch's, in multiples of its twin's difference."""

ADAPTIVE = ("Adam", "AdamW", "Adamax", "RAdam")
"""Optimisers with two running means, whose shares are options."""

Layer = tuple[str, tuple[Any, ...]]


def training(seed: int) -> None:
    """Train a network and its counterpart with batches of changing sizes."""
    import torch

    torch.set_num_threads(1)  # as in `torch_space`
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    images = rng.random() < 0.4
    classes = int(rng.integers(2, 6))
    size = (int(rng.integers(1, 4)), 7, 6) if images else (int(rng.integers(1, 12)),)
    layers = _images(rng, size, classes) if images else _rows(rng, size[0], classes)
    text, ours, theirs = _optimiser(rng, torch)
    try:
        _train(rng, layers, ours, theirs, size, classes, torch)
    except Exception as error:
        error.add_note("\n".join(f"{name}{arguments}" for name, arguments in [*layers, text]))
        raise
    seen["trainings"] += 1


def _train(
    rng: np.random.Generator,
    layers: list[Layer],
    ours: Any,
    theirs: Any,
    size: tuple[int, ...],
    classes: int,
    torch: Any,
) -> None:
    other = torch.nn.Sequential(*[getattr(torch.nn, name)(*given) for name, given in layers])
    other = other.double()
    labelled = rng.random() < 0.5
    with gf.default_dtype("float64"), gf.Graph() as g:
        model = gf.nn.Sequential(*[getattr(gf.nn, name)(*given) for name, given in layers])
        x = gf.placeholder(("batch", *size), "float64", name="x")
        kind = ("batch",) if labelled else ("batch", classes)
        y = gf.placeholder(kind, "int64" if labelled else "float64", name="y")
        loss = (gf.nn.cross_entropy if labelled else gf.nn.mse)(model(x), y)
        train = ours().minimize(loss)
    twin = copy.deepcopy(other)
    with torch.no_grad():
        for parameter in twin.parameters():
            parameter.mul_(1 + 2.0**-52)
    trained = [(one, theirs(one.parameters())) for one in (other, twin)]
    criterion = torch.nn.CrossEntropyLoss() if labelled else torch.nn.MSELoss()
    with gf.Session(g, threads=int(rng.integers(1, 3))) as session:
        state = {name: tensor.numpy() for name, tensor in other.state_dict().items()}
        model.load_state_dict(session, state, format="torch")
        for step in range(STEPS):
            batch = int(rng.integers(2, 40))
            data = rng.standard_normal((batch, *size))
            target = rng.integers(classes, size=batch)
            wanted = target if labelled else np.eye(classes)[target] + data.mean()
            found, _ = session.run([loss, train], {x: data, y: wanted})
            expected, beside = (
                _step(*one, criterion, torch.tensor(data), torch.tensor(wanted)) for one in trained
            )
            apart = 1e-9 + GROWTH * abs(expected - beside)
            np.testing.assert_allclose(
                found, expected, rtol=1e-7, atol=apart, err_msg=f"loss of step {step}"
            )
            seen["steps"] += 1


def _step(network: Any, optimiser: Any, criterion: Any, x: Any, y: Any) -> float:
    """Train one of PyTorch's networks for a step; return its loss before."""
    optimiser.zero_grad()
    loss = criterion(network(x), y)
    loss.backward()
    optimiser.step()
    return float(loss.item())


def _activation(rng: np.random.Generator) -> Layer:
    return str(rng.choice(SMOOTH)), ()


def _rows(rng: np.random.Generator, features: int, classes: int) -> list[Layer]:
    found: list[Layer] = []
    for _ in range(rng.integers(1, 4)):
        wider = int(rng.integers(1, 24))
        found.append(("Linear", (features, wider, bool(rng.random() < 0.8))))
        features = wider
        if features > 1 and rng.random() < 0.3:
            found.append(("LayerNorm", (features,)))
        elif rng.random() < 0.3:
            found.append(("BatchNorm1d", (features,)))
        found.append(_activation(rng))
    return [*found, ("Linear", (features, classes))]


def _images(rng: np.random.Generator, size: tuple[int, ...], classes: int) -> list[Layer]:
    channels, height, width = size
    found: list[Layer] = []
    for _ in range(rng.integers(1, 3)):
        wider, kernel = int(rng.integers(1, 9)), int(rng.integers(1, 4))
        found.append(("Conv2d", (channels, wider, kernel, 1, kernel // 2)))
        channels = wider
        height, width = (d + 2 * (kernel // 2) - kernel + 1 for d in (height, width))
        if rng.random() < 0.5:
            found.append(("BatchNorm2d", (channels,)))
        found.append(_activation(rng))
    if rng.random() < 0.6:
        found.append((str(rng.choice(["AvgPool2d", "MaxPool2d"])), (2,)))
        height, width = height // 2, width // 2
    return [*found, ("Flatten", ()), ("Linear", (channels * height * width, classes))]


def _optimiser(rng: np.random.Generator, torch: Any) -> tuple[Layer, Any, Any]:
    """Return an optimiser in words, and as both sides make it."""
    name = str(rng.choice([*ADAPTIVE, "SGD", "RMSprop", "Adagrad", "Adadelta", "Adafactor"]))
    rate = float(10 ** rng.uniform(-4, -2))
    options: dict[str, Any] = {"weight_decay": float(rng.choice([0.0, 0.01]))}
    if name == "SGD":
        options["momentum"] = float(rng.choice([0.0, 0.9]))
        options["nesterov"] = bool(options["momentum"] and rng.random() < 0.5)
    elif name == "RMSprop":
        options |= {"momentum": float(rng.choice([0.0, 0.5])), "eps": 1e-6}
    elif name in ADAPTIVE:
        options |= {"betas": (float(rng.choice([0.9, 0.7])), 0.99), "eps": 1e-6}
    return (
        (name, (rate, options)),
        lambda: getattr(gf.optim, name)(rate, **options),
        lambda parameters: getattr(torch.optim, name)(parameters, rate, **options),
    )
