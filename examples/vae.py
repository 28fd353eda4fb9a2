"""A variational autoencoder of handwritten digits: it compresses them, and draws new ones.

    python examples/vae.py [--epochs 150] [--seed 0] [--out vae-out]

The encoder gives a distribution of two numbers for each image, the decoder a distribution of images
for two numbers. Both are trained by the evidence lower bound (D. Kingma, M. Welling, "Auto-encoding
variational Bayes", 2014). The picture shows images with their reconstructions, and the images that
the decoder has in mind all over the plane.

Needs the extra `examples` (scikit-learn for the data, matplotlib). Takes less than a minute.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import matplotlib as mpl
import numpy as np
from sklearn.datasets import load_digits

import graphfw as gf

mpl.use("Agg")
from matplotlib import pyplot as plt

Array = np.ndarray
D = gf.distributions
PIXELS, LATENT = 64, 2


class Autoencoder(gf.nn.Module):
    """Images to distributions of codes, and codes to distributions of images."""

    def __init__(self, width: int = 256) -> None:
        """Make the encoder and the decoder."""
        self.encoder = gf.nn.Sequential(
            gf.nn.Linear(PIXELS, width),
            gf.nn.ReLU(),
            gf.nn.Linear(width, width),
            gf.nn.ReLU(),
            gf.nn.Linear(width, 2 * LATENT),
        )
        self.decoder = gf.nn.Sequential(
            gf.nn.Linear(LATENT, width),
            gf.nn.ReLU(),
            gf.nn.Linear(width, width),
            gf.nn.ReLU(),
            gf.nn.Linear(width, PIXELS),
        )

    def encode(self, x: gf.Tensor) -> gf.distributions.Normal:
        """Return the distribution of codes.  x: [B, 64] -> [B, 2]"""
        loc, raw = gf.split(self.encoder(x), 2, axis=1)
        return D.Normal(loc, gf.softplus(raw) + 1e-4)

    def decode(self, z: gf.Tensor) -> gf.distributions.Bernoulli:
        """Return the distribution of pixels.  z: [B, 2] -> [B, 64]"""
        return D.Bernoulli(logits=self.decoder(z))

    def forward(self, x: gf.Tensor) -> gf.Tensor:
        """Return the negative evidence lower bound of each image, in nats.  x: [B, 64] -> [B]"""
        code = self.encode(x)
        image = self.decode(code.rsample())
        # Grey is a probability of white: the expected log-probability, without drawing pixels.
        fits = gf.sum(gf.nn.bce_with_logits(image.logits, x, reduction="none"), axis=1)
        return fits + gf.sum(D.kl_divergence(code, D.Normal(0.0, 1.0)), axis=1)


def train(model: Autoencoder, images: Array, epochs: int, seed: int) -> list[float]:
    """Train, and return the mean loss of each epoch."""
    batch = 64
    steps = epochs * -(-len(images) // batch)
    optimizer = gf.optim.Adam(gf.optim.schedules.cosine(2e-3, steps))

    @gf.function
    def step(x: gf.Tensor) -> gf.Tensor:
        loss = gf.mean(model(x))
        optimizer.minimize(loss)
        return loss

    data = gf.data.batches({"x": images}, batch, seed=seed, epochs=epochs)
    losses = [float(step(one["x"])) for one in data]
    return [float(np.mean(some)) for some in np.array_split(losses, epochs)]


def sheet(images: Array, columns: int) -> Array:
    """Return images side by side in rows, with a line between them.  [N, 64] -> [H, W]"""
    tiles = np.pad(images.reshape(-1, columns, 8, 8), ((0, 0), (0, 0), (1, 1), (1, 1)))
    return tiles.transpose(0, 2, 1, 3).reshape(-1, columns * 10)


def draw(path: Path, model: Autoencoder, images: Array, labels: Array, losses: list[float]) -> None:
    """Write a picture: reconstructions, the plane of codes, and what the decoder sees there."""

    @gf.function
    def seen(x: gf.Tensor) -> tuple[gf.Tensor, gf.Tensor]:
        code = model.encode(x).mean
        return code, model.decode(code).mean

    @gf.function
    def imagined(z: gf.Tensor) -> gf.Tensor:
        return model.decode(z).mean

    codes, again = seen(images)
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(13, 4.2), layout="constrained")
    rows = [some[i : i + 8] for i in (0, 8, 16, 24) for some in (images, again)]
    left.imshow(sheet(np.concatenate(rows), 8), cmap="gray_r")
    left.set(title=f"images, and below what they become\n(loss {losses[-1]:.1f} nats)")
    left.axis("off")
    dots = middle.scatter(*codes.T, c=labels, cmap="tab10", s=5)
    middle.set(title="the codes of the images, by digit")
    figure.colorbar(dots, ax=middle, ticks=range(10))
    # As dense as the codes: through the inverse of the normal distribution function.
    edge = np.asarray(D.Normal(0.0, 1.0).icdf(np.linspace(0.03, 0.97, 12)))
    z = np.stack(np.meshgrid(edge, edge[::-1]), axis=-1).reshape(-1, 2).astype(np.float32)
    right.imshow(sheet(imagined(z), 12), cmap="gray_r")
    right.set(title="images of codes all over the plane")
    right.axis("off")
    figure.savefig(path, dpi=90)


def main() -> None:
    """Do it all."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=150)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("vae-out"))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)

    digits = load_digits()
    images = (digits.data / 16).astype(np.float32)
    gf.set_seed(options.seed)
    model = Autoencoder()
    losses = train(model, images, options.epochs, options.seed)
    draw(options.out / "vae.png", model, images, digits.target, losses)
    model.save(options.out / "vae.safetensors")
    print(f"loss {losses[0]:.1f} to {losses[-1]:.1f} nats")
    # The same image for all digits, the mean, has a loss of 27.
    if options.epochs >= 100 and not losses[-1] < 25:
        raise SystemExit("25 nats were expected at most")


if __name__ == "__main__":
    main()
