"""Every public name of other frameworks exists in graphfw, or answers with what to write.

`python -m tests.support.foreign_names` writes the list of the names, from the packages.
"""

from __future__ import annotations

import ast
import inspect
import linecache
import re
from collections import Counter
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

import graphfw as gf
from graphfw.hints import public, tables
from graphfw.hints.expressions import Argument, filled
from graphfw.hints.foreign_arguments import SYNONYMS
from graphfw.hints.foreign_left_out import why_left_out
from graphfw.hints.lookup import look_up
from tests.support import foreign_names

NAMES = foreign_names.read()
OWN = {"gf": gf, "gf.nn": gf.nn, "gf.nn.init": gf.nn.init, "gf.optim": gf.optim}
OWN |= {"gf.optim.schedules": gf.optim.schedules, "gf.distributions": gf.distributions}

CALLS = {
    "modules": tables.CALLS,
    "forms": tables.FORMS,
    "values": tables.VALUES,
    **{owner: calls for owner, (calls, _) in tables.OF_OWNERS.items() if calls},
}
TEXTS = [tables.TEXTS, tables.PATTERNS, *[texts for _, texts in tables.OF_OWNERS.values()]]


@pytest.mark.parametrize("path", foreign_names.MODULES)
def test_each_name_exists_or_is_answered(path):
    own = foreign_names.MODULES[path]
    silent = []
    for name in NAMES[path]:
        try:
            getattr(OWN[own], name)
        except gf.UnknownNameError as error:
            if not error.fix or error.fix.startswith(("see dir", "did you mean")):
                silent.append(name)
    assert not silent, (
        f"graphfw has no answer for {path}'s {silent}: add rows to hints/foreign_*.py"
    )


@pytest.mark.parametrize(
    ("path", "module"),
    [
        ("scipy.special", gf.special),
        ("scipy.signal", gf),
        ("torchvision.transforms", gf.nn.augment),
        ("torchvision.models", gf.models),
        ("torch.utils.data", gf.data),
        ("keras.applications", gf.models),
        ("keras.callbacks", gf.train),
        ("keras.metrics", gf.nn.metrics),
        ("sklearn.metrics", gf.nn.metrics),
        ("tensorflow_probability.distributions", gf.distributions),
        ("keras.utils", gf),
        ("lightning", gf.train),
        ("lightning.pytorch.loggers", gf.train),
        ("lightning.pytorch.tuner", gf.train),
        ("peft", gf.nn),
        ("transformers", gf.models),
        ("jax.test_util", gf.testing),
        ("jax.tree", gf.tree),
        ("jax.tree_util", gf),
        ("flax.linen", gf.nn),
        ("flax.nnx", gf.nn),
        ("torch.special", gf.special),
        ("numpy.linalg", gf.linalg),
        ("torch.linalg", gf.linalg),
        ("scipy.linalg", gf.linalg),
        ("numpy.fft", gf.fft),
    ],
)
def test_each_name_of_a_module_exists_or_is_answered(path, module):
    silent = []
    for name in NAMES[path]:
        try:
            getattr(module, name)
        except gf.UnknownNameError as error:
            if error.fix.startswith(("see dir", "did you mean")) and "scipy." not in error.fix:
                silent.append(name)
    assert not silent, f"{path}: {silent}"


GRAPH = gf.Graph()
OWNERS = {
    "Tensor": gf.Tensor,
    "Module": gf.nn.Module,
    "Optimizer": gf.optim.Optimizer,
    "Distribution": gf.distributions.Normal(0.0, 1.0),
    "Session": gf.Session(GRAPH),
    "Graph": GRAPH,
    "Plan": gf.Session(GRAPH).compile([]),
    "Function": gf.function(lambda x: x),
    "Trainer": gf.train.Trainer,
    "Training": gf.train.Training(),
    "Checkpoints": gf.train.Checkpoints,
    "Batches": gf.data.Batches,
    "Schedule": gf.optim.schedules.constant(0.1),
}


@pytest.mark.parametrize("path", foreign_names.CLASSES)
def test_each_attribute_exists_or_is_answered(path):
    kind = foreign_names.CLASSES[path]
    missing = [name for name in NAMES[path] if not hasattr(OWNERS[kind], name)]
    silent = [name for name in missing if not look_up(name, kind)]
    assert not silent, f"no answer for {path}'s {silent}: add rows to hints/foreign_methods.py"


EARLIER = {"per_trip", "place"}
"""Names that graphfw itself had."""

DISTRIBUTED = {
    *("DeviceMesh", "DistributedDataParallel", "DistributedSampler", "FullyShardedDataParallel"),
    *("all_gather", "all_gather_into_tensor", "all_reduce", "all_to_all", "all_to_all_single"),
    *("barrier", "destroy_process_group", "reduce_scatter"),
    *("fully_shard", "get_rank", "get_world_size", "init_device_mesh", "init_process_group"),
    *("reduce_scatter_tensor", "init", "initialize", "is_initialized", "process_count"),
    *("process_index", "rank", "world_size", "local_rank"),
}
"""Names of modules of PyTorch that are not in the list: few of theirs are for users of graphfw."""


def test_the_tables_have_names_of_other_frameworks_alone():
    known = {name for names in NAMES.values() for name in names}
    asked = [calls for kind, calls in CALLS.items() if kind != "forms"]
    rows = {*tables.RENAMED, *[name for calls in asked for name in calls]}
    rows |= {name for texts in TEXTS for name in texts if not set("*[") & set(name)}
    assert not rows - known - EARLIER - DISTRIBUTED - set(dir(gf.Plan))
    for pattern in tables.PATTERNS:
        assert any(fnmatchcase(name, pattern) for name in known), pattern


def test_the_tables_have_no_rows_for_what_graphfw_has():
    own = set(public.PUBLIC["gf"][1])
    texts = set(tables.TEXTS) - set(tables._OPTIM_TEXTS)
    assert not own & {*tables.RENAMED, *tables.CALLS, *texts}


def test_forms_are_those_of_what_graphfw_has():
    own = {name for _, name in public.everything()} | {*dir(gf.Tensor), *dir(gf.optim.Optimizer)}
    assert set(tables.FORMS) <= own


def test_what_is_to_be_written_exists():
    written = [*tables.RENAMED.values(), *[text for texts in TEXTS for text in texts.values()]]
    for calls in CALLS.values():
        written += [expression for rows in calls.values() for _, expression in rows]
    for text in dict.fromkeys(written):
        for path in re.findall(r"\bgf(?:\.[A-Za-z_]\w*)+", text):
            assert path in public.PUBLIC or _found(path) is not None, f"{text}: there is no {path}"


def _found(path):
    """Follow a path such as gf.Session, gf.onnx.load or gf.pi."""
    found = gf
    for name in path.split(".")[1:]:
        found = getattr(found, name, None)
    return found


X = gf.asarray([[0.5, 0.25], [0.75, 1.0]])
V = gf.asarray([0.5, 2.0])
SAMPLES = {
    **{"out_features": 3, "out_channels": 4, "kernel_size": 3},
    **dict.fromkeys(["a", "b", "c", "m", "p", "re", "im", "r", "angle", "x", "y", "logits"], X),
    **dict.fromkeys(["bias", "boundaries", "bins", "u", "v", "values", "weight", "s"], V),
    **dict.fromkeys(["exponent", "threshold", "number", "q", "std", "value", "alpha"], 0.5),
    **dict.fromkeys(["axis", "i", "length", "n", "num", "start", "axis2", "sections", "dim"], 1),
    **dict.fromkeys(["images", "volume"], gf.ones((2, 2, 2, 2, 2))),
    **dict.fromkeys(["where", "condition", "mask"], X > 0.5),
    **{"axes": (1, 0), "shape": (2, 2), "sizes": (2, 1), "high": 3, "stop": 4, "base": 2},
    **{"table": V, "size": (2, 2), "loc": 0, "scale": 1, "mean": 0, "sigma": 1, "df": 3.0},
    **{"axis1": 0, "dim1": 0, "dim2": 1, "indices": gf.asarray([[0, 1]]), "correction": 1},
    **{"initial": 1.0, "decimals": 1, "eps": 0.1, "end": 4, "offset": 0, "target": X, "k": 1},
    **dict.fromkeys(["var", "near", "far", "anchor"], X),
    **{"rate": 0.1, "start": 1, "i_i": 1, "N": 2},
    "batches.size": 2,
    "embedding.indices": gf.asarray([0, 1]),
    **{"bilinear.volume": gf.ones((3, 2, 2)), "vander.v": V, "linear.weight": X, "size.axis": 1},
    **{"index_add.i": gf.asarray([0]), "take.i": gf.asarray([0, 3]), "where.x": X},
    **{f"{name}.axis": 0 for name in ("index_add", "scatter_add", "logcumsumexp")},
    **{f"layer_norm.{name}": 2 for name in ("a", "b", "c")},
    **{"rms_norm.a": 2, "rms_norm.b": 2, "layer_norm.x": gf.ones((2, 2, 2, 2))},
    **{f"pad.{name}": 1 for name in "abcdef"},
    **{
        "pad.x": gf.ones((2, 2, 2)),
        "normalized_shape": (2,),
        "choose.i": gf.asarray([0, 1]),
        "vector_norm.ord": 1,
        "split.size": 1,
    },
    **{f"dot_product_attention.{name}": gf.ones((1, 2, 1, 2)) for name in "qkv"},
    **{f"{name}.x": gf.ones((1, 1, 2, 2)) for name in ("interpolate", "upsample")},
    **{f"{name}.target": gf.asarray([0, 1]) for name in ("cross_entropy", "nll")},
    **{"cholesky.x": X @ X.mT + gf.eye(2), "poly.v": V, "item.key": 0, "bucketize.boundaries": V},
    **{"isin.x": V, "searchsorted.x": V, "average.weights": X, "roll.axis": 0, "trace.x": X},
    **{"histogram_bin_edges.bins": 3, "histc.bins": 3, "rollaxis.start": 0, "expand.shape": 2},
    **{"permute.axes": (1, 0), "session": gf.Session(gf.Graph()), "solve_triangular.b": V},
    **{"repeat.n": 1, "repeat.m": 2, "delete.axis": 0, "compress.axis": 0, "norm.dim": 0},
    **{"histogram_bin_edges.range": (0.0, 1.0), "histc.min": 0, "histc.max": 1, "d": X},
    **{"power": 0.5, "binom.n": X, "comb.n": X, "factorial.n": X, "multigammaln.d": 2, "delta": 1},
    **{
        "selected": X.at[0],
        **{"lr": 0.1, "steps": 10, "decay_steps": 20, "transition_steps": 10, "warmup": 5},
        **{"decay_rate": 0.9, "optimizer": gf.optim.SGD(0.1), "factor": 0.9, "every": 10},
        **{
            "milestones": (10, 20),
            "schedules": (0.1, 0.2, 0.3),
            "low": 0.05,
            "init_value": 0.0,
            "beta1": 0.9,
            "beta2": 0.99,
            "beta_1": 0.9,
            "beta_2": 0.99,
        },
        "any.x": X > 0.5,
        "tri.m": 2,
        "norm.p": 1,
        "all.x": X > 0.5,
        "type.dtype": gf.int8,
    },
    **{"MultivariateNormal.loc": X[0], "covariance": X @ X.mT},
    **{"compress.mask": V > 1, "delete.i": 1, "polar.angle": X, "divmod.y": X, "kthvalue.k": 1},
    **{"ctc_loss.x": gf.zeros((2, 1, 3)), "ctc_loss.target": gf.asarray([[1]])},
    **{"input_lengths": gf.asarray([2]), "target_lengths": gf.asarray([1])},
    **{"narrow.length": 1, "narrow.start": 0, "fill.value": 1},
}
"""Arguments of the calls in the tables by name, or by the call's name and their own."""

SPREAD = {"expand": ("2", "2"), "view": ("4", "1"), "repeat": ("1", "1"), "rand": ("2", "2")}
"""Texts of the arguments behind a star."""

LISTS = {
    "arrays": "[x, x]",
    "shape": "[2, 2]",
    "sizes": "[1, 1]",
    "axes": "(1, 0)",
    "indices": "[0]",
    "mask": "[True, False]",
    "operands": "[x, x]",
    "choose.arrays": "[v, v]",
    "block.arrays": "[[x, x], [x, x]]",
    "meshgrid.arrays": "[v, v]",
}
"""Texts of arguments that have to be lists."""


@pytest.mark.parametrize("kind", CALLS)
def test_expressions_can_be_computed(kind):
    with gf.Graph():
        samples = {**SAMPLES, "gf": gf, "variable": gf.Variable(X), "equation": "ij,ij->ij"}
        for row in [row for rows in CALLS[kind].values() for row in rows]:
            if row[0].startswith(OF_OBJECTS):
                continue
            function, positional, keywords, special = _example(row[0], samples)
            written = filled([row], positional, keywords)
            assert written, row
            try:
                assert eval(written, {**samples, **special}) is not None, written
            except Exception as error:
                raise AssertionError(f"{function} of {row}: {written}") from error


OF_OBJECTS = ("eval(x)", "initial_value(x)", "apply_gradients(")
"""Calls of a session, a variable and an optimiser."""


def _example(call, samples):
    """Return a call's name, arguments that fit it, and the samples that are its own."""
    parsed = ast.parse(f"def {call}: pass").body[0]
    arguments, name = parsed.args, parsed.name
    special = {k.partition(".")[2]: v for k, v in samples.items() if k.startswith(f"{name}.")}
    count = len(arguments.args) - len(arguments.defaults)
    positional = [_argument(a, name, {**samples, **special}) for a in arguments.args[:count]]
    if arguments.vararg is not None:
        positional += map(Argument.of_text, SPREAD.get(name, ("1", "0")))
    keywords = {
        a.arg: _argument(a, name, {**samples, **special})
        for a, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
        if default is None
    }
    if name in ("interpolate", "upsample"):
        keywords["scale_factor"] = Argument("2")
    return name, positional, keywords, special


def _argument(argument, function, samples):
    kind = ast.unparse(argument.annotation) if argument.annotation else ""
    if kind == "dtype":
        return Argument("gf.float64", gf.float64)
    if kind == "list":
        own = LISTS.get(f"{function}.{argument.arg}") or LISTS[argument.arg]
        return Argument(own)
    if kind and kind not in ("number", "tensor"):  # a value, or a list of as many elements
        return Argument.of_text(kind)
    return Argument(argument.arg, samples[argument.arg])


def test_arguments_stand_in_the_place_of_the_tables():
    table = [("f(x, *axes)", "x.g((*axes,))"), ("f(x, y=2, axis=1)", "x + y * axis")]
    assert line(table, "axes + 1", "a", "x") == "(axes + 1).g((a, x))"
    assert line(table, "x", dim="y") == "x + 2 * y"
    assert line(table, "a", unknown="b") == ""
    assert line(table, "x", "*sizes") == "x.g((*sizes,))"
    assert line([("f(x, y)", "x + y")], "x", "*sizes") == ""


def line(table, *positional, **keywords):
    named = {name: Argument.of_text(text) for name, text in keywords.items()}
    return filled(table, [Argument.of_text(text) for text in positional], named)


KINDS = [
    ("f(x, dtype: dtype)", "x.t(dtype)", [("gf.int8", "x.t(gf.int8)"), ("'cuda'", "")]),
    ("f(x, *, n: number)", "x.n(n)", [("n=3", "x.n(3)"), ("n=(3, 4)", "")]),
    ("f(x, sizes: list)", "x.s(sizes)", [("[1, n]", "x.s([1, n])"), ("n", "")]),
    ("f(x, pair: (a, b))", "b - a", [("(1, n)", "n - 1"), ("(1, 2, 3)", "")]),
    ("f(x, *, way: 'F')", "x.f()", [("way='F'", "x.f()"), ("way='C'", "")]),
    ("f(x, axis=None)", "g(x, axis=axis)", [("0", "g(x, axis=0)"), ("", "g(x)")]),
    ("f(x, stop=None)", "g(x, stop)", [("stop=9", "g(x, 9)"), ("", "g(x)")]),
]


@pytest.mark.parametrize(("call", "expression", "examples"), KINDS)
def test_a_table_says_what_an_argument_has_to_be(call, expression, examples):
    for given, wanted in examples:
        parsed = ast.parse(f"f(x, {given})", mode="eval").body
        named = {k.arg: ast.unparse(k.value) for k in parsed.keywords}
        assert line([(call, expression)], *map(ast.unparse, parsed.args), **named) == wanted


def test_arguments_that_many_functions_have_are_translated():
    unknown = Counter()
    for path, names in foreign_names.read_arguments().items():
        module, _, name = path.rpartition(".")
        own = foreign_names.MODULES[module]
        target = f"{own}.{name}" if name in public.PUBLIC[own][1] else look_up(name, own).target
        found = public.find(target)
        if not callable(found) or isinstance(found, (gf.DType, gf.nn.init.Initializer)):
            continue
        known = inspect.signature(found).parameters
        for argument in names:
            meant = [argument, *SYNONYMS.get(argument, ())]
            if not (any(n in known for n in meant) or why_left_out(argument)):
                unknown[argument] += 1
    many = {name for name, count in unknown.items() if count > 9}
    assert not many, f"say in hints/foreign_arguments.py what {many} is called, or why it is not"


def test_arguments_in_another_order_are_known():
    """So the error of `linear_schedule(1.0, 0.0, 10)` names each."""
    same = {"torch.lstsq", "torch.nn.Parameter"}  # removed there; of two arguments, one is usual
    for path, names in foreign_names.read_arguments().items():
        module, _, name = path.rpartition(".")
        own = foreign_names.MODULES[module]
        found = public.find(look_up(name, own).target)
        is_own = name in public.PUBLIC[own][1] or module == "torch.optim"
        if is_own or not callable(found) or path in same:
            continue
        known = inspect.signature(found).parameters.values()
        positional = [p.name for p in known if p.kind is not p.KEYWORD_ONLY]
        for number, argument in enumerate(names[:3]):
            meant = [argument, *SYNONYMS.get(argument, ())]
            meaning = next((n for n in meant if n in {p.name for p in known}), None)
            if meaning in positional and positional.index(meaning) != number:
                order = tables.ORDERS.get(name, [])
                assert order == names[: max(len(order), 1)], path


PAGE = Path(__file__).parent.parent.parent / "docs" / "coming-from.md"
ROWS = re.findall(r"^\| (`.*?) \| (.*) \|$", PAGE.read_text("utf-8"), re.MULTILINE)


def test_the_page_for_others_names_what_exists():
    """docs/coming-from.md: its own block of code runs with those of the other pages."""
    assert len(ROWS) > 60
    aliases = {"np": "numpy", "jnp": "jax.numpy"}
    for theirs, ours in ROWS:
        for path in re.findall(r"\bgf(?:\.[A-Za-z_]\w*)+", ours):
            assert _found(path) is not None, f"{path} in {ours}"
        for path in re.findall(r"`((?:torch|keras|jax|optax|np)(?:\.\w+)+)", theirs):
            top, _, rest = path.partition(".")
            module, _, name = f"{aliases.get(top, top)}.{rest}".rpartition(".")
            assert name in NAMES.get(module, []), f"there is no {path}"
        for line in re.findall(r"`([^`]+)`", f"{theirs} {ours}"):
            rest = "\ndef f(): pass" if line.startswith("@") else " pass" if line[-1] == ":" else ""
            ast.parse(line.replace("…", "...") + rest)


def test_the_programs_side_by_side_are_lines_of_the_one_that_runs():
    """docs/coming-from.md: what stands beside a line of another framework stands in the block."""
    section = PAGE.read_text("utf-8").partition("## Graphs and sessions")[0]
    program = re.findall(r"^```python\n(.*?)^```", section, re.MULTILINE | re.DOTALL)[0]
    rows = re.findall(r"^\| (?:`.*?) \| (.*) \|$", section, re.MULTILINE)
    assert len(rows) > 40
    elsewhere = {"gf.train.Trainer", "model.load_pytorch(path)"}
    for line in {line for row in rows for line in re.findall(r"`([^`]+)`", row)} - elsewhere:
        assert line in program, line


def test_each_line_of_the_page_for_others_gets_the_fix_that_is_beside_it():
    checked = 0
    for theirs, ours in ROWS:
        pairs = zip(re.findall(r"`([^`]+)`", theirs), re.findall(r"`([^`]+)`", ours), strict=False)
        for written, fix in pairs:
            call = re.match(r"(?:torch|jax\.numpy|np)\.(\w+)(\(.*\))$", written)
            if call is None or "…" in fix or not fix.startswith(("gf.", "x @")):
                continue
            mistake = f"gf.{call[1]}{call[2]}"
            if hasattr(gf, call[1]) or look_up(call[1]).text:
                continue
            with pytest.raises(gf.UnknownNameError) as caught:
                _run(mistake)
            assert caught.value.fix == fix, written
            checked += 1
    assert checked >= 10


def _run(line):
    linecache.cache["<page>"] = (len(line), None, [line], "<page>")
    eval(compile(line, "<page>", "eval"), {"gf": gf})


def test_earlier_names_answer_with_the_present_ones(monkeypatch):
    monkeypatch.setenv("GRAPHFW_JIT", "1")  # only compiled plans know their memory
    with gf.Graph() as g:
        x = gf.placeholder((3,), name="x")
        y = x * 2
    with pytest.raises(AttributeError, match=r"g\.location\(\)"):
        g.place()
    with gf.Session(g) as session, pytest.raises(AttributeError, match="per_iteration"):
        session.compile(y, feeds=[x]).memory((3,)).per_trip  # noqa: B018 - it raises
    with gf.Session(g) as session:
        plan = session.compile(y, feeds=[x])
        rows = plan.memory((3,)).entries[0], plan.profile([1.0, 2.0, 3.0]).timings[0]
    for row in rows:
        assert "test_foreign_names.py" in row.location
        with pytest.raises(AttributeError, match="write location"):
            row.place  # noqa: B018 - it raises
