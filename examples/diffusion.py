"""A diffusion model that writes digits: it learns to take noise away, and begins with noise alone.

    python examples/diffusion.py [--epochs 60] [--seed 0] [--out diffusion-out]

Images get ever more noise in 100 steps; a U-Net learns to find the noise in an image, given the
step and the digit (J. Ho et al., "Denoising diffusion probabilistic models", 2020; J. Ho, T.
Salimans, "Classifier-free diffusion guidance", 2022). All steps back are one loop in one run. The
weights that draw are moving averages of those that were trained.

Needs the extra `examples` (scikit-learn for the data, matplotlib). Takes a minute or two.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import matplotlib as mpl
import numpy as np
from sklearn.datasets import load_digits
from sklearn.neighbors import KNeighborsClassifier

import graphfw as gf

mpl.use("Agg")
from matplotlib import pyplot as plt

Array = np.ndarray

STEPS = 100
CLASSES = 10
ANY = CLASSES
"""The label that stands for any digit."""

NOISE = np.linspace(1e-3, 0.1, STEPS, dtype=np.float32)
"""The variance of the noise that each step adds."""
LEFT = np.cumprod(1 - NOISE, dtype=np.float32)
"""The share of an image's variance that is left after each step."""


class Denoiser(gf.nn.Module):
    """Finds the noise in images.  x: [B, 1, 8, 8], step: [B], label: [B] -> [B, 1, 8, 8]"""

    def __init__(self, channels: int = 32, size: int = 64) -> None:
        """Make the U-Net, and vectors for steps and digits."""
        self.step = gf.nn.Embedding(STEPS, size)
        self.label = gf.nn.Embedding(CLASSES + 1, size)
        self.mix = gf.nn.Sequential(gf.nn.Linear(size, size), gf.nn.SiLU())
        self.unet = gf.models.UNet(1, 1, depth=2, base_channels=channels, embedding_dim=size)

    def forward(self, x: gf.Tensor, step: gf.Tensor, label: gf.Tensor) -> gf.Tensor:
        """Return the noise."""
        return self.unet(x, self.mix(self.step(step) + self.label(label)))


def loss_of(model: Denoiser, images: gf.Tensor, labels: gf.Tensor) -> gf.Tensor:
    """Return the mean squared error of the noise that the model finds, at steps drawn at random."""
    count = images.shape[0]
    step = gf.random.randint(0, STEPS, (count,), name="step")
    noise = gf.random.normal(images.shape, name="noise")
    left = gf.reshape(gf.take(LEFT, step), (count, 1, 1, 1))
    noisy = gf.sqrt(left) * images + gf.sqrt(1 - left) * noise
    # One in ten is learnt without its label: what any digit looks like.
    label = gf.where(gf.random.bernoulli(0.1, (count,), name="hidden"), ANY, labels)
    return gf.mean((model(noisy, step, label) - noise) ** 2)


def drawn(model: Denoiser, labels: gf.Tensor, guidance: float = 2.0) -> gf.Tensor:
    """Draw images of digits: from noise, step by step.  labels: [B] -> [B, 1, 8, 8]"""
    shape = (labels.shape[0], 1, 8, 8)

    def step_back(i: gf.Tensor, x: gf.Tensor) -> gf.Tensor:
        step = STEPS - 1 - i
        steps = gf.broadcast_to(step, (labels.shape[0],))
        with gf.training(False):
            of_label = model(x, steps, labels)
            of_any = model(x, steps, gf.full_like(labels, ANY))
        found = of_any + guidance * (of_label - of_any)
        noise, left = gf.take(NOISE, step), gf.take(LEFT, step)
        mean = (x - noise / gf.sqrt(1 - left) * found) / gf.sqrt(1 - noise)
        added = gf.sqrt(noise) * gf.random.normal(shape, name="added")
        return gf.where(step > 0, mean + added, mean)

    return gf.fori_loop(0, STEPS, step_back, gf.random.normal(shape, name="begin"))


def main() -> None:
    """Do it all."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("diffusion-out"))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)

    digits = load_digits()
    images = (digits.images[:, None] / 8 - 1).astype(np.float32)
    labels = digits.target.astype(np.int64)
    gf.set_seed(options.seed)
    model = Denoiser()
    steps = options.epochs * -(-len(images) // 64)
    optimizer = gf.optim.EMA(gf.optim.AdamW(gf.optim.schedules.cosine(2e-3, steps)), decay=0.99)

    @gf.function
    def train_step(x: gf.Tensor, y: gf.Tensor) -> gf.Tensor:
        loss = loss_of(model, x, y)
        optimizer.minimize(loss)
        return loss

    data = gf.data.batches({"x": images, "y": labels}, 64, seed=options.seed, epochs=options.epochs)
    losses = [float(train_step(one["x"], one["y"])) for one in data]

    @gf.function
    def draw(label: gf.Tensor) -> gf.Tensor:
        return optimizer.averaged(drawn(model, label))

    wanted = np.repeat(np.arange(CLASSES), 10)
    made = draw(wanted)
    # Somebody else reads what was written.
    reader = KNeighborsClassifier(3).fit(images.reshape(len(images), -1), labels)
    read = float(np.mean(reader.predict(made.reshape(len(made), -1)) == wanted))

    tiles = np.pad(made.reshape(10, 10, 8, 8), ((0, 0), (0, 0), (1, 1), (1, 1)), constant_values=-1)
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
    left.imshow(tiles.transpose(0, 2, 1, 3).reshape(100, 100), cmap="gray_r", vmin=-1, vmax=1)
    left.set(title=f"drawn digits; {read:.0%} are read as meant")
    left.axis("off")
    mean = np.convolve(losses, np.ones(20) / 20, "valid")
    right.plot(mean)
    right.set(title="loss", xlabel="step", yscale="log")
    figure.savefig(options.out / "diffusion.png", dpi=90)
    print(f"loss {mean[0]:.3f} to {mean[-1]:.3f}, {read:.0%} of the drawn digits are read as meant")
    if options.epochs >= 30 and read < 0.8:
        raise SystemExit("fewer than 80% are")


if __name__ == "__main__":
    main()
