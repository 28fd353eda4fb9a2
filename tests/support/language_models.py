"""A small language model with a cache, and searches of its texts in plain Python."""

import math

import numpy as np

import graphfw as gf


class TinyGPT(gf.nn.Module):
    """GPT-2 in small."""

    def __init__(self, vocabulary, width=16, heads=2, layers=2, positions=32, dropout=0.1):
        super().__init__()
        self.tokens = gf.nn.Embedding(vocabulary, width)
        self.positions = gf.nn.LearnedPositions(positions, width, weight_init=gf.nn.init.normal)
        self.layers = gf.nn.TransformerEncoder(
            width,
            heads,
            layers,
            dropout=dropout,
            activation=lambda x: gf.gelu(x, approximate="tanh"),
            norm_first=True,
            causal=True,
        )
        self.head = gf.nn.Linear(width, vocabulary, bias=False)

    def init_cache(self, batch, max_length, **options):
        return self.layers.init_cache(batch, max_length, **options)

    def forward(self, tokens, cache=None):
        at = None if cache is None else cache[0].positions(tokens.shape[1])
        x = self.positions(self.tokens(tokens), at)
        if cache is None:
            return self.head(self.layers(x))
        y, cache = self.layers(x, cache=cache)
        return self.head(y), cache


def log_softmax(logits):
    shifted = logits - logits.max()
    return shifted - np.log(np.exp(shifted).sum())


def greedy(logits_of, prompt, count, ends=()):
    """Return the new tokens; `logits_of` takes a list of all tokens."""
    text = list(prompt)
    while len(text) < len(prompt) + count:
        text.append(int(np.argmax(logits_of(text))))
        if text[-1] in ends:
            break
    return text[len(prompt) :]


def beam_search(logits_of, prompt, count, beams, penalty=1.0, ends=(), early_stopping=False):
    """Return the best texts, new tokens only, as (score, tokens)."""
    going, ended = [(0.0, [])], []
    for step in range(1, count + 1):
        candidates = []
        for score, text in going:
            logs = log_softmax(np.float64(logits_of([*prompt, *text])))
            candidates += [(score + log, [*text, token]) for token, log in enumerate(logs)]
        candidates.sort(key=lambda one: -one[0])
        for score, text in candidates[:beams]:
            if text[-1] in ends or step == count:
                ended.append((score / step**penalty, text))
        ended = sorted(ended, key=lambda one: -one[0])[:beams]
        going = [one for one in candidates if one[1][-1] not in ends][:beams]
        worst = ended[-1][0] if len(ended) == beams else -math.inf
        if going[0][0] / step**penalty <= worst or (early_stopping and len(ended) == beams):
            break
    return ended
