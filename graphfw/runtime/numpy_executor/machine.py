"""What this processor is, as LLVM names it."""

from __future__ import annotations

import functools
from dataclasses import dataclass


@dataclass(frozen=True)
class Machine:
    """The machine that code is generated for: this one.

    Attributes:
        triple: Architecture, vendor and system, such as "x86_64-unknown-linux-gnu".
        cpu: LLVM's name of the processor.
        features: What it has, as LLVM takes it: "+avx2,-amx-tile,...".
        version: Of llvmlite and of LLVM.
    """

    triple: str
    cpu: str
    features: str
    version: str

    @property
    def key(self) -> str:
        """All of it in one text: machine code is valid where this is equal."""
        return f"{self.triple} {self.cpu} {self.features} {self.version}"

    @property
    def architecture(self) -> str:
        """The first part of the triple: "x86_64", "aarch64" (also where it is called arm64)."""
        name = self.triple.split("-")[0]
        return "aarch64" if name == "arm64" else name


@functools.cache
def machine() -> Machine:
    """Return what this process runs on. The first call imports llvmlite."""
    import llvmlite
    import llvmlite.binding as llvm

    version = ".".join(map(str, llvm.llvm_version_info))
    features: dict[str, bool] = llvm.get_host_cpu_features()
    return Machine(
        triple=llvm.get_process_triple(),
        cpu=llvm.get_host_cpu_name(),
        features=",".join(f"{'+' if has else '-'}{name}" for name, has in sorted(features.items())),
        version=f"llvmlite {llvmlite.__version__} LLVM {version}",
    )
