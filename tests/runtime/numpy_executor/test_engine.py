from __future__ import annotations

import ctypes
import gc
import os
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from graphfw.errors import ExecutorError
from graphfw.runtime.cache import Cache
from graphfw.runtime.numpy_executor import engine
from graphfw.runtime.numpy_executor.engine import Engine, compile_codes
from tests.runtime.numpy_executor.small_code import ADD, SPIN, SmallCode, constant

SIGNATURE = ctypes.CFUNCTYPE(
    ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p
)


def value(address: int) -> int:
    result: int = SIGNATURE(address)(None, None, 0, None)
    return result


@dataclass(frozen=True)
class Mute(SmallCode):
    """A code that may not be generated, because its machine code is there."""

    def llvm(self, symbol: str) -> str:
        raise AssertionError("generated again")


def muted(code: SmallCode) -> SmallCode:
    class Same(Mute):
        @property
        def key(self) -> str:
            return code.key

    return Same(code.name, code.body)


def test_equal_codes_are_one_function() -> None:
    first, second, again = compile_codes([constant(3), constant(4), constant(3)])
    assert first == again != second
    assert (value(first), value(second)) == (3, 4)
    assert compile_codes([muted(constant(4))]) == [second]
    assert compile_codes([]) == []


def test_machine_code_is_found_on_the_disk(tmp_path: Path) -> None:
    codes = [constant(i) for i in range(11, 15)]
    Engine(Cache(tmp_path)).addresses(codes)
    later = Engine(Cache(tmp_path))
    assert [value(a) for a in later.addresses([muted(code) for code in codes])] == [*range(11, 15)]
    once_more = Engine(Cache(tmp_path))
    found = once_more.addresses([muted(codes[2]), constant(15), muted(codes[0])])
    assert [value(a) for a in found] == [13, 15, 11]


def test_damaged_machine_code_is_made_again(tmp_path: Path) -> None:
    Engine(Cache(tmp_path)).addresses([constant(5)])
    for path in tmp_path.glob("g*"):
        sound = path.read_bytes()
        path.write_bytes(sound[:-30] + bytes(30))
        again = Engine(Cache(tmp_path))
        assert value(*again.addresses([constant(5)])) == 5
        assert path.read_bytes() == sound


def test_no_cache_is_needed(tmp_path: Path) -> None:
    assert value(*Engine(Cache(None)).addresses([constant(6)])) == 6
    (tmp_path / "file").touch()
    alone = Engine(Cache(tmp_path / "file"))
    with pytest.warns(RuntimeWarning, match="file"):
        assert value(*alone.addresses([constant(6)])) == 6


def test_what_llvm_refuses_is_an_error() -> None:
    with pytest.raises(ExecutorError, match="LLVM refuses generated code"):
        compile_codes([SmallCode("nonsense", "  ret i64 0")])
    with pytest.raises(ExecutorError, match="LLVM refuses generated code"):
        compile_codes([SmallCode("undefined", "  %x = add i64 %y, 1\n  ret i32 0")])


def test_unknown_functions_are_an_error() -> None:
    body = "  %x = call i32 @graphfw_no_such_function()\n  ret i32 %x"
    code = SmallCode("unknown", body, "declare i32 @graphfw_no_such_function()")
    with pytest.raises(ExecutorError, match="calls graphfw_no_such_function, which this process"):
        compile_codes([code])
    assert value(*compile_codes([constant(8)])) == 8


def test_errors_are_collected_in_any_order() -> None:
    unknown = "declare i32 @graphfw_no_such_function()"
    body = "  %x = call i32 @graphfw_no_such_function()\n  ret i32 %x"
    for code in (SmallCode("collected", body, unknown), SmallCode("collected", "  ret i64 0")):
        with pytest.raises(ExecutorError) as caught:
            compile_codes([code])
        error: Any = caught.value
        error.kept = error  # with the frames of its traceback, and what they hold
        del caught, error
    gc.collect()


def test_functions_of_the_c_library_are_known() -> None:
    body = """  %y = call float @expf(float 1.0)
  %z = fmul float %y, 100.0
  %i = fptosi float %z to i32
  ret i32 %i"""
    assert value(*compile_codes([SmallCode("exp", body, "declare float @expf(float)")])) == 271


def test_functions_can_be_made_known(tmp_path: Path) -> None:
    answer = ctypes.CFUNCTYPE(ctypes.c_int32)(lambda: 42)
    body = "  %x = call i32 @graphfw_test_answer()\n  ret i32 %x"
    code = SmallCode("answer", body, "declare i32 @graphfw_test_answer()")
    engine.define("graphfw_test_answer", ctypes.cast(answer, ctypes.c_void_p).value or 0)
    assert value(*compile_codes([code])) == 42


@pytest.mark.slow
def test_machine_code_whose_callees_are_gone_is_not_loaded(tmp_path: Path) -> None:
    program = """
import sys
from pathlib import Path
from graphfw.runtime.cache import Cache
from graphfw.runtime.numpy_executor import engine
from tests.runtime.numpy_executor.small_code import SmallCode
body = "  %x = call i32 @graphfw_test_given()\\n  ret i32 %x"
code = SmallCode("given", body, "declare i32 @graphfw_test_given()")
if sys.argv[1] == "define":
    engine.define("graphfw_test_given", 4096)
try:
    engine.compile_codes([code])
except engine.ExecutorError as error:
    print(error)
"""
    environment = {**os.environ, "GRAPHFW_CACHE": str(tmp_path)}
    said = [
        subprocess.run(
            [sys.executable, "-c", program, how],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for how in ("define", "leave")
    ]
    assert said[0] == ""
    assert "generated code can't be loaded" in said[1]


def test_threads_get_one_address() -> None:
    found: list[list[int]] = []
    codes = [constant(i) for i in range(100, 106)]
    threads = [
        threading.Thread(target=lambda: found.append(compile_codes(codes))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert found == [found[0]] * 4
    assert [value(address) for address in found[0]] == [*range(100, 106)]


@pytest.mark.slow
def test_processes_may_compile_into_one_folder_at_once(tmp_path: Path) -> None:
    program = """
from graphfw.runtime.numpy_executor.engine import compile_codes
from tests.runtime.numpy_executor.test_engine import constant, value
print([value(address) for address in compile_codes([constant(i) for i in range(200, 212)])])
"""
    environment = {**os.environ, "GRAPHFW_CACHE": str(tmp_path)}
    command = [sys.executable, "-c", program]
    running = [
        subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    said = [process.communicate()[0] for process in running]
    assert said == [f"{[*range(200, 212)]}\n"] * 2
    kept = [name for name in os.listdir(tmp_path) if name.startswith("gf_")]
    assert len(kept) == 12


def test_a_function_that_was_begun_ahead_is_compiled_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled: list[dict[str, str]] = []
    alone = Engine(Cache(tmp_path))
    monkeypatch.setattr(engine, "_made", [alone])
    monkeypatch.setattr(engine, "default_threads", lambda: 2)
    monkeypatch.setattr(alone, "_optimise", lambda *_: compiled.append({}))
    with engine.ahead(constant(61)):
        assert [value(a) for a in compile_codes([constant(61), constant(61)])] == [61, 61]
    with engine.ahead(muted(constant(61))):
        pass
    assert len(compiled) == 1
    assert alone.has(constant(61))
    assert not alone.has(constant(62))


def test_what_llvm_refuses_is_said_to_who_asks_for_it() -> None:
    nonsense = SmallCode("ahead", "  ret i64 0")
    with engine.ahead(nonsense), pytest.raises(ExecutorError, match="LLVM refuses"):
        compile_codes([nonsense])


def test_tidy_code_is_compiled_as_it_is() -> None:
    class Tidy(SmallCode):
        tidy = True

    body = "  %x = add i32 1, 2\n  ret i32 %x"
    assert "add i32 1, 2" in engine.optimised(Tidy("tidy", body))
    slot = "  %k = alloca i32\n  store i32 7, ptr %k\n  %x = load i32, ptr %k\n  ret i32 %x"
    assert "ret i32 7" in engine.optimised(Tidy("slot", slot))
    assert [value(a) for a in compile_codes([Tidy("tidy", body), constant(63)])] == [3, 63]


def test_texts() -> None:
    assert "define" in engine.optimised(SPIN)
    assert "load volatile" not in engine.optimised(ADD)
    # LLVM has nothing to remove here but what the caller wrote twice.
    double = SmallCode("double", "  %x = add i32 1, 2\n  ret i32 %x")
    assert "ret i32 3" in engine.optimised(double)
    assert "ret" in engine.assembly(ADD)


def test_importing_graphfw_does_not_import_llvmlite() -> None:
    program = "import sys, graphfw; print(any(m.startswith('llvmlite') for m in sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "False\n"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
def test_a_fork_while_another_thread_begins_to_compile() -> None:
    """In a process of its own: should they wait for each other, they would do so for ever."""
    program = """if True:
        import os, threading, time
        from graphfw.runtime.numpy_executor import engine
        from graphfw.runtime.numpy_executor.native import RunnerCode

        begun = threading.Event()

        def compiles():
            with engine._lock, engine._engine()._quick():
                begun.set()
                time.sleep(0.1)  # meanwhile the other thread is in os.fork
                engine.compile_codes([RunnerCode()])

        thread = threading.Thread(target=compiles)
        thread.start()
        begun.wait()
        child = os.fork()
        if child == 0:
            assert engine._made[0]._quickened is None
            engine.compile_codes([RunnerCode()])
            os._exit(0)
        print(os.waitpid(child, 0)[1])
        thread.join()
    """
    command = [sys.executable, "-W", "ignore", "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.stdout == "0\n"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
def test_a_fork_in_the_thread_that_compiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a signal handler: the child goes on without the threads that compile for it."""

    class Tidy(SmallCode):
        tidy = True

    children: list[int] = []
    groups = engine._groups

    def forks(texts: dict[str, str], most: int) -> list[dict[str, str]]:
        if any("ret i32 72" in text for text in texts.values()):
            children.append(os.fork())
        return groups(texts, most)

    monkeypatch.setattr(engine, "_groups", forks)
    begun_before = [Tidy("before", f"  ret i32 {n}") for n in range(60, 70)]
    alone = Engine(Cache(None))
    found = alone.addresses([*begun_before, constant(72)])
    values = [value(address) for address in found]
    (child,) = children
    if child == 0:
        os._exit(values != [*range(60, 70), 72])
    assert values == [*range(60, 70), 72]
    assert os.waitpid(child, 0)[1] == 0
