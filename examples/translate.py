"""Translate numbers in words from English into French, by an encoder and a decoder.

    python examples/translate.py [--epochs 4] [--examples 16000] [--seed 0]

The sentences are made here: "ninety-one thousand two hundred" is "quatre-vingt-onze mille deux
cents". They have different lengths, so batches are padded, and masks say what is no padding. In
training the decoder sees the words before each word (teacher forcing); afterwards it translates
numbers that it has never seen, word by word.

Needs nothing but graphfw. Takes some twenty seconds.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

import graphfw as gf

Array = np.ndarray[Any, Any]
Cache = tuple[gf.nn.KVCache, ...]

PAD, BEGIN, END = 0, 1, 2

ENGLISH = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen"
    " sixteen seventeen eighteen nineteen"
).split()
ENGLISH_TENS = {2: "twenty", 3: "thirty", 4: "forty", 5: "fifty"}
ENGLISH_TENS |= {6: "sixty", 7: "seventy", 8: "eighty", 9: "ninety"}
FRENCH = (
    "zéro un deux trois quatre cinq six sept huit neuf dix onze douze treize quatorze quinze seize"
    " dix-sept dix-huit dix-neuf"
).split()
FRENCH_TENS = {2: "vingt", 3: "trente", 4: "quarante", 5: "cinquante"}
FRENCH_TENS |= {6: "soixante", 7: "soixante", 8: "quatre-vingt", 9: "quatre-vingt"}


def english(number: int) -> str:
    """Return a number below a million in English words."""
    if number >= 1000:
        rest = f" {english(number % 1000)}" if number % 1000 else ""
        return f"{english(number // 1000)} thousand{rest}"
    if number >= 100:
        rest = f" and {english(number % 100)}" if number % 100 else ""
        return f"{ENGLISH[number // 100]} hundred{rest}"
    if number < 20:
        return ENGLISH[number]
    return ENGLISH_TENS[number // 10] + (f"-{ENGLISH[number % 10]}" if number % 10 else "")


def french(number: int, *, is_last: bool = True) -> str:
    """Return a number below a million in French words; "cents" and "quatre-vingts" lose an s."""
    if number >= 1000:
        count = f"{french(number // 1000, is_last=False)} " if number >= 2000 else ""
        rest = f" {french(number % 1000)}" if number % 1000 else ""
        return f"{count}mille{rest}"
    if number >= 100:
        count = f"{FRENCH[number // 100]} " if number >= 200 else ""
        if number % 100:
            return f"{count}cent {french(number % 100, is_last=is_last)}"
        return f"{count}cent{'s' if count and is_last else ''}"
    if number < 20:
        return FRENCH[number]
    ten, one = divmod(number, 10)
    if ten in (7, 9):  # soixante-dix, quatre-vingt-dix: 60 and 80 with 10 to 19
        one += 10
    if number == 80:
        return "quatre-vingts" if is_last else "quatre-vingt"
    if one in (1, 11) and ten < 8:
        return f"{FRENCH_TENS[ten]} et {FRENCH[one]}"
    return FRENCH_TENS[ten] + (f"-{FRENCH[one]}" if one else "")


class Language:
    """The words of a language, and their numbers."""

    def __init__(self, sentences: list[str]) -> None:
        found = sorted({word for sentence in sentences for word in self._split(sentence)})
        self.words = ["<pad>", "<begin>", "<end>", *found]
        self.number_of = {word: number for number, word in enumerate(self.words)}

    @staticmethod
    def _split(sentence: str) -> list[str]:
        return sentence.replace("-", " - ").split()

    def encode(self, sentence: str) -> list[int]:
        """Return the numbers of the words of a sentence, between BEGIN and END."""
        return [BEGIN, *[self.number_of[word] for word in self._split(sentence)], END]

    def decode(self, codes: Array) -> str:
        """Return the sentence of some numbers, up to the first END."""
        words = [self.words[code] for code in codes if code not in (PAD, BEGIN, END)]
        return " ".join(words).replace(" - ", "-")


class Translator(gf.nn.Module):
    """Logits of the next word of each target.  [N, S], [N, T] -> [N, T, target_words]"""

    def __init__(self, source_words: int, target_words: int, width: int = 64) -> None:
        super().__init__()
        options: dict[str, Any] = {"dropout": 0.0, "norm_first": True, "rotary_base": 10000.0}
        self.source_embedding = gf.nn.Embedding(source_words, width)
        self.target_embedding = gf.nn.Embedding(target_words, width)
        self.encoder = gf.nn.TransformerEncoder(width, 4, 2, **options)
        self.decoder = gf.nn.TransformerDecoder(width, 4, 2, **options)
        self.head = gf.nn.Linear(width, target_words)

    def encode(self, source: gf.Tensor) -> tuple[gf.Tensor, gf.Tensor]:
        """Return vectors of the source's words, and the mask of those that are no padding."""
        seen = (source != PAD)[:, None, :]  # [batch, 1, source]: for each query the same
        return self.encoder(self.source_embedding(source), mask=seen), seen

    def forward(self, source: gf.Tensor, target: gf.Tensor) -> gf.Tensor:
        memory, seen = self.encode(source)
        # Padding follows the words of a target, and attention of a decoder is causal: no word
        # sees it. Only the loss must leave it out.
        return self.head(self.decoder(self.target_embedding(target), memory, memory_mask=seen))


class Translation:
    """A translator with a source, as `gf.nn.generate` calls it: on targets alone."""

    def __init__(self, model: Translator, source: gf.Tensor) -> None:
        self.model = model
        self.memory, self.seen = model.encode(source)  # once, and not for each word

    def init_cache(self, batch: Any, max_length: Any) -> Cache:
        """Return an empty cache of the decoder."""
        return self.model.decoder.init_cache(batch, max_length)

    def __call__(self, tokens: gf.Tensor, cache: Cache) -> tuple[gf.Tensor, Cache]:
        model = self.model
        x = model.target_embedding(tokens)
        x, cache = model.decoder(x, self.memory, memory_mask=self.seen, cache=cache)
        return model.head(x), cache


def main() -> None:
    """Train, translate numbers that were kept, and count the sentences that are right."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--examples", type=int, default=16_000)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="only see that it runs")
    options = parser.parse_args()
    tested = 500
    if options.quick:
        options.examples, options.epochs, tested = 256, 1, 50

    rng = np.random.default_rng(options.seed)
    numbers = rng.choice(1_000_000, options.examples + tested, replace=False)
    pairs = [(english(number), french(number)) for number in numbers.tolist()]
    sources, targets = (Language([pair[side] for pair in pairs]) for side in (0, 1))
    examples = [{"source": sources.encode(a), "target": targets.encode(b)} for a, b in pairs]
    train, test = examples[tested:], examples[:tested]

    gf.set_seed(options.seed)
    model = Translator(len(sources.words), len(targets.words))
    data = gf.data.batches(
        train,
        64,
        seed=options.seed,
        epochs=options.epochs,
        collate_fn=gf.data.padded,
        lengths=[len(example["target"]) for example in train],
    )
    rate = gf.optim.schedules.cosine(2e-3, len(data), warmup=len(data) // 20)
    optimizer = gf.optim.AdamW(rate, clip_norm=1.0)

    @gf.function
    def train_step(source: gf.Tensor, target: gf.Tensor) -> gf.Tensor:
        logits = model(source, target[:, :-1])
        loss = gf.nn.cross_entropy(logits, target[:, 1:], ignore_index=PAD)
        optimizer.minimize(loss)
        return loss

    @gf.function
    def translate(source: gf.Tensor) -> gf.Tensor:
        begin = gf.full((source.shape[0], 1), BEGIN, dtype=gf.int64)
        return gf.nn.generate(Translation(model, source), begin, 32, eos_id=END, pad_id=PAD)

    losses = []
    for step, batch in enumerate(data, 1):
        losses.append(float(train_step(batch["source"], batch["target"])))
        if step % 250 == 0 or step == len(data):
            print(f"step {step:5} of {len(data)}: loss {np.mean(losses[-250:]):.4f}")

    right = wrong = 0
    for batch in gf.data.batches(test, 100, collate_fn=gf.data.padded):
        for source, target, made in zip(*batch.values(), translate(batch["source"]), strict=True):
            is_right = targets.decode(made) == targets.decode(target)
            right += is_right
            wrong += not is_right
            if (right if is_right else wrong) <= 5:
                print(f"{'right' if is_right else 'WRONG'}: {sources.decode(source)}")
                print(f"       {targets.decode(made)}")
    accuracy = right / tested
    print(f"{accuracy:.1%} of {tested} new numbers are translated without a mistake")
    if accuracy < 0.9 and not options.quick:
        raise SystemExit("the model did not learn as it should")


if __name__ == "__main__":
    main()
