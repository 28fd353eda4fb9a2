"""Language models without transformers: configurations, shapes, errors."""

import dataclasses
import json
import sys

import numpy as np
import pytest

import graphfw as gf
from graphfw import models

GPT2 = {"vocab_size": 11, "max_length": 8, "embed_dim": 8, "num_layers": 2, "num_heads": 2}
LLAMA = {"vocab_size": 11, "embed_dim": 8, "num_layers": 2, "num_heads": 2, "feedforward_dim": 12}
BERT = LLAMA | {"max_length": 8}
CONFIGS = {
    "gpt2": models.GPT2Config(**GPT2),
    "bert": models.BertConfig(**BERT, lm_head=True),
    "llama": models.LlamaConfig(**LLAMA, kv_heads=1),
}
CLASSES = {"gpt2": models.GPT2, "bert": models.Bert, "llama": models.Llama}
KINDS = [*CONFIGS]
THEIR_SIZES = {
    "gpt2": {"vocab_size": 11, "n_positions": 8, "n_embd": 8, "n_layer": 2, "n_head": 2},
    "llama": {
        "vocab_size": 11,
        "hidden_size": 8,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 12,
    },
}
THEIR_SIZES["bert"] = THEIR_SIZES["llama"] | {"max_position_embeddings": 8}


def made(kind, config=None, **options):
    with gf.Graph() as g:
        model = CLASSES[kind](config or CONFIGS[kind], **options)
    return g, model


def folder_of(kind, tmp_path, **options):
    content = {"model_type": kind} | THEIR_SIZES[kind] | options
    (tmp_path / "config.json").write_text(json.dumps(content))
    return tmp_path


# Configurations.


@pytest.mark.parametrize("kind", KINDS)
def test_configurations_of_a_file(kind, tmp_path):
    config = type(CONFIGS[kind])
    folder = folder_of(kind, tmp_path)
    found = config.from_huggingface(folder)
    assert found == config.from_huggingface(folder / "config.json")
    assert (found.vocab_size, found.embed_dim, found.num_layers) == (11, 8, 2)
    names = [field.name for field in dataclasses.fields(config)]
    assert found == config(**{n: getattr(found, n) for n in names})


def test_what_changes_no_logits_is_left_out(tmp_path):
    options = {"use_cache": False, "temperature": 0.5, "torch_dtype": "float16", "n_ctx": 8}
    folder = folder_of("gpt2", tmp_path, unknown=None, **options)
    assert models.GPT2Config.from_huggingface(folder) == models.GPT2Config(**GPT2)


@pytest.mark.parametrize(
    ("options", "base"),
    [
        ({}, 10000.0),
        ({"rope_theta": 500.0}, 500.0),
        ({"rope_theta": 500.0, "rope_scaling": None}, 500.0),
        ({"rope_parameters": {"rope_theta": 500.0, "rope_type": "default"}}, 500.0),
        ({"rope_scaling": {"type": "default"}, "rope_theta": 50.0}, 50.0),
        ({"head_dim": 4}, 10000.0),
    ],
)
def test_rotations_of_llama(options, base, tmp_path):
    found = models.LlamaConfig.from_huggingface(folder_of("llama", tmp_path, **options))
    assert found.rotary_base == base


@pytest.mark.parametrize(
    ("architectures", "heads"),
    [
        (["BertModel"], (True, False)),
        (["BertForMaskedLM"], (False, True)),
        (["BertForPreTraining"], (True, True)),
        (None, (True, False)),
    ],
)
def test_heads_of_bert(architectures, heads):
    found = models.BertConfig.from_huggingface({"architectures": architectures})
    assert (found.pooler, found.lm_head) == heads


@pytest.mark.parametrize(
    ("kind", "options", "summary", "fix"),
    [
        ("gpt2", {"scale_attn_weights": False}, "scale_attn_weights=False is not", "=True"),
        ("gpt2", {"scale_attn_by_inverse_layer_idx": True}, "idx=True is not", "=False"),
        ("gpt2", {"add_cross_attention": True}, "is not implemented", "=False"),
        ("gpt2", {"activation_function": "quick_gelu"}, "'quick_gelu' is not", "gelu_new"),
        ("gpt2", {"activation_function": 3}, "activation 3 is not", "gelu_new"),
        ("gpt2", {"n_heads": 2}, "n_heads=2 is not known", '"n_head"'),
        (
            "gpt2",
            {"quantization_config": {"bits": 4}},
            "is not known",
            '"quantization_config": None',
        ),
        ("gpt2", {"n_layer": "2"}, "num_layers='2' is no int", "as an int"),
        ("gpt2", {"n_layer": 0}, "num_layers=0 must be 1 or more", "num_layers=1"),
        ("gpt2", {"n_layer": 10**9}, "more than 10,000", "num_layers=12"),
        ("gpt2", {"attn_pdrop": 1.5}, "attention_dropout=1.5", "attention_dropout=0.5"),
        ("gpt2", {"layer_norm_epsilon": 0}, "eps must be", "eps=1e-05"),
        ("gpt2", {"tie_word_embeddings": "yes"}, "tied_head is a str", "tied_head=True"),
        ("bert", {"position_embedding_type": "relative_key"}, "is not impl", "'absolute'"),
        ("bert", {"is_decoder": True}, "is_decoder=True is not", "is_decoder=False"),
        ("bert", {"tie_word_embeddings": False}, "is not implemented", "=True"),
        (
            "bert",
            {"architectures": ["BertForTokenClassification"]},
            "head of BertForTokenClassification",
            '"architectures": ["BertModel"]',
        ),
        ("bert", {"architectures": "BertModel"}, "architectures is a str", "a list"),
        ("llama", {"rope_scaling": {"rope_type": "yarn"}}, "rope_type='yarn'", '"default"'),
        ("llama", {"rope_parameters": {"factor": 2.0}}, "factor=2.0", '"default"'),
        ("llama", {"rope_scaling": "linear"}, "rope_scaling is a str", "rope_scaling=None"),
        ("llama", {"rope_theta": -1.0}, "rotary_base must be", "rotary_base=10000.0"),
        ("llama", {"head_dim": 6}, "head_dim=6 is not", "head_dim = hidden_size"),
    ],
)
def test_options_that_are_not_there(kind, options, summary, fix, tmp_path):
    folder = folder_of(kind, tmp_path, **options)
    with gf.Graph() as g, pytest.raises(gf.ArgumentError) as caught:
        models.from_pretrained(folder)
    assert summary in caught.value.summary
    assert fix in caught.value.fix
    assert not g.variables


@pytest.mark.parametrize(
    ("kind", "options", "summary"),
    [
        ("gpt2", {"n_head": 3}, "embed_dim=8 is no multiple of num_heads=3"),
        ("bert", {"num_attention_heads": 3}, "embed_dim=8 is no multiple of num_heads=3"),
        ("llama", {"num_key_value_heads": 3}, "num_heads=2 is no multiple of kv_heads=3"),
        ("llama", {"num_attention_heads": 8}, "rotary_base=10000.0, and heads have 1 channel"),
    ],
)
def test_sizes_that_do_not_fit(kind, options, summary, tmp_path):
    with gf.Graph(), pytest.raises(gf.ArgumentError) as caught:
        models.from_pretrained(folder_of(kind, tmp_path, **options))
    assert summary in caught.value.summary


# Folders.


def test_a_model_for_a_folder(tmp_path):
    with gf.Graph():
        model = models.from_pretrained(folder_of("llama", tmp_path), dtype="float64", name="lm")
        assert type(model) is models.Llama
        assert model.path == "lm"
        assert model.embedding.weight.dtype == gf.float64
        assert not model.is_training
        options = {"num_hidden_layers": 1, "rope_theta": 7.0}
        small = models.from_pretrained(tmp_path, options=options)
    assert (small.config.num_layers, small.config.rotary_base) == (1, 7.0)


def test_folders_without_a_model(tmp_path):
    cases = [
        (tmp_path / "none", gf.CheckpointError, "there is no file or folder", "downloads nothing"),
        (tmp_path, gf.CheckpointError, "has no config.json", "save_pretrained"),
        (3, gf.ArgumentError, "the folder is an int", "config.json"),
    ]
    for content, error, summary, fix in (
        ("{", gf.CheckpointError, "cannot read", "whole copy"),
        ("[]", gf.CheckpointError, "has a list", "config.json"),
        ("{}", gf.ArgumentError, 'has no "model_type"', '"bert", "gpt2", "llama"'),
        ('{"model_type": "mamba"}', gf.ArgumentError, "no model 'mamba'", '"bert", "gpt2"'),
        ('{"model_type": "gpt3"}', gf.ArgumentError, "no model 'gpt3'", '"gpt2"'),
        ('{"model_type": ["gpt2"]}', gf.ArgumentError, "no model", '"gpt2"'),
    ):
        file = tmp_path / f"{len(cases)}.json"
        file.write_text(content)
        cases.append((file, error, summary, fix))
    for folder, error, summary, fix in cases:
        with gf.Graph(), pytest.raises(error) as caught:
            models.from_pretrained(folder)
        assert summary in caught.value.summary
        assert fix in caught.value.fix


def test_a_configuration_of_another_model(tmp_path):
    folder = folder_of("llama", tmp_path)
    with pytest.raises(gf.ArgumentError, match='is for the model "llama"') as caught:
        models.GPT2Config.from_huggingface(folder)
    assert "from_pretrained" in caught.value.fix


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_without_a_configuration(kind):
    for wrong in ({"num_layers": 2}, CONFIGS["gpt2" if kind != "gpt2" else "bert"]):
        with gf.Graph(), pytest.raises(gf.ArgumentError, match="the configuration is a") as caught:
            CLASSES[kind](wrong)
        assert f"gf.models.{CLASSES[kind].__name__}Config(…)" in caught.value.fix


@pytest.mark.parametrize("kind", KINDS)
def test_weights_that_are_missing_or_of_other_sizes(kind, tmp_path):
    g, model = made(kind)
    session = gf.Session(g)
    file = tmp_path / "model.safetensors"
    model.save_pytorch(session, file, names=model.names)
    whole = dict(gf.io.read_pytorch(file))
    before = model.state_dict(session)
    first = next(name for name in whole if "embed" in name or "wte" in name)
    for state, summary in (
        ({name: array for name, array in whole.items() if name != first}, "1 missing"),
        (whole | {"classifier.weight": np.zeros((3, 8), np.float32)}, "1 extra"),
        (whole | {first: np.zeros((3, 8), np.float32)}, "1 mismatched"),
    ):
        with pytest.raises(gf.CheckpointError, match=summary):
            model.load_pytorch(session, state, names=model.names)
    assert model.load_pytorch(session, whole, names=model.names) == gf.io.Mismatch()
    for name, array in model.state_dict(session).items():
        np.testing.assert_array_equal(array, before[name])


def test_matrices_of_gpt2_have_the_layout_of_transformers(tmp_path):
    g, model = made("gpt2")
    session = gf.Session(g)
    model.save_pytorch(session, tmp_path / "x.safetensors", names=model.names)
    theirs = gf.io.read_pytorch(tmp_path / "x.safetensors")
    attention = model.layers[1].attention
    joined = [session[linear.weight] for linear in (attention.q_proj, attention.k_proj)]
    joined.append(session[attention.v_proj.weight])
    name = "transformer.h.1.attn.c_attn.weight"
    np.testing.assert_array_equal(theirs[name], np.concatenate(joined, axis=1))
    name = "transformer.h.1.mlp.c_fc.weight"
    np.testing.assert_array_equal(theirs[name], session[model.layers[1].linear1.weight])


# Tables of names.


def test_entries_of_former_versions(tmp_path):
    g, model = made("bert")
    session = gf.Session(g)
    model.save_pytorch(session, tmp_path / "x.safetensors", names=model.names)
    theirs = dict(gf.io.read_pytorch(tmp_path / "x.safetensors"))
    former = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("Norm.bias", "Norm.beta"): x
        for name, x in theirs.items()
    }
    former["bert.embeddings.position_ids"] = np.arange(8)[None]
    former["cls.predictions.decoder.weight"] = theirs["bert.embeddings.word_embeddings.weight"]
    former["cls.seq_relationship.weight"] = np.zeros((2, 8), np.float32)
    assert "bert.encoder.layer.0.output.LayerNorm.gamma" in former
    assert model.load_pytorch(session, former, names=model.names) == gf.io.Mismatch()


def test_tables_may_be_changed():
    table = gf.io.names_of("transformers.bert")
    assert table["bert.pooler.dense"] == "pooler"
    left = table.without("pooler")
    assert left["bert.pooler.dense"] is None
    assert left.aliases["pooler.dense"] is None
    table["bert.pooler.dense"] = "mine"
    assert gf.io.names_of("transformers.bert")["bert.pooler.dense"] == "pooler"


def test_a_kind_that_there_is_not():
    with pytest.raises(gf.ArgumentError, match="no table for 'transformers") as caught:
        gf.io.names_of("transformers.gpt")
    assert '"transformers.gpt2"' in caught.value.fix
    with pytest.raises(gf.ArgumentError, match="no table") as caught:
        gf.io.names_of(3)
    assert '"transformers.llama"' in caught.value.fix


# Calls.


@pytest.mark.parametrize("kind", KINDS)
def test_shapes(kind):
    g, model = made(kind)
    with g:
        tokens = gf.placeholder(("batch", "time"), gf.int64)
        result = model(tokens)
        if kind == "bert":
            assert str(result.shape) == "(batch, time, 8)"
            assert str(model.pool(result).shape) == "(batch, 8)"
            result = model.logits(result)
        assert str(result.shape) == "(batch, time, 11)"
        assert model(np.zeros(5, np.int32)).shape[:-1] == (5,)


@pytest.mark.parametrize("kind", KINDS)
def test_mistakes_in_calls(kind):
    g, model = made(kind)
    tokens = np.zeros((2, 5), np.int64)
    with g:
        cases = [
            (lambda: model(3), gf.ShapeError, "tokens[None]"),
            (lambda: model(tokens * 0.5), gf.DTypeError, "gf.int64"),
            (lambda: model(tokens, mask=tokens[:, None]), gf.DTypeError, "mask != 0"),
            (lambda: model(tokens, mask=np.ones((2, 1, 4), bool)), gf.ShapeError, "keys"),
        ]
        if kind != "llama":
            long = np.zeros((2, 9), np.int64)
            cases.append((lambda: model(long), gf.ShapeError, "LearnedPositions(9, 8)"))
        if kind != "bert":
            cache = model.init_cache(2, 4)
            cases += [
                (lambda: model(tokens, cache=cache[:1]), gf.ArgumentError, "init_cache"),
                (lambda: model(tokens, cache=cache[0]), gf.ArgumentError, "init_cache"),
                (lambda: model(tokens, cache=()), gf.ArgumentError, "init_cache"),
                (lambda: model(tokens, cache=cache), gf.ShapeError, "max_length=5"),
            ]
        for call, error, fix in cases:
            with pytest.raises(error) as caught:
                call()
            assert fix in caught.value.fix, caught.value
    with pytest.raises(gf.ExecutionError, match="11 is out of range"), gf.Session(g) as session:
        with g:
            result = model(tokens + 11)
        session.run(result)


def test_a_bert_without_heads():
    config = models.BertConfig(**BERT, pooler=False)
    g, model = made("bert", config)
    with g:
        hidden = model(np.zeros((2, 5), np.int64))
        with pytest.raises(gf.GraphError, match="no pooler") as caught:
            model.pool(hidden)
        assert "pooler=True" in caught.value.fix
        with pytest.raises(gf.GraphError, match="no head") as caught:
            model.logits(hidden)
        assert "lm_head=True" in caught.value.fix


@pytest.mark.parametrize("kind", KINDS)
def test_models_are_trained(kind):
    """Dropout is drawn in training, and a step makes the loss smaller."""
    g, model = made(kind)
    rng = np.random.default_rng(2)
    tokens = rng.integers(0, 11, (4, 6))
    with g:
        logits = model(tokens)
        logits = model.logits(logits) if kind == "bert" else logits
        loss = gf.nn.cross_entropy(logits, tokens)
        train = gf.optim.Adam(0.01).minimize(loss)
    session = gf.Session(g, seed=1)
    first = session.run(loss)
    for _ in range(20):
        session.run(train)
    assert session.run(loss) < first


# Tokenizers.


def test_a_tokenizer(tmp_path):
    tokenizers = pytest.importorskip("tokenizers")
    words = tokenizers.models.WordLevel({"a": 0, "b": 1, "[UNK]": 2}, unk_token="[UNK]")
    made = tokenizers.Tokenizer(words)
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    made.save(str(tmp_path / "tokenizer.json"))
    for source in (tmp_path, str(tmp_path / "tokenizer.json")):
        assert models.tokenizer(source).encode("b a c").ids == [1, 0, 2]
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(gf.CheckpointError, match="cannot read"):
        models.tokenizer(tmp_path)


def test_no_tokenizer(tmp_path, monkeypatch):
    with pytest.raises(gf.CheckpointError, match=r"has no tokenizer\.json"):
        models.tokenizer(tmp_path)
    with pytest.raises(gf.ArgumentError, match="the folder is an int"):
        models.tokenizer(3)
    (tmp_path / "tokenizer.json").write_text("{}")
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(ImportError, match="pip install tokenizers"):
        models.tokenizer(tmp_path)
