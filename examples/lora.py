"""Adapt a language model to another task, by updates of low rank (LoRA).

    pip install -e ".[text]"
    python examples/lora.py [--steps 600] [--adapting 400] [--rank 4] [--out lora-out]

First a small GPT-2 learns to write words backwards, and becomes a folder as transformers writes
them: `config.json`, `model.safetensors` and `tokenizer.json`. The second half is what one does with
a folder that was downloaded: it loads the model, freezes it, and trains low-rank updates for
another task, in which each letter also becomes the next one of the alphabet. They are saved to a
file of their own, and merged into the weights.

Needs the extra `text` (tokenizers). Takes some ten seconds.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from string import ascii_lowercase
from typing import Any

import numpy as np
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

import graphfw as gf

Array = np.ndarray[Any, Any]
Task = Callable[[str], str]

WORD = 6
"""The letters of a word: a line is "planet>tenalp"."""


def backwards(word: str) -> str:
    """Return the answer of the first task."""
    return word[::-1]


def coded(word: str) -> str:
    """Return the answer of the second task: backwards, with the next letter for each."""
    return "".join(ascii_lowercase[(ascii_lowercase.index(c) + 1) % 26] for c in word[::-1])


def make_folder(folder: Path) -> None:
    """Write a configuration and a tokenizer, which has a token for each letter."""
    folder.mkdir(parents=True, exist_ok=True)
    vocabulary = {letter: number for number, letter in enumerate(ascii_lowercase + ">")}
    options = {
        "model_type": "gpt2",
        "architectures": ["GPT2LMHeadModel"],
        "vocab_size": len(vocabulary),
        "n_positions": 2 * WORD + 1,
        "n_embd": 64,
        "n_layer": 2,
        "n_head": 4,
        "resid_pdrop": 0.0,
        "embd_pdrop": 0.0,
        "attn_pdrop": 0.0,
        "bos_token_id": None,
        "eos_token_id": None,
    }
    (folder / "config.json").write_text(json.dumps(options, indent=2))
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=">"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    tokenizer.decoder = decoders.Fuse()
    tokenizer.save(str(folder / "tokenizer.json"))


class Words:
    """Random words, of which the tested ones are none of the trained ones."""

    def __init__(self, tokenizer: Tokenizer, seed: int, tested: int = 500) -> None:
        rng = np.random.default_rng(seed)
        letters = np.unique(rng.integers(0, 26, (20_000, WORD)), axis=0)
        words = ["".join(ascii_lowercase[i] for i in word) for word in rng.permutation(letters)]
        self.tokenizer = tokenizer
        self.train, self.test = words[tested:], words[:tested]

    def lines(self, words: list[str], task: Task) -> Array:
        """Return the tokens of words with their answers.  [N, 2 * WORD + 1]"""
        lines = [f"{word}>{task(word)}" for word in words]
        return np.array([line.ids for line in self.tokenizer.encode_batch(lines)])


def fit(model: gf.models.GPT2, words: Words, task: Task, steps: int, rate: float) -> None:
    """Train what is not frozen of a model to write the answers of a task."""
    schedule = gf.optim.schedules.cosine(rate, steps, warmup=steps // 20)
    optimizer = gf.optim.AdamW(schedule)

    @gf.function
    def train_step(tokens: gf.Tensor) -> gf.Tensor:
        logits = model(tokens[:, :-1])[:, WORD:]  # from the ">" on: the words are random
        loss = gf.nn.cross_entropy(logits, tokens[:, WORD + 1 :])
        optimizer.minimize(loss)
        return loss

    lines = words.lines(words.train, task)
    losses = []
    data = gf.data.batches(lines, 64, seed=0, epochs=None)
    for step, batch in zip(range(1, steps + 1), data, strict=False):
        losses.append(float(train_step(batch)))
        if step % 200 == 0 or step == steps:
            print(f"  step {step:5}: loss {np.mean(losses[-200:]):.4f}")


def share_right(model: gf.models.GPT2, words: Words, task: Task) -> float:
    """Return for how many of the tested words the model writes the whole answer."""

    @gf.function
    def answers(prompt: gf.Tensor) -> gf.Tensor:
        return gf.nn.generate(model, prompt, WORD)

    lines = words.lines(words.test, task)
    return float(np.mean(np.all(answers(lines[:, : WORD + 1]) == lines, axis=1)))


def loaded(folder: Path) -> gf.models.GPT2:
    """Return the model of a folder, with its weights."""
    model = gf.models.from_pretrained(folder)
    model.load_pytorch(folder, names=model.names)
    return model


def main() -> None:
    """Make the folder, adapt its model, and say what it can do before and after."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=600, help="steps of the first training")
    parser.add_argument("--adapting", type=int, default=400, help="steps of the second one")
    parser.add_argument("--rank", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("lora-out"))
    parser.add_argument("--quick", action="store_true", help="only see that it runs")
    options = parser.parse_args()
    if options.quick:
        options.steps = options.adapting = 5
    base, merged = options.out / "base", options.out / "merged"
    gf.set_seed(options.seed)

    make_folder(base)
    words = Words(gf.models.tokenizer(base), options.seed)
    model = gf.models.from_pretrained(base)
    print("The first task:", ", ".join(f"{word}>{backwards(word)}" for word in words.test[:3]))
    model.train()
    fit(model, words, backwards, options.steps, 2e-3)
    model.save_pytorch(base / "model.safetensors", names=model.names)

    model = loaded(base)
    print("The second task:", ", ".join(f"{word}>{coded(word)}" for word in words.test[:3]))
    first, before = share_right(model, words, backwards), share_right(model, words, coded)
    adapters = gf.nn.lora(model, "layers", rank=options.rank, alpha=2 * options.rank)
    model.train()
    fit(model, words, coded, options.adapting, 1e-2)
    after = share_right(model, words, coded)
    adapters.save(options.out / "adapters.safetensors")

    adapters.merge()
    shutil.copytree(base, merged, dirs_exist_ok=True)
    model.save_pytorch(merged / "model.safetensors", names=model.names)
    again = share_right(loaded(merged), words, coded)

    count = sum(math.prod(weight.shape) for weight in adapters.parameters())
    every = sum(math.prod(weight.shape) for weight in loaded(base).parameters())
    print(f"trained {count:,} parameters for the second task; the model has {every:,}")
    for path in (options.out / "adapters.safetensors", merged / "model.safetensors"):
        print(f"{path}: {path.stat().st_size / 1024:.0f} KiB")
    print(f"first task: {first:.1%} right")
    print(f"second task: {before:.1%} before, {after:.1%} after, {again:.1%} merged and loaded")
    if not options.quick and (min(first, after) < 0.9 or again < after - 0.01):
        raise SystemExit("the model did not learn as it should")


if __name__ == "__main__":
    main()
