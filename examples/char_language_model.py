"""Train a language model of characters, and let it write.

    python examples/char_language_model.py [--text FILE ...] [--steps 800] [--resume]

The text is this project's documentation, or that of your own files. The model is a small Llama:
rotary positions, RMSNorm, gated feed-forward networks. It is trained on windows of the text at
random places; the last tenth of the text says how well it predicts, in bits per character.

Needs nothing but graphfw. Takes about a minute. A run that was stopped goes on with --resume.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import Any

import numpy as np

import graphfw as gf

Array = np.ndarray[Any, Any]

DOCS = sorted((Path(__file__).resolve().parent.parent / "docs").glob("*.md"))


class Alphabet:
    """The characters of a text, and their numbers."""

    def __init__(self, text: str) -> None:
        self.letters = sorted(set(text))
        self.number_of = {letter: number for number, letter in enumerate(self.letters)}

    def encode(self, text: str) -> Array:
        """Return the numbers of the characters; those that are not in the alphabet are left out."""
        return np.array([self.number_of[c] for c in text if c in self.number_of], np.int64)

    def decode(self, codes: Array) -> str:
        """Return the text of some numbers."""
        return "".join(self.letters[code] for code in codes)


def windows(codes: Array, length: int) -> Array:
    """Return a view of each piece of the text, with the character after it.  [N, length + 1]"""
    return np.lib.stride_tricks.sliding_window_view(codes, length + 1)


class Writer:
    """The model, and the functions that train it, test it and let it write."""

    def __init__(self, vocabulary: int, width: int, steps: int) -> None:
        config = gf.models.LlamaConfig(
            vocab_size=vocabulary,
            embed_dim=width,
            num_layers=3,
            num_heads=4,
            feedforward_dim=2 * width,
            tied_head=True,
        )
        model = gf.models.Llama(config)
        rate = gf.optim.schedules.cosine(3e-3, steps, final=3e-4, warmup=steps // 10)
        optimizer = gf.optim.AdamW(rate, betas=(0.9, 0.95), weight_decay=0.1, clip_norm=1.0)

        def loss_of(tokens: gf.Tensor) -> gf.Tensor:
            return gf.nn.cross_entropy(model(tokens[:, :-1]), tokens[:, 1:])

        @gf.function
        def train_step(tokens: gf.Tensor) -> gf.Tensor:
            loss = loss_of(tokens)
            optimizer.minimize(loss)
            return loss

        @gf.function
        def evaluate(tokens: gf.Tensor) -> gf.Tensor:
            return loss_of(tokens)

        @gf.function
        def write(
            prompt: gf.Tensor, temperature: gf.Tensor, top_p: gf.Tensor, *, count: int
        ) -> gf.Tensor:
            return gf.nn.generate(
                model, prompt, count, do_sample=True, temperature=temperature, top_p=top_p
            )

        self.model = model
        self.train_step, self.evaluate, self.write = train_step, evaluate, write


def bits_per_character(writer: Writer, codes: Array, length: int) -> float:
    """Return the bits that the model needs for a character of text that it has not seen."""
    pieces = gf.data.batches(windows(codes, length)[::length], 32)
    losses = [float(writer.evaluate(piece)) for piece in pieces]
    counts = [len(piece) for piece in pieces]
    return float(np.average(losses, weights=counts)) / math.log(2)


def train(writer: Writer, codes: Array, test: Array, options: argparse.Namespace) -> float:
    """Train, with a test and a checkpoint after each hundred steps; return the last test's bits."""
    length = options.length
    data = gf.data.batches({"tokens": windows(codes, length)}, 8, seed=0, epochs=None)
    plan = writer.train_step.plan(data[0]["tokens"])
    checkpoints = gf.train.Checkpoints(options.out, keep_last=1)
    session, done, position = writer.train_step.session, 0, None
    if options.resume and checkpoints.latest is not None:
        found = session.restore(checkpoints.latest).metadata
        done, position = found["step"], found["data"]
        print(f"goes on after step {done}")
    bits = bits_per_character(writer, test, length)
    print(f"step {done:5}  test {bits:.2f} bits per character")
    losses = []
    with gf.data.feeds(data, plan, position=position) as feeds:
        for step, feed in zip(range(done + 1, options.steps + 1), feeds, strict=False):
            losses.append(float(writer.train_step(*feed.values())))
            if step % 100 == 0 or step == options.steps:
                bits = bits_per_character(writer, test, length)
                seen = np.mean(losses[-100:]) / math.log(2)
                print(f"step {step:5}  training {seen:.2f}, test {bits:.2f} bits per character")
                checkpoints.save(session, step, {"step": step, "data": feeds.position})
    return bits


def main() -> None:
    """Train on a text, say how well it is predicted, and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--text", type=Path, nargs="+", default=DOCS, metavar="FILE")
    parser.add_argument("--steps", type=int, default=800)
    parser.add_argument("--length", type=int, default=256, help="characters in a window")
    parser.add_argument("--width", type=int, default=96, help="numbers for each character")
    parser.add_argument("--prompt", default="A graph ")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--resume", action="store_true", help="go on from the last checkpoint")
    parser.add_argument("--out", type=Path, default=Path("char-language-model-out"))
    options = parser.parse_args()

    text = "\n".join(path.read_text("utf-8") for path in options.text)
    alphabet = Alphabet(text)
    codes = alphabet.encode(text)
    kept = len(codes) * 9 // 10
    if len(codes) - kept <= options.length:
        parser.error("the text is too short for such a --length")
    print(f"{len(text):,} characters, {len(alphabet.letters)} different ones")
    gf.set_seed(options.seed)
    writer = Writer(len(alphabet.letters), options.width, options.steps)
    count = sum(math.prod(weight.shape) for weight in writer.model.parameters())
    print(f"{count:,} parameters")
    bits = train(writer, codes[:kept], codes[kept:], options)
    for temperature, top_p in [(0.5, 1.0), (1.0, 0.9)]:
        prompt = alphabet.encode(options.prompt)[None]
        count = max(options.length - prompt.size, 1)  # it knows no longer texts
        (made,) = writer.write(prompt, np.float32(temperature), np.float32(top_p), count=count)
        print(f"\n--- temperature {temperature}, top_p {top_p}\n{alphabet.decode(made)}")
    print(f"\n{bits:.2f} bits per character")


if __name__ == "__main__":
    main()
