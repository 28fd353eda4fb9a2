"""The machine that code is generated for, and the same with narrower vectors."""

import pytest

from graphfw.errors import ArgumentError
from graphfw.runtime.numpy_executor import machine as module
from graphfw.runtime.numpy_executor.machine import Machine

FEATURES = "+amx-tile,+avx,+avx2,+avx512bf16,+avx512bw,+avx512dq,+avx512f,+avx512vl,+f16c,+fma"
WIDE = Machine("x86_64-unknown-linux-gnu", "sapphirerapids", f"{FEATURES},+sse4.2", "LLVM 20")


@pytest.fixture
def chosen(monkeypatch):
    """Return a function that makes the machine anew from the environment."""
    monkeypatch.setattr(module, "_native", lambda: WIDE)

    def choose(bits):
        monkeypatch.setenv("GRAPHFW_VECTOR_BITS", bits)
        return module.machine.__wrapped__()

    return choose


@pytest.mark.parametrize(
    ("bits", "has", "lacks"),
    [
        ("512", ("amx-tile", "avx512f", "avx2"), ()),
        ("256", ("avx2", "avx", "fma", "f16c"), ("amx-tile", "avx512f", "avx512bf16")),
        ("128", ("sse4.2",), ("avx512f", "avx2", "avx", "fma", "f16c")),
    ],
)
def test_instructions_of_wider_vectors_are_left_out(chosen, bits, has, lacks):
    narrow = chosen(bits)
    assert narrow.has(*has)
    assert not any(narrow.has(name) for name in lacks)
    assert narrow.vector_bits == int(bits)
    assert (narrow.key == WIDE.key) == (bits == "512"), "kept code is that of one machine"


def test_without_the_variable_it_is_what_it_is(chosen):
    assert chosen("") is WIDE


def test_other_widths_are_refused(chosen):
    with pytest.raises(ArgumentError, match="GRAPHFW_VECTOR_BITS is 128, 256 or 512, got '64'"):
        chosen("64")


def test_wider_vectors_than_the_machine_has_are_refused(chosen):
    narrow = chosen("256")
    with pytest.raises(ArgumentError, match="512: this machine's vectors have 256 bits"):
        narrow.narrowed(512)
