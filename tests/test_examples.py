"""The examples run as a user would run them."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from safetensors.numpy import load_file

EXAMPLES = Path(__file__).parent.parent / "examples"


def run(name: str, *arguments: str, folder: Path) -> str:
    command = [sys.executable, str(EXAMPLES / name), *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_digits(tmp_path):
    """The main job: trains to 97 % or more, saves, loads, draws; it fails by itself otherwise."""
    said = run("digits.py", "--out", "out", folder=tmp_path)
    assert "50,826 parameters" in said
    assert "predictions are the same" in said
    assert (tmp_path / "out" / "digits.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "out" / "digits.safetensors").stat().st_size > 50_826 * 4


@pytest.mark.slow
def test_distributed_digits(tmp_path):
    said = [
        run("distributed_digits.py", "--processes", count, folder=tmp_path).splitlines()
        for count in ("0", "2", "4")
    ]
    assert [len(lines) for lines in said] == [1, 2, 4]
    assert len({line.partition("loss")[2] for lines in said for line in lines}) == 1


@pytest.mark.slow
def test_convnet(tmp_path):
    """It fails by itself where it learns too little, and goes on from its checkpoint."""
    assert "46,410 parameters" in run("convnet.py", "--epochs", "4", folder=tmp_path)
    assert "215 steps, ended by data" in run(
        "convnet.py", "--epochs", "5", "--resume", folder=tmp_path
    )


@pytest.mark.slow
def test_convnet_that_is_killed_goes_on_to_the_same_weights(tmp_path):
    command = [sys.executable, str(EXAMPLES / "convnet.py"), "--epochs", "6"]
    subprocess.run([*command, "--out", "whole"], cwd=tmp_path, capture_output=True, check=False)
    process = subprocess.Popen(
        [*command, "--out", "killed"], cwd=tmp_path, stdout=subprocess.DEVNULL
    )
    end = time.monotonic() + 60
    while not list(tmp_path.glob("killed/step-*")) and time.monotonic() < end:
        time.sleep(0.01)
    process.kill()
    process.wait()
    last = "step-00000258.safetensors"
    assert not (tmp_path / "killed" / last).exists()
    command += ["--out", "killed", "--resume"]
    subprocess.run(command, cwd=tmp_path, capture_output=True, check=False)
    whole, killed = (load_file(tmp_path / name / last) for name in ("whole", "killed"))
    assert whole.keys() == killed.keys()
    assert all(whole[name].tobytes() == killed[name].tobytes() for name in whole)


@pytest.mark.slow
def test_tabular(tmp_path):
    """It fails by itself where it learns too little. Memory does not grow with the table."""
    pytest.importorskip("pyarrow")
    pytest.importorskip("resource")  # not on Windows
    assert "588 steps on 150,000 rows" in run("tabular.py", "--rows", "150000", folder=tmp_path)
    script = """
import resource, runpy, sys
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""
    peaks = []
    for rows in ("150000", "2400000"):  # of 40 bytes each, in memory
        command = [sys.executable, "-c", script, str(EXAMPLES / "tabular.py"), "--rows", rows]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
        peaks.append(int(done.stdout.split()[-1]) * (1 if sys.platform == "darwin" else 1024))
    assert peaks[1] - peaks[0] < 2_250_000 * 40 / 2


def test_char_language_model_goes_on(tmp_path):
    """A tiny one, on a text of one's own."""
    (tmp_path / "text.md").write_text("Describe first, run later. " * 200, "utf-8")
    arguments = ["--text", "text.md", "--length", "16", "--width", "16", "--prompt", "run"]
    said = run("char_language_model.py", *arguments, "--steps", "2", folder=tmp_path)
    assert "5,400 characters, 16 different ones" in said
    assert said.count("--- temperature") == 2
    said = run("char_language_model.py", *arguments, "--steps", "3", "--resume", folder=tmp_path)
    assert "goes on after step 2" in said
    assert "step     3  training" in said


@pytest.mark.slow
def test_char_language_model(tmp_path):
    """It predicts text that it has not seen better than a count of letters, which needs 4.9."""
    said = run("char_language_model.py", "--steps", "400", folder=tmp_path)
    assert float(said.splitlines()[-1].removesuffix(" bits per character")) < 3.2


def test_translate_makes_its_sentences():
    spec = importlib.util.spec_from_file_location("translate", EXAMPLES / "translate.py")
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    for number, english, french in [
        (0, "zero", "zéro"),
        (71, "seventy-one", "soixante et onze"),
        (80, "eighty", "quatre-vingts"),
        (91, "ninety-one", "quatre-vingt-onze"),
        (1000, "one thousand", "mille"),
        (80_200, "eighty thousand two hundred", "quatre-vingt mille deux cents"),
        (200_101, "two hundred thousand one hundred and one", "deux cent mille cent un"),
    ]:
        assert (made.english(number), made.french(number)) == (english, french)


def test_translate_runs(tmp_path):
    assert "of 50 new numbers" in run("translate.py", "--quick", folder=tmp_path)


@pytest.mark.slow
def test_translate(tmp_path):
    """It fails by itself where it learns too little."""
    assert "step  1000 of 1000" in run("translate.py", folder=tmp_path)


def test_lora_runs(tmp_path):
    pytest.importorskip("tokenizers")
    said = run("lora.py", "--quick", "--out", "out", folder=tmp_path)
    assert "trained 9,216 parameters for the second task; the model has 102,656" in said


@pytest.mark.slow
def test_lora(tmp_path):
    """It fails by itself where it learns too little; transformers reads what it merges."""
    pytest.importorskip("tokenizers")
    run("lora.py", "--out", "out", folder=tmp_path)
    transformers = pytest.importorskip("transformers")
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "out" / "merged")
    words = transformers.PreTrainedTokenizerFast(
        tokenizer_file=str(tmp_path / "out" / "merged" / "tokenizer.json")
    )
    made = model.generate(**words("planet>", return_tensors="pt"), max_new_tokens=6)
    assert words.decode(made[0]).replace(" ", "") == "planet>ufobmq"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("vae", ("--epochs", "100"), "nats"),
        ("diffusion", ("--epochs", "3"), "are read as meant"),
        ("pinn", ("--steps", "1000"), "relative error 0"),
    ],
)
def test_pictures(tmp_path, name, options, said):
    """They fail by themselves where they learn too little, but for the few epochs of one."""
    assert said in run(f"{name}.py", *options, "--out", "out", folder=tmp_path)
    assert (tmp_path / "out" / f"{name}.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_ocr(tmp_path):
    """All lines of the page that it draws, turned ones and the one on its head too."""
    if importlib.util.find_spec("rapidocr_onnxruntime") is None:
        pytest.skip("the models are not installed")
    said = run("ocr.py", "--picture", "boxes.png", folder=tmp_path)
    for text in ("Describe first, run later.", "Invoice No. 2026-1121", "stands on its head"):
        assert text in said
    assert (tmp_path / "boxes.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_finetune(tmp_path):
    """It fails by itself where it learns too little."""
    if importlib.util.find_spec("rapidocr_onnxruntime") is None:
        pytest.skip("the network is not installed")
    assert "trains" in run("finetune.py", "--steps", "100", folder=tmp_path)


@pytest.fixture(scope="module")
def extras(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example package as it is installed: in a folder to be put on the path."""
    folder = tmp_path_factory.mktemp("extras")
    source = folder / "source"  # building writes into the folder
    shutil.copytree(EXAMPLES / "graphfw_extras", source)
    site = folder / "site"
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps"]
    command += ["--no-build-isolation", "--disable-pip-version-check", "--target", str(site)]
    done = subprocess.run([*command, str(source)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return site


def with_extras(site: Path, folder: Path, *arguments: str) -> str:
    """Run Python where the example package is installed, and return what it says."""
    path = os.pathsep.join([str(site), str(EXAMPLES.parent)])
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path, "GRAPHFW_JIT": "1"},  # they look at kernels
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_extras_executor_is_found_by_name(extras: Path, tmp_path: Path):
    """By the entry point alone: the script does not import the package."""
    script = """
import graphfw as gf
from graphfw.runtime.executor import executor_names
assert "counting" in executor_names(), executor_names()
with gf.Graph() as g:
    y = gf.placeholder((), name="x") * 2
print(gf.Session(g, executor="counting").run(y, {"x": 4.0}))
"""
    assert with_extras(extras, tmp_path, "-c", script) == "8.0\n"


@pytest.mark.slow
def test_extras_pass_their_own_tests(extras: Path, tmp_path: Path):
    shutil.copytree(EXAMPLES / "graphfw_extras" / "tests", tmp_path / "tests")
    shutil.copy(EXAMPLES / "graphfw_extras" / "pyproject.toml", tmp_path)
    said = with_extras(extras, tmp_path, "-m", "pytest", "-q", "-p", "no:cacheprovider")
    with_einops = "42 passed, 12 skipped" in said or "54 passed" in said  # on a GPU
    assert with_einops or "23 passed, 13 skipped" in said or "35 passed, 1 skipped" in said


def test_an_op_with_native_code_is_two_files():
    """One says what it computes, one how on CPUs and GPUs; one line makes each known."""
    package = EXAMPLES / "graphfw_extras"
    naming = {}
    for path in [package / "pyproject.toml", *(package / "src").rglob("*.py")]:
        lines = [line for line in path.read_text("utf-8").splitlines() if "moving_average" in line]
        naming[path.name] = len(lines)
    # The import and the public name; the entry point.
    assert naming.pop("__init__.py") == 2
    assert naming.pop("pyproject.toml") == 1
    found = {name for name, count in naming.items() if count}
    assert found == {"moving_average.py", "native.py"}


@pytest.mark.slow
def test_extras_bring_native_code_that_is_found_by_its_op(extras: Path, tmp_path: Path):
    """By the entry point alone: nothing imports the module."""
    script = """
import sys
import graphfw as gf
from graphfw_extras import moving_average
with gf.Graph() as g:
    x = gf.placeholder(("n", "t"), name="x")
    y = moving_average(x, decay=0.5)
assert "graphfw_extras.native" not in sys.modules
with gf.Session(g, executor="numpy") as session:
    print("outside of native code" in session.compile(y, feeds=[x]).explain())
"""
    assert with_extras(extras, tmp_path, "-c", script) == "False\n"


@pytest.mark.slow
def test_neural_ode(tmp_path):
    """A short run: it learns to foresee a window, and fails by itself otherwise."""
    said = run("neural_ode.py", "--steps", "300", "--out", "out", folder=tmp_path)
    assert "300 updates" in said
    assert "over 1000 steps" in said
    assert (tmp_path / "out" / "neural-ode.png").read_bytes().startswith(b"\x89PNG")
