"""The public names of other frameworks, which graphfw's errors must have an answer for.

    python -m tests.support.foreign_names

writes them anew to `tests/hints/foreign_names.txt`, and the arguments of functions and classes to
`tests/hints/foreign_arguments.txt`, from the packages that are installed where it runs: PyTorch,
Keras, JAX, Optax, NumPy, SciPy and ONNX Runtime. Tests read these files, so they want none of the
packages.
"""

from __future__ import annotations

import importlib
import inspect
import os
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

FILE = Path(__file__).parent.parent / "hints" / "foreign_names.txt"

ARGUMENTS = FILE.with_name("foreign_arguments.txt")

MODULES = {
    "torch": "gf",
    "torch.nn": "gf.nn",
    "torch.nn.functional": "gf.nn",
    "torch.nn.init": "gf.nn.init",
    "torch.optim": "gf.optim",
    "torch.optim.lr_scheduler": "gf.optim.schedules",
    "torch.distributions": "gf.distributions",
    "keras.layers": "gf.nn",
    "jax.numpy": "gf",
    "jax.nn": "gf.nn",
    "optax": "gf.optim",
    "numpy": "gf",
}
"""Modules of other frameworks, with graphfw's modules that their users look for the names in."""

OTHERS = (
    "torch.autograd",
    "torch.func",
    "torch.linalg",
    "torch.nn.utils",
    "torch.overrides",
    "torch.special",
    "keras",
    "keras.Sequential",
    "keras.activations",
    "keras.initializers",
    "keras.losses",
    "keras.ops",
    "keras.optimizers",
    "keras.optimizers.schedules",
    "jax",
    "jax.lax",
    "jax.nn.initializers",
    "jax.random",
    "jax.test_util",
    "jax.tree",
    "jax.tree_util",
    "numpy.fft",
    "numpy.linalg",
    "optax.GradientTransformation",
    "numpy.random",
    "numpy.random.Generator",
    "scipy.linalg",
    "scipy.special",
    "scipy.signal",
    "torch.onnx",
    "torchvision.transforms",
    "torch.utils.data",
    "keras.applications",
    "keras.callbacks",
    "keras.metrics",
    "keras.utils",
    "sklearn.metrics",
    "tensorflow_probability.distributions",
    "torchvision.models",
    "lightning",
    "lightning.pytorch.loggers",
    "lightning.pytorch.tuner",
    "peft",
    "transformers",
    "flax.linen",
    "flax.nnx",
    "onnx",
    "onnxruntime",
)
"""Further modules and classes, for whose names the tables may have rows."""

CLASSES = {
    "torch.Tensor": "Tensor",
    "numpy.ndarray": "Tensor",
    "jax.Array": "Tensor",
    "tensorflow.Tensor": "Tensor",
    "tensorflow.Variable": "Tensor",
    "torch.nn.Module": "Module",
    "keras.Model": "Module",
    "flax.linen.Module": "Module",
    "lightning.LightningModule": "Module",
    "peft.PeftModel": "Module",
    "transformers.PreTrainedModel": "Module",
    "keras.layers.Dropout": "Module",
    "torch.optim.Optimizer": "Optimizer",
    "torch.distributions.Distribution": "Distribution",
    "tensorflow_probability.distributions.Distribution": "Distribution",
    "keras.optimizers.Optimizer": "Optimizer",
    "onnxruntime.InferenceSession": "Session",
    "torch.fx.Graph": "Graph",
    "jax.stages.Compiled": "Plan",
    "tensorflow.Graph": "Graph",
    "tensorflow.compat.v1.Session": "Session",
    "tensorflow.function": "Function",
    "jax.jit": "Function",
    "jax.core.Jaxpr": "Graph",
    "onnx.GraphProto": "Graph",
    "lightning.Trainer": "Trainer",
    "transformers.Trainer": "Trainer",
    "keras.callbacks.History": "Training",
    "transformers.TrainOutput": "Training",
    "lightning.callbacks.ModelCheckpoint": "Checkpoints",
    "orbax.checkpoint.CheckpointManager": "Checkpoints",
    "tensorflow.train.Checkpoint": "Checkpoints",
    "tensorflow.train.CheckpointManager": "Checkpoints",
    "torch.utils.data.DataLoader": "Batches",
    "tensorflow.data.Dataset": "Batches",
    "torch.optim.lr_scheduler.LRScheduler": "Schedule",
}
"""Classes of other frameworks, with graphfw's that stand in their place."""

LISTED = {
    "keras.applications": """
        DenseNet121 EfficientNetB0 InceptionV3 MobileNetV2 ResNet50 VGG16 Xception
    """,
    "keras.callbacks": """
        BackupAndRestore CSVLogger Callback EarlyStopping LambdaCallback LearningRateScheduler
        ModelCheckpoint ProgbarLogger ReduceLROnPlateau TensorBoard TerminateOnNaN
    """,
    "keras.utils": "set_random_seed",
    "torch.utils.data": """
        BatchSampler ConcatDataset DataLoader Dataset IterableDataset RandomSampler Sampler
        SequentialSampler Subset TensorDataset WeightedRandomSampler default_collate random_split
    """,
    "torchvision.models": """
        alexnet convnext_tiny densenet121 efficientnet_b0 get_model inception_v3 mobilenet_v3_large
        resnet18 resnet50 vgg16 vit_b_16
    """,
    "lightning": "LightningDataModule LightningModule Trainer seed_everything",
    "lightning.pytorch.loggers": "CSVLogger MLFlowLogger TensorBoardLogger WandbLogger",
    "lightning.pytorch.tuner": "Tuner lr_find",
    "lightning.LightningModule": "configure_optimizers log training_step validation_step",
    "peft": "LoraConfig PeftModel get_peft_model",
    "peft.PeftModel": "merge_and_unload print_trainable_parameters",
    "transformers": """
        AutoConfig AutoModel AutoModelForCausalLM AutoTokenizer BertModel GPT2LMHeadModel
        GenerationConfig LlamaForCausalLM Trainer TrainingArguments get_cosine_schedule_with_warmup
        get_linear_schedule_with_warmup pipeline
    """,
    "transformers.PreTrainedModel": "from_pretrained generate num_parameters save_pretrained",
    "flax.linen": """
        BatchNorm Conv Dense DenseGeneral Dropout Embed LayerNorm Module
        MultiHeadDotProductAttention RMSNorm SelfAttention compact
    """,
    "flax.linen.Module": "apply bind init",
    "flax.nnx": "Conv Dropout Embed Linear Module Param Rngs jit value_and_grad",
    "keras.layers.Dropout": "rate",  # an attribute of its objects, not of the class
    "tensorflow.Tensor": "consumers device dtype eval get_shape graph name op ref set_shape shape",
    "tensorflow.Variable": """
        assign assign_add assign_sub count_up_to eval from_proto gather_nd get_shape initial_value
        initialized_value initializer load read_value scatter_add scatter_update set_shape
        sparse_read to_proto value
    """,
    "tensorflow_probability.distributions.Distribution": """
        cdf cross_entropy entropy kl_divergence log_cdf log_prob log_survival_function mean mode
        prob quantile sample stddev survival_function variance
    """,
    "tensorflow.Graph": """
        add_to_collection add_to_collections as_default as_graph_def as_graph_element
        building_function clear_collection collections control_dependencies create_op device
        finalize finalized get_all_collection_keys get_collection get_collection_ref
        get_operation_by_name get_operations get_tensor_by_name gradient_override_map
        graph_def_versions is_feedable is_fetchable name_scope operations prevent_feeding
        prevent_fetching seed switch_to_thread_local unique_name version
    """,
    "tensorflow.compat.v1.Session": """
        as_default close graph graph_def list_devices make_callable partial_run partial_run_setup
        run sess_str
    """,
    "tensorflow.function": """
        experimental_get_tracing_count get_concrete_function
        pretty_printed_concrete_signatures python_function
    """,
    "jax.jit": "clear_cache eval_shape lower trace",
    "jax.core.Jaxpr": "constvars eqns invars outvars",
    "jax.test_util": "check_grads",
    "jax.tree": """
        all broadcast flatten flatten_with_path leaves leaves_with_path map map_with_path reduce
        reduce_associative static structure transpose unflatten
    """,
    "jax.tree_util": """
        Partial PyTreeDef all_leaves keystr register_dataclass register_pytree_node
        register_pytree_node_class register_pytree_with_keys register_static tree_all tree_broadcast
        tree_flatten tree_flatten_with_path tree_leaves tree_leaves_with_path tree_map
        tree_map_with_path tree_reduce tree_reduce_associative tree_structure tree_transpose
        tree_unflatten treedef_children treedef_is_leaf treedef_tuple
    """,
    "torch.onnx": "dynamo_export export",
    "torchvision.transforms": """
        CenterCrop ColorJitter Compose ConvertImageDtype CutMix Grayscale MixUp Normalize
        Pad RandomAffine RandomCrop RandomErasing RandomGrayscale RandomHorizontalFlip
        RandomPerspective RandomResizedCrop RandomRotation RandomVerticalFlip Resize
        ToTensor
    """,
    "onnx": """
        ModelProto TensorProto backend checker compose helper load_from_string load_model
        load_model_from_string numpy_helper save_model shape_inference version_converter
    """,
    "onnxruntime": "InferenceSession",
    "onnx.GraphProto": """
        SerializeToString doc_string initializer input metadata_props name node output
        quantization_annotation sparse_initializer value_info
    """,
    "lightning.Trainer": """
        callback_metrics callbacks current_epoch fit fit_loop global_step logged_metrics
        model optimizers predict save_checkpoint test validate
    """,
    "transformers.Trainer": """
        add_callback callbacks create_optimizer evaluate lr_scheduler model optimizer
        predict save_model save_state state train
    """,
    "keras.callbacks.History": "epoch history params",
    "transformers.TrainOutput": "global_step metrics training_loss",
    "lightning.callbacks.ModelCheckpoint": "best_model_path dirpath last_model_path",
    "orbax.checkpoint.CheckpointManager": """
        all_steps best_step close delete directory latest_step restore save should_save
        wait_until_finished
    """,
    "tensorflow.train.Checkpoint": "read restore save write",
    "tensorflow.train.CheckpointManager": """
        checkpoints directory latest_checkpoint restore_or_initialize save
    """,
    "torch.utils.data.DataLoader": """
        batch_sampler batch_size collate_fn dataset drop_last num_workers persistent_workers
        pin_memory prefetch_factor sampler
    """,
    "tensorflow.data.Dataset": """
        as_numpy_iterator batch cache concatenate filter interleave map padded_batch
        prefetch repeat shard shuffle skip take unbatch zip
    """,
    "keras.metrics": """
        AUC Accuracy BinaryAccuracy CategoricalAccuracy F1Score IoU MeanIoU Precision
        R2Score Recall SparseCategoricalAccuracy SparseTopKCategoricalAccuracy
        TopKCategoricalAccuracy
    """,
    "sklearn.metrics": """
        accuracy_score confusion_matrix f1_score jaccard_score precision_score r2_score
        recall_score roc_auc_score
    """,
    "tensorflow_probability.distributions": "Bernoulli Categorical MultivariateNormalDiag Normal",
    "torch.optim.lr_scheduler.LRScheduler": "get_last_lr get_lr load_state_dict state_dict step",
}
"""Names that no package tells: of TensorFlow, which is large, and of objects without a class; and
those of modules of which few are meant for users."""


def read() -> dict[str, list[str]]:
    """Return the file's names by the module or class that has them."""
    found: dict[str, list[str]] = {}
    for line in FILE.read_text("utf-8").splitlines():
        if line.startswith("["):
            names = found[line[1:-1]] = []
        elif line and not line.startswith("#"):
            names += line.split()
    return found


def read_arguments() -> dict[str, list[str]]:
    """Return the names of arguments by the paths of the functions and classes that take them."""
    lines = ARGUMENTS.read_text("utf-8").splitlines()
    pairs = [line.split(": ") for line in lines if line and not line.startswith("#")]
    return {path: names.split() for path, names in pairs}


def write() -> None:
    """Write the files from what is installed."""
    os.environ.setdefault("KERAS_BACKEND", "torch")
    paths = [path for path in (*MODULES, *OTHERS, *CLASSES) if path not in LISTED]
    packages = dict.fromkeys(path.partition(".")[0] for path in paths)
    versions = [f"{p} {importlib.import_module(p).__version__.partition('+')[0]}" for p in packages]
    lines = [f"# {', '.join(versions)}; written by `python -m tests.support.foreign_names`."]
    for path in (*MODULES, *OTHERS, *CLASSES):
        listed = textwrap.wrap(" ".join(public_names(path)), 100, break_on_hyphens=False)
        lines += ["", f"[{path}]", *listed]
    FILE.write_text("\n".join(lines) + "\n", "utf-8")
    taken = [f"{path}.{name}: {' '.join(names)}" for path, name, names in _taken() if names]
    ARGUMENTS.write_text("\n".join([lines[0], "", *taken]) + "\n", "utf-8")


def _taken() -> Iterator[tuple[str, str, list[str]]]:
    """Yield each function and class of the modules with the names of its arguments."""
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    for path, _, name in walked():
        value = getattr(importlib.import_module(path), name, None)
        try:
            parameters = inspect.signature(value).parameters.values()  # type: ignore[arg-type]  # it is callable
        except (TypeError, ValueError):  # written in C, or no function
            continue
        named = [p.name for p in parameters if p.kind not in variadic]
        yield path, name, [n for n in named if not n.startswith("_")]


def public_names(path: str) -> list[str]:
    """Return the public names of a module or class, without what it imports from elsewhere."""
    if path in LISTED:
        return sorted(LISTED[path].split())
    owner = _found(path)
    package = path.partition(".")[0]
    # PyTorch's optimisers make some attributes in `__init__` alone.
    more = ("param_groups", "state") if path == "torch.optim.Optimizer" else ()
    return sorted({n for n in dir(owner) if not _is_foreign(owner, n, package)}.union(more))


def _found(path: str) -> Any:
    try:
        return importlib.import_module(path)
    except ModuleNotFoundError:
        parent, _, name = path.rpartition(".")
        return getattr(importlib.import_module(parent), name)


def _is_foreign(owner: Any, name: str, package: str) -> bool:
    """Say whether a name is private, or that of a thing which the owner has imported."""
    if name.startswith("_") or name == "TYPE_CHECKING":
        return True
    if not isinstance(owner, ModuleType):
        return False
    value = getattr(owner, name, None)
    home = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
    top = home.partition(".")[0] if isinstance(home, str) else package
    return top in (sys.stdlib_module_names - {"builtins", "math"}) or top == "typing_extensions"


def walked() -> Iterator[tuple[str, str, str]]:
    """Yield each module's name with its path and with graphfw's module to look for it in."""
    names = read()
    for path, own in MODULES.items():
        for name in names[path]:
            yield path, own, name


if __name__ == "__main__":
    write()
