"""Language models with the weights of transformers' models, and their logits beside."""

from typing import Any

import numpy as np
import pytest

import graphfw as gf
from graphfw import models

torch: Any = pytest.importorskip("torch")
hub: Any = pytest.importorskip("transformers")

VOCABULARY = 53


def gpt2(rng, kind="GPT2LMHeadModel", **options):
    heads = int(rng.choice([1, 2, 4]))
    config = hub.GPT2Config(
        vocab_size=VOCABULARY,
        n_positions=24,
        n_embd=heads * int(rng.choice([4, 6])),
        n_layer=int(rng.integers(1, 4)),
        n_head=heads,
        n_inner=[None, 20][rng.integers(2)],
        layer_norm_epsilon=1e-3,
        bos_token_id=None,
        eos_token_id=None,
        **options,
    )
    return getattr(hub, kind)(config)


def bert(rng, kind="BertForMaskedLM", **options):
    heads = int(rng.choice([1, 2, 4]))
    config = hub.BertConfig(
        vocab_size=VOCABULARY,
        hidden_size=heads * int(rng.choice([4, 6])),
        num_hidden_layers=int(rng.integers(1, 4)),
        num_attention_heads=heads,
        intermediate_size=20,
        max_position_embeddings=24,
        type_vocab_size=3,
        **options,
    )
    return getattr(hub, kind)(config)


def llama(rng, kind="LlamaForCausalLM", **options):
    kv_heads, groups = int(rng.choice([1, 2])), int(rng.choice([1, 3]))
    config = hub.LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=kv_heads * groups * int(rng.choice([4, 6])),
        intermediate_size=20,
        num_hidden_layers=int(rng.integers(1, 4)),
        num_attention_heads=kv_heads * groups,
        num_key_value_heads=kv_heads,
        rms_norm_eps=1e-3,
        bos_token_id=None,
        eos_token_id=None,
        **options,
    )
    return getattr(hub, kind)(config)


LLAMA3 = {
    "rope_theta": 50.0,
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 12,
}
MODELS = {
    "gpt2": (gpt2, {}),
    "gpt2 with other options": (
        gpt2,
        {"activation_function": "relu", "tie_word_embeddings": False},
    ),
    "bert": (bert, {}),
    "bert with other options": (bert, {"hidden_act": "gelu_new"}),
    "bert before training": (bert, {"kind": "BertForPreTraining"}),
    "llama": (llama, {}),
    "llama with other options": (
        llama,
        {
            "attention_bias": True,
            "mlp_bias": True,
            "hidden_act": "gelu",
            "tie_word_embeddings": True,
            "rope_parameters": {"rope_theta": 500.0, "rope_type": "default"},
        },
    ),
    "llama with scaled rotations": (llama, {"rope_parameters": LLAMA3}),
    "llama with longer rotations": (
        llama,
        {"rope_parameters": {"rope_theta": 100.0, "rope_type": "linear", "factor": 4.0}},
    ),
}
CAUSAL = {name: made for name, made in MODELS.items() if made[0] is not bert}


@pytest.fixture
def rng(request):
    """Draw other sizes and weights for each test."""
    return np.random.default_rng([*request.node.name.encode()])


@pytest.fixture(autouse=True)
def _quiet():
    hub.logging.set_verbosity_error()
    hub.logging.disable_progress_bar()


def randomised(theirs, rng):
    """Give a model weights that all matter: transformers begins with small ones, and zeros."""
    with torch.no_grad():
        for parameter in theirs.parameters():
            values = rng.normal(0, 0.3, tuple(parameter.shape)) + (parameter.dim() == 1)
            parameter.copy_(torch.tensor(values))
    return theirs.eval()


def saved(name, rng, folder, **options):
    make, more = MODELS[name]
    theirs = randomised(make(rng, **more), rng)
    theirs.save_pretrained(folder, **options)
    return theirs


def loaded(folder, describe, **options):
    """Load a folder, and return the model, the session, and what `describe` says of the model."""
    with gf.Graph() as g:
        model = models.from_pretrained(folder, **options)
        described = describe(model)
    session = gf.Session(g)
    model.load_pytorch(session, folder, names=model.names)
    return model, session, described


def tokens_of(rng, length=9):
    return rng.integers(0, VOCABULARY, (3, length))


def logits_of(model, *args, **kwargs):
    result = model(*args, **kwargs)
    return model.logits(result) if isinstance(model, models.Bert) else result


def their_logits(theirs, tokens, **inputs):
    given = {name: torch.tensor(value) for name, value in inputs.items()}
    with torch.no_grad():
        outputs = theirs(torch.tensor(tokens), **given)
    return (outputs.prediction_logits if "prediction_logits" in outputs else outputs.logits).numpy()


def check_close(found, expected):
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize("name", MODELS)
def test_logits_and_the_way_back(name, rng, tmp_path):
    theirs = saved(name, rng, tmp_path)
    tokens = tokens_of(rng)
    model, session, logits = loaded(tmp_path, lambda model: logits_of(model, tokens))
    expected = their_logits(theirs, tokens)
    check_close(session.run(logits), expected)

    model.save_pytorch(session, tmp_path / "model.safetensors", names=model.names)
    again, notes = type(theirs).from_pretrained(tmp_path, output_loading_info=True)
    assert not notes["unexpected_keys"]
    assert not notes["mismatched_keys"]
    # The head for the next sentence is not ours.
    assert all(key.startswith("cls.seq_relationship") for key in notes["missing_keys"])
    np.testing.assert_array_equal(their_logits(again.eval(), tokens), expected)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("side", ["left", "right"])
def test_padding(name, side, rng, tmp_path):
    theirs = saved(name, rng, tmp_path)
    tokens = tokens_of(rng)
    counts = rng.integers(1, 10, (3, 1))
    slots = np.arange(9)
    is_token = slots >= 9 - counts if side == "left" else slots < counts
    positions = np.maximum(np.cumsum(is_token, axis=1) - 1, 0)
    ours = {"mask": is_token[:, None, :]}
    if "llama" not in name:
        ours["positions"] = positions
    _, session, logits = loaded(tmp_path, lambda model: logits_of(model, tokens, **ours))
    inputs = {"attention_mask": is_token.astype(np.int64), "position_ids": positions}
    expected = their_logits(theirs, tokens, **inputs)
    check_close(session.run(logits)[is_token], expected[is_token])


@pytest.mark.parametrize("name", MODELS)
def test_positions_from_another_one_on(name, rng, tmp_path):
    theirs = saved(name, rng, tmp_path)
    tokens, positions = tokens_of(rng), np.arange(5, 14)[None]
    ours = {} if "llama" in name else {"positions": positions}
    _, session, logits = loaded(tmp_path, lambda model: logits_of(model, tokens, **ours))
    check_close(session.run(logits), their_logits(theirs, tokens, position_ids=positions))


@pytest.mark.parametrize("name", CAUSAL)
def test_caches(name, rng, tmp_path):
    """All logits at once are those of tokens that come in pieces, with padding on the left."""
    theirs = saved(name, rng, tmp_path)
    tokens, start = tokens_of(rng), np.array([0, 2, 4])
    is_token = np.arange(9) >= start[:, None]

    def in_pieces(model):
        cache, found = model.init_cache(3, 12, start=start), []
        for piece in (tokens[:, :6], tokens[:, 6:7], tokens[:, 7:]):
            logits, cache = model(piece, cache=cache)
            found.append(logits)
        return gf.concat(found, axis=1)

    _, session, logits = loaded(tmp_path, in_pieces)
    positions = np.maximum(np.arange(9) - start[:, None], 0)
    inputs = {"attention_mask": is_token.astype(np.int64), "position_ids": positions}
    expected = their_logits(theirs, tokens, **inputs)
    check_close(session.run(logits)[is_token], expected[is_token])


@pytest.mark.parametrize("name", ["gpt2", "bert", "llama"])
def test_several_files(name, rng, tmp_path):
    theirs = saved(name, rng, tmp_path, max_shard_size="2KB")
    assert len([*tmp_path.glob("model-*.safetensors")]) > 1
    tokens = tokens_of(rng)
    _, session, logits = loaded(tmp_path, lambda model: logits_of(model, tokens))
    check_close(session.run(logits), their_logits(theirs, tokens))


def test_files_of_fewer_bits(rng, tmp_path):
    """Weights of bfloat16 become wider where the model's are, and stay where they are not."""
    theirs = randomised(gpt2(rng), rng).to(torch.bfloat16)
    theirs.save_pretrained(tmp_path)
    tokens = tokens_of(rng)
    _, session, logits = loaded(tmp_path, lambda model: model(tokens))
    check_close(session.run(logits), their_logits(theirs.float(), tokens))
    model, session, _ = loaded(tmp_path, lambda model: model, dtype="bfloat16")
    bits = session[model.embedding.weight].astype(np.float32)
    np.testing.assert_array_equal(bits, theirs.transformer.wte.weight.detach().numpy())


@pytest.mark.parametrize("kind", ["BertModel", "BertForPreTraining"])
def test_hidden_and_pooled_vectors_of_bert(kind, rng, tmp_path):
    theirs = randomised(bert(rng, kind), rng)
    theirs.save_pretrained(tmp_path)
    tokens, types = tokens_of(rng), rng.integers(0, 3, (3, 9))

    def described(model):
        hidden = model(tokens, types)
        return hidden, model.pool(hidden)

    _, session, (hidden, pooled) = loaded(tmp_path, described)
    base = theirs if kind == "BertModel" else theirs.bert
    with torch.no_grad():
        expected = base(torch.tensor(tokens), token_type_ids=torch.tensor(types))
    check_close(session.run(hidden), expected.last_hidden_state.numpy())
    check_close(session.run(pooled), expected.pooler_output.numpy())


@pytest.mark.parametrize("kind", ["BertForTokenClassification", "BertForSequenceClassification"])
def test_a_bert_for_another_task(kind, rng, tmp_path):
    theirs = randomised(bert(rng, kind), rng)
    theirs.save_pretrained(tmp_path)
    tokens = tokens_of(rng)
    with gf.Graph() as g:
        model = models.from_pretrained(tmp_path, options={"architectures": []})
        hidden = model(tokens)
    with gf.Session(g) as session:
        with pytest.raises(gf.CheckpointError, match="2 extra"):
            model.load_pytorch(session, tmp_path, names=model.names)
        model.load_pytorch(session, tmp_path, names=model.names, ignore_extra=True)
        found = session.run(hidden)
    expected = theirs.bert(torch.tensor(tokens)).last_hidden_state
    check_close(found, expected.detach().numpy())


def test_gpt2_without_a_head_has_no_scope(rng, tmp_path):
    theirs = randomised(gpt2(rng, "GPT2Model"), rng)
    theirs.save_pretrained(tmp_path)
    tokens = tokens_of(rng)
    _, session, logits = loaded(tmp_path, lambda model: model(tokens))
    hidden = theirs(torch.tensor(tokens)).last_hidden_state
    check_close(session.run(logits), (hidden @ theirs.wte.weight.T).detach().numpy())


@pytest.mark.parametrize("name", ["gpt2", "bert", "llama"])
def test_defaults_are_those_of_transformers(name):
    config = {"gpt2": hub.GPT2Config, "bert": hub.BertConfig, "llama": hub.LlamaConfig}[name]()
    own = {"gpt2": models.GPT2Config, "bert": models.BertConfig, "llama": models.LlamaConfig}[name]
    found = own.from_huggingface(config.to_dict())
    assert found in (own(), own(kv_heads=32) if name == "llama" else None)
    assert own.from_huggingface({}) == own()


def test_training_from_loaded_weights(rng, tmp_path):
    """A loss and its gradients are those of PyTorch's."""
    theirs = saved("llama", rng, tmp_path)
    tokens = tokens_of(rng)

    def described(model):
        model.train()
        logits = model(tokens[:, :-1])
        loss = gf.nn.cross_entropy(logits, tokens[:, 1:])
        table = model.embedding.weight
        return loss, gf.grad(loss, [table, model.layers[0].attention.k_proj.weight])

    _, session, (loss, gradients) = loaded(tmp_path, described)
    ids = torch.tensor(tokens)
    expected = theirs(ids, labels=ids).loss
    expected.backward()
    np.testing.assert_allclose(session.run(loss), expected.item(), rtol=1e-5)
    parameters = theirs.model.embed_tokens, theirs.model.layers[0].self_attn.k_proj
    table, keys = (parameter.weight.grad.numpy() for parameter in parameters)
    check_close(session.run(gradients[0]), table)
    check_close(session.run(gradients[1]), keys.T)


@pytest.mark.parametrize("name", CAUSAL)
def test_generation(name, rng, tmp_path):
    """Texts go on as those of transformers do, with padding on the left."""
    theirs = saved(name, rng, tmp_path)
    tokens = tokens_of(rng, length=6)
    is_token = np.arange(6) >= np.array([[0], [1], [4]])
    _, session, texts = loaded(
        tmp_path, lambda model: gf.nn.generate(model, tokens, 5, mask=is_token)
    )
    attention_mask = torch.tensor(is_token.astype(np.int64))
    expected = theirs.generate(
        torch.tensor(tokens),
        attention_mask=attention_mask,
        max_new_tokens=5,
        do_sample=False,
        pad_token_id=0,
    )
    np.testing.assert_array_equal(session.run(texts)[:, 6:], expected[:, 6:].numpy())
