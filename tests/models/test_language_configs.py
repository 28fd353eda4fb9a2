"""Configurations of language models, in files and folders."""

import dataclasses

import pytest

import graphfw as gf
from graphfw import models
from tests.models.text_models import CONFIGS, GPT2, KINDS, LLAMA, folder_of


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


PUBLISHED = {
    "gpt2": {
        "activation_function": "gelu_new",
        "architectures": ["GPT2LMHeadModel"],
        "attn_pdrop": 0.1,
        "bos_token_id": 50256,
        "embd_pdrop": 0.1,
        "eos_token_id": 50256,
        "initializer_range": 0.02,
        "layer_norm_epsilon": 1e-05,
        "model_type": "gpt2",
        "n_ctx": 1024,
        "n_embd": 768,
        "n_head": 12,
        "n_layer": 12,
        "n_positions": 1024,
        "resid_pdrop": 0.1,
        "summary_activation": None,
        "summary_first_dropout": 0.1,
        "summary_proj_to_labels": True,
        "summary_type": "cls_index",
        "summary_use_proj": True,
        "task_specific_params": {"text-generation": {"do_sample": True, "max_length": 50}},
        "vocab_size": 50257,
    },
    "bert": {
        "architectures": ["BertForMaskedLM"],
        "attention_probs_dropout_prob": 0.1,
        "gradient_checkpointing": False,
        "hidden_act": "gelu",
        "hidden_dropout_prob": 0.1,
        "hidden_size": 768,
        "initializer_range": 0.02,
        "intermediate_size": 3072,
        "layer_norm_eps": 1e-12,
        "max_position_embeddings": 512,
        "model_type": "bert",
        "num_attention_heads": 12,
        "num_hidden_layers": 12,
        "pad_token_id": 0,
        "position_embedding_type": "absolute",
        "transformers_version": "4.6.0.dev0",
        "type_vocab_size": 2,
        "use_cache": True,
        "vocab_size": 30522,
    },
    "llama": {
        "architectures": ["LlamaForCausalLM"],
        "attention_bias": False,
        "attention_dropout": 0.0,
        "bos_token_id": 128000,
        "eos_token_id": 128001,
        "head_dim": 64,
        "hidden_act": "silu",
        "hidden_size": 2048,
        "initializer_range": 0.02,
        "intermediate_size": 8192,
        "max_position_embeddings": 131072,
        "mlp_bias": False,
        "model_type": "llama",
        "num_attention_heads": 32,
        "num_hidden_layers": 16,
        "num_key_value_heads": 8,
        "pretraining_tp": 1,
        "rms_norm_eps": 1e-05,
        "rope_scaling": {
            "factor": 32.0,
            "high_freq_factor": 4.0,
            "low_freq_factor": 1.0,
            "original_max_position_embeddings": 8192,
            "rope_type": "llama3",
        },
        "rope_theta": 500000.0,
        "tie_word_embeddings": True,
        "torch_dtype": "bfloat16",
        "transformers_version": "4.45.0.dev0",
        "use_cache": True,
        "vocab_size": 128256,
    },
}
"""Files as they are published: GPT-2, BERT base, Llama 3.2."""


def test_published_configurations():
    assert models.GPT2Config.from_huggingface(PUBLISHED["gpt2"]) == models.GPT2Config()
    found = models.BertConfig.from_huggingface(PUBLISHED["bert"])
    assert found == models.BertConfig(pooler=False, lm_head=True)
    assert models.LlamaConfig.from_huggingface(PUBLISHED["llama"]) == models.LlamaConfig(
        vocab_size=128256,
        embed_dim=2048,
        num_layers=16,
        num_heads=32,
        kv_heads=8,
        feedforward_dim=8192,
        rotary_base=500000.0,
        rotary_scaling=models.Llama3Scaling(32.0),
        eps=1e-5,
        tied_head=True,
    )


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
    assert found.rotary_scaling is None


@pytest.mark.parametrize("option", ["rope_scaling", "rope_parameters"])
def test_scaled_rotations_of_llama(option, tmp_path):
    llama3 = {
        "factor": 32.0,
        "high_freq_factor": 4.0,
        "low_freq_factor": 1.0,
        "original_max_position_embeddings": 8192,
        "rope_type": "llama3",
    }
    for content, scaling in (
        (llama3, models.Llama3Scaling(32.0)),
        ({"type": "linear", "factor": 2.0}, models.LinearScaling(2.0)),
    ):
        folder = folder_of("llama", tmp_path, **{option: content}, rope_theta=500000.0)
        found = models.LlamaConfig.from_huggingface(folder)
        assert found == models.LlamaConfig(**LLAMA, rotary_base=500000.0, rotary_scaling=scaling)
    with pytest.raises(gf.ArgumentError, match="high_freq_factor is not above"):
        models.Llama3Scaling(high_freq_factor=1.0)
    with pytest.raises(gf.ArgumentError, match="original_max_length must be") as caught:
        models.Llama3Scaling(original_max_length=0)
    assert "original_max_length=8192" in caught.value.fix
    with pytest.raises(gf.ArgumentError, match="rotary_scaling is a float"):
        models.LlamaConfig(rotary_scaling=8.0)


@pytest.mark.parametrize(
    ("architectures", "heads"),
    [
        (["BertModel"], (True, False)),
        (["BertForMaskedLM"], (False, True)),
        (["BertForPreTraining"], (True, True)),
        ([], (False, False)),
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
            'options={"architectures": []}',
        ),
        ("bert", {"architectures": "BertModel"}, "architectures is a str", "a list"),
        ("llama", {"rope_scaling": {"rope_type": "yarn"}}, "of the kind 'yarn'", '"llama3"'),
        ("llama", {"rope_scaling": {"type": ["yarn"]}}, "of the kind ['yarn']", '"llama3"'),
        ("llama", {"rope_scaling": {"type": "linear"}}, "has no factor", '{"factor": …}'),
        ("llama", {"rope_parameters": {"factor": 2.0}}, "factor=2.0", "without it"),
        ("llama", {"rope_parameters": {"partial_rotary_factor": 0.5}}, "=0.5", "without it"),
        ("llama", {"rope_scaling": "linear"}, "rope_scaling is a str", "the value"),
        (
            "llama",
            {"rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0}},
            "has no high_freq_factor",
            '{"high_freq_factor": …}',
        ),
        (
            "llama",
            {"rope_scaling": {"rope_type": "linear", "factor": -2}},
            "LinearScaling: factor must be",
            "factor=8.0",
        ),
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


def test_a_model_for_a_folder(tmp_path):
    with gf.Graph():
        model = models.from_pretrained(folder_of("llama", tmp_path), dtype="float64", name="lm")
        assert type(model) is models.Llama
        assert model.path == "lm"
        assert model.embedding.weight.dtype == gf.float64
        assert not model.training
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
