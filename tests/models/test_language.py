"""Language models without transformers: weights, shapes, errors."""

import sys

import numpy as np
import pytest

import graphfw as gf
from graphfw import models
from tests.models.text_models import BERT, CLASSES, CONFIGS, KINDS, made


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
    with pytest.raises(gf.CheckpointError, match="missing") as caught:
        model.load_pytorch(session, file)
    assert caught.value.fix.startswith("pass names=model.names, ")
    with pytest.raises(gf.ArgumentError, match="names is a str") as wrong:
        model.load_pytorch(session, file, names=f"transformers.{kind}")
    assert "a table of gf.io.names_of" in wrong.value.fix
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
                (lambda: model(tokens, cache=(1, 2)), gf.ArgumentError, "init_cache"),
                (lambda: model(tokens, cache=cache), gf.ShapeError, "max_length=5"),
            ]
        for call, error, fix in cases:
            with pytest.raises(error) as caught:
                call()
            assert fix in caught.value.fix, caught.value
    with g:
        result = model(tokens + 11)
    # No inputs would do to compare values with.
    with gf.Session(g, verify="each") as session:
        with pytest.raises(gf.ExecutionError, match="11 is out of range"):
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
