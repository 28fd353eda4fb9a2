"""Texts that a model continues, against searches in plain Python and against transformers'."""

import numpy as np
import pytest

import graphfw as gf
from graphfw import nn
from tests.support import language_models
from tests.support.language_models import TinyGPT

VOCABULARY = 11


@pytest.fixture
def graph():
    with gf.Graph() as g:
        yield g


class Oracle:
    """A model, a session of it, and its logits after a text, without a cache."""

    def __init__(self, graph, **options):
        self.model = TinyGPT(VOCABULARY, **options)
        self.text = gf.placeholder((1, "time"), gf.int64)
        self.logits = self.model(self.text, training=False)[0, -1]
        self.graph = graph
        self.prompts = gf.placeholder(("batch", "length"), gf.int64, name="prompts")
        self.mask = gf.placeholder(("batch", "length"), gf.bool, name="mask")

    def open(self):
        self.session = gf.Session(self.graph, seed=3)
        self.plan = self.session.compile(self.logits, feeds=[self.text])
        return self.session

    def __call__(self, text):
        return self.plan(np.array([text]))


def padded(rows, count, pad):
    """Return new tokens of rows with padding after each."""
    return np.array([row + [pad] * (count - len(row)) for row in rows])


def test_greedy(rng, graph):
    oracle = Oracle(graph)
    endless = nn.generate(oracle.model, oracle.prompts, 12)
    ending = nn.generate(oracle.model, oracle.prompts, 12, eos_id=[4, 7], pad_id=9)
    prompts = rng.integers(0, VOCABULARY, (6, 5))
    assert endless.shape == (oracle.prompts.shape[0], oracle.prompts.shape[1] + 12)
    assert endless.dtype is gf.int64
    with oracle.open() as session:
        found = session.run([endless, ending], {oracle.prompts: prompts})
        for made, ends in zip(found, [(), (4, 7)], strict=True):
            rows = [language_models.greedy(oracle, row, 12, ends) for row in prompts.tolist()]
            np.testing.assert_array_equal(made[:, :5], prompts)
            np.testing.assert_array_equal(made[:, 5:], padded(rows, 12, 9))
        assert any(len(row) < 12 for row in rows)


@pytest.mark.parametrize("side", ["left", "right"])
def test_prompts_of_different_lengths(rng, graph, side):
    oracle = Oracle(graph)
    greedy = nn.generate(oracle.model, oracle.prompts, 6, mask=oracle.mask)
    beams = nn.beam_search(oracle.model, oracle.prompts, 6, num_beams=2, mask=oracle.mask)
    lengths = np.array([3, 5, 1])
    mask = np.arange(5) < lengths[:, None]
    prompts = np.where(mask, rng.integers(0, VOCABULARY, (3, 5)), 0)
    rows = [row[:n] for row, n in zip(prompts.tolist(), lengths, strict=True)]
    if side == "left":
        mask, prompts = mask[:, ::-1], np.array([[0] * (5 - len(row)) + row for row in rows])
    with oracle.open() as session:
        feeds = {oracle.prompts: prompts, oracle.mask: mask}
        made, beams = session.run([greedy, beams.tokens], feeds)
        for got, row in zip(made, rows, strict=True):
            assert got[5 - len(row) :].tolist() == row + language_models.greedy(oracle, row, 6)
        for got, row in zip(beams, rows, strict=True):
            expected = language_models.beam_search(oracle, row, 6, 2)
            assert got[:, 5:].tolist() == [text for _, text in expected]
        feeds[oracle.mask] = np.zeros_like(mask)
        with pytest.raises(gf.ExecutionError, match="a row of the mask has no token"):
            session.run(greedy, feeds)


@pytest.mark.exhaustive
@pytest.mark.parametrize("penalty", [1.0, 0.0, 2.5])
@pytest.mark.parametrize("early_stopping", [False, True])
def test_beam_search(rng, graph, penalty, early_stopping):
    oracle = Oracle(graph)
    options = {"eos_id": (4, 7), "length_penalty": penalty}
    found = nn.beam_search(
        oracle.model, oracle.prompts, 7, num_beams=3, early_stopping=early_stopping, **options
    )
    best = nn.generate(oracle.model, oracle.prompts, 7, num_beams=3, **options)
    prompts = rng.integers(0, VOCABULARY, (5, 3))
    with oracle.open() as session:
        tokens, scores, best = session.run([*found, best], {oracle.prompts: prompts})
        for row, texts, values in zip(prompts.tolist(), tokens, scores, strict=True):
            expected = language_models.beam_search(
                oracle, row, 7, 3, penalty, (4, 7), early_stopping
            )
            np.testing.assert_array_equal(texts[:, 3:], padded([t for _, t in expected], 7, 4))
            np.testing.assert_allclose(values, [score for score, _ in expected], 1e-4)
        if not early_stopping:
            np.testing.assert_array_equal(best, tokens[:, 0])


def test_one_beam_is_greedy(rng, graph):
    oracle = Oracle(graph)
    one = nn.beam_search(oracle.model, oracle.prompts, 5, num_beams=1)
    greedy = nn.generate(oracle.model, oracle.prompts, 5)
    with oracle.open() as session:
        prompts = rng.integers(0, VOCABULARY, (3, 4))
        one, greedy = session.run([one.tokens, greedy], {oracle.prompts: prompts})
    np.testing.assert_array_equal(one[:, 0], greedy)


def test_more_beams_than_tokens(graph):
    """There are 2 texts of one token, and no third."""

    class Coin:
        def init_cache(self, batch, max_length):
            return gf.zeros((batch, 1))

        def __call__(self, tokens, cache):
            return gf.broadcast_to(gf.asarray([0.0, 1.0]), (*tokens.shape, 2)), cache

    tokens, scores = nn.beam_search(Coin(), [[0]], 1, num_beams=3)
    with gf.Session(graph) as session:
        tokens, scores = session.run([tokens, scores])
    assert tokens[0, :2, 1].tolist() == [1, 0]
    np.testing.assert_allclose(scores[0], [-0.3133, -1.3133, -np.inf], 1e-3)


def gpt2():
    """Return transformers' GPT-2 with random weights, and its state for `TinyGPT`."""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    torch.manual_seed(5)
    sizes = {"vocab_size": VOCABULARY, "n_embd": 16, "n_head": 2, "n_layer": 2, "n_positions": 32}
    theirs = transformers.GPT2LMHeadModel(
        transformers.GPT2Config(**sizes, initializer_range=0.4, tie_word_embeddings=False)
    ).eval()
    arrays = {name: p.detach().numpy() for name, p in theirs.named_parameters()}
    state = {
        "tokens.weight": arrays["transformer.wte.weight"],
        "positions.weight": arrays["transformer.wpe.weight"],
        "head.weight": arrays["lm_head.weight"].T,
        "layers.norm.weight": arrays["transformer.ln_f.weight"],
        "layers.norm.bias": arrays["transformer.ln_f.bias"],
    }
    names = {"ln_1": "norm1", "ln_2": "norm2", "attn.c_proj": "self_attn.out_proj"}
    names |= {"mlp.c_fc": "linear1", "mlp.c_proj": "linear2"}
    for layer in range(2):
        for kind in ("weight", "bias"):
            own, other = f"layers.layers.{layer}", f"transformer.h.{layer}"
            for theirs_name, name in names.items():
                state[f"{own}.{name}.{kind}"] = arrays[f"{other}.{theirs_name}.{kind}"]
            joined = np.split(arrays[f"{other}.attn.c_attn.{kind}"], 3, axis=-1)
            for letter, array in zip("qkv", joined, strict=True):
                state[f"{own}.self_attn.{letter}_proj.{kind}"] = array
    return theirs, state


@pytest.mark.slow  # to import
def test_transformers_of_hugging_face(rng, graph):
    theirs, state = gpt2()
    torch = pytest.importorskip("torch")
    oracle = Oracle(graph)
    mask = np.arange(6) >= np.array([0, 2, 5, 1])[:, None]
    prompts = np.where(mask, rng.integers(0, VOCABULARY, (4, 6)), 3)
    searches = [
        {"num_beams": 1},
        {"num_beams": 3},
        {"num_beams": 4, "length_penalty": 0.0},
        {"num_beams": 2, "length_penalty": -1.5},
    ]
    options = {"mask": oracle.mask, "eos_id": (4, 7), "pad_id": 3}
    made = [nn.generate(oracle.model, oracle.prompts, 10, **options, **s) for s in searches]
    with oracle.open() as session:
        oracle.model.load_state_dict(session, state, format="graphfw")
        found = session.run(made, {oracle.prompts: prompts, oracle.mask: mask})
    for ours, search in zip(found, searches, strict=True):
        expected = theirs.generate(
            torch.tensor(prompts),
            attention_mask=torch.tensor(mask),
            max_new_tokens=10,
            do_sample=False,
            eos_token_id=[4, 7],
            pad_token_id=3,
            **search,
        ).numpy()
        np.testing.assert_array_equal(ours[:, : expected.shape[1]], expected)
        assert (ours[:, expected.shape[1] :] == 3).all()


def test_draws_differ_by_seed_and_run(rng, graph):
    oracle = Oracle(graph)
    made = nn.generate(oracle.model, oracle.prompts, 20, do_sample=True, top_k=8, name="drawn")
    state = oracle.model.state_dict(oracle.open())
    feeds, runs = {oracle.prompts: rng.integers(0, VOCABULARY, (2, 3))}, []
    for seed in (3, 3, 4):
        with gf.Session(graph, seed=seed) as session:
            oracle.model.load_state_dict(session, state, format="graphfw")
            runs += [session.run(made, feeds) for _ in range(2)]
    np.testing.assert_array_equal(runs[0], runs[2])
    np.testing.assert_array_equal(runs[1], runs[3])
    assert (runs[0] != runs[1]).any()
    assert (runs[0] != runs[4]).any()


def test_one_run_draws_the_tokens_of_the_model(graph):
    """Chances of pairs of tokens, the first by the prompt's logits and the second by the loop's."""
    chances = np.random.default_rng(2).dirichlet(np.ones(4), 4).astype(np.float32)

    class Chain:
        def init_cache(self, batch, max_length):
            return {}

        def __call__(self, tokens, cache):
            return gf.take(gf.asarray(np.log(chances)), tokens, axis=0), cache

    prompts = np.zeros((20_000, 1), np.int64)
    made = nn.generate(Chain(), prompts, 2, do_sample=True, temperature=0.5)
    with gf.Session(graph, seed=1) as session:
        found = session.run(made)
    squared = chances**2 / np.sum(chances**2, axis=1, keepdims=True)
    expected = (squared[0][:, None] * squared).ravel() * len(prompts)
    counts = np.bincount(found[:, 1] * 4 + found[:, 2], minlength=16)
    assert np.sum((counts - expected) ** 2 / expected) < 37.7  # 1 in 1000, of 15 degrees


def test_a_function_is_built_once_for_all_lengths(rng):
    model = []

    @gf.function
    def continued(prompts):
        if not model:
            model.append(TinyGPT(VOCABULARY))
        return nn.generate(model[0], prompts, 4, eos_id=4)

    for shape in ((1, 3), (2, 5), (3, 9)):
        prompts = rng.integers(0, VOCABULARY, shape)
        found = continued(prompts)
        assert found.shape == (shape[0], shape[1] + 4)
        np.testing.assert_array_equal(found[:, : shape[1]], prompts)


def test_the_symbolic_number_of_tokens(rng, graph):
    oracle = Oracle(graph)
    room = gf.placeholder(("count",), name="room")
    made = nn.generate(oracle.model, oracle.prompts, room.shape[0])
    whole = nn.generate(oracle.model, oracle.prompts, 5)
    with oracle.open() as session:
        feeds = {oracle.prompts: rng.integers(0, VOCABULARY, (2, 3)), room: np.zeros(5, np.float32)}
        made, whole = session.run([made, whole], feeds)
    np.testing.assert_array_equal(made, whole)


def test_more_tokens_than_the_model_has_positions(graph):
    model = TinyGPT(VOCABULARY, positions=6)
    made = [nn.generate(model, [[1, 2, 3]], count) for count in (4, 5)]
    with gf.Session(graph, verify="each") as session:  # no inputs would do to compare values with
        assert session.run(made[0]).shape == (1, 7)  # nothing comes after the last token
        with pytest.raises(gf.ExecutionError, match="position 6 is out of range: there are 6"):
            session.run(made[1])


class Short(TinyGPT):
    """A model that leaves out the logits of the last token."""

    def forward(self, tokens, cache=None):
        logits, cache = super().forward(tokens, cache)
        return logits[:, :-1], cache


def test_mistakes(graph):
    model, x = TinyGPT(VOCABULARY), gf.zeros((2, 3), dtype="int64")

    def run(**options):
        arguments = {"model": model, "tokens": x, "max_new_tokens": 4} | options
        return lambda: nn.generate(**arguments)

    def drawn(**options):
        return run(do_sample=True, **options)

    no_cache = gf.nn.Linear(3, 4)
    cases = [
        (run(max_new_tokens=0), gf.ArgumentError, "use max_new_tokens=1"),
        (run(max_new_tokens=2.5), gf.ArgumentError, "use max_new_tokens=1"),
        (run(num_beams=0), gf.ArgumentError, "use num_beams=1"),
        (run(num_beams=2, do_sample=True), gf.ArgumentError, "leave out do_sample"),
        (run(num_beams=2, length_penalty="1"), gf.ArgumentError, "length_penalty=1.0"),
        (
            lambda: nn.beam_search(model, x, 4, early_stopping="never"),
            gf.ArgumentError,
            "early_stopping=False",
        ),
        (run(temperature=np.ones((2, 1))), gf.ArgumentError, "do_sample=True"),
        (run(length_penalty=2.0), gf.ArgumentError, "num_beams=4"),
        (run(temperature=0.5), gf.ArgumentError, "do_sample=True"),
        (run(top_k=5), gf.ArgumentError, "do_sample=True"),
        (run(eos_id=-1), gf.ArgumentError, "use eos_id=0"),
        (run(eos_id=[]), gf.ArgumentError, "eos_id=None"),
        (run(eos_id=VOCABULARY), gf.ArgumentError, "of the vocabulary"),
        (run(pad_id="x"), gf.ArgumentError, "use pad_id=0"),
        (run(tokens=x[0]), gf.ShapeError, "tokens[None]"),
        (run(tokens=x[:, :0]), gf.ShapeError, "marks the beginning"),
        (run(tokens=gf.ones((2, 3))), gf.DTypeError, "gf.astype(tokens, gf.int64)"),
        (run(mask=gf.ones((2, 3))), gf.DTypeError, "mask != 0"),
        (run(mask=np.ones((2, 4), bool)), gf.ShapeError, "[2, 3]"),
        (run(mask=np.zeros((2, 3), bool)), gf.ArgumentError, "marks the beginning"),
        (run(model=no_cache), gf.ArgumentError, "init_cache(batch, max_length)"),
        (run(model=3), gf.ArgumentError, "pass a function"),
        (run(model=Short(VOCABULARY)), gf.ShapeError, "[batch, time, vocabulary]"),
        (drawn(temperature=0.0), gf.ArgumentError, "temperature=0.9"),
        (drawn(temperature=None), gf.ArgumentError, "temperature=0.9"),
        (drawn(temperature=float("nan")), gf.ArgumentError, "temperature=0.9"),
        (drawn(top_p=0), gf.ArgumentError, "top_p=0.9"),
        (drawn(top_p=1.5), gf.ArgumentError, "top_p=0.9"),
        (drawn(top_k=0), gf.ArgumentError, "use top_k=1"),
        (drawn(top_k=2.0), gf.ArgumentError, "use top_k=1"),
    ]
    for call, error, fix in cases:
        with pytest.raises(error) as caught:
            call()
        assert fix in caught.value.fix, caught.value


def test_a_model_returns_no_pair(graph):
    class Plain:
        def init_cache(self, batch, max_length):
            return ()

        def __call__(self, tokens, cache):
            return gf.one_hot(tokens, 4)

    with pytest.raises(gf.ArgumentError, match="not a pair"):
        nn.generate(Plain(), [[1]], 2)
    with pytest.raises(gf.CallError, match="unexpected keyword argument 'start'"):
        nn.generate(Plain(), [[1]], 2, mask=[[True]])
