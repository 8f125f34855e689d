"""The set-up step that lets a CUDA build of torch load without CUDA, on a small torch of our own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(
    not all(map(shutil.which, ("gcc", "readelf"))), reason="needs gcc and readelf"
)

SCRIPT = Path(__file__).parents[2] / "requirements" / "cuda_stand_ins.py"
TORCH = """
import ctypes, pathlib
__version__ = "2.9.1"
library = ctypes.CDLL(str(pathlib.Path(__file__).parent / "lib" / "libtorch_cuda.so"))
answer = library.ask()
"""


def compile_library(path: Path, source: str, *options: str) -> None:
    subprocess.run(
        ["gcc", "-x", "c", "-", "-x", "none", "-shared", "-fPIC", "-w", "-o", str(path), *options],
        input=source,
        text=True,
        check=True,
    )


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A torch whose library wants cuBLAS, with a version, and NCCL, without, and has neither."""
    lib, cuda = tmp_path / "site" / "torch" / "lib", tmp_path / "cuda"
    lib.mkdir(parents=True)
    cuda.mkdir()
    (lib.parent / "__init__.py").write_text(TORCH, encoding="utf-8")
    script = tmp_path / "version.map"
    script.write_text("BLAS_12 { global: cublasCreate; };", encoding="utf-8")
    compile_library(
        cuda / "libcublas.so.12",
        "int cublasCreate(void) { return 1; }",
        "-Wl,-soname,libcublas.so.12",
        f"-Wl,--version-script={script}",
    )
    compile_library(
        cuda / "libnccl.so.2", "int ncclSend(void) { return 2; }", "-Wl,-soname,libnccl.so.2"
    )
    compile_library(
        lib / "libtorch_cuda.so",
        "int cublasCreate(void); int ncclSend(void);"
        "int ask(void) { return cublasCreate() + ncclSend(); }",
        *(str(cuda / name) for name in ("libcublas.so.12", "libnccl.so.2")),
        "-Wl,-rpath,$ORIGIN",
    )
    return tmp_path / "site"


def run(*arguments: str, site: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(site)},
        check=False,
    )


def test_torch_loads_and_every_call_answers_with_an_error(site: Path) -> None:
    ask = ("-c", "import torch; print(torch.answer)")
    assert "libcublas.so.12" in run(*ask, site=site).stderr
    done = run(str(SCRIPT), sys.executable, site=site)
    assert done.stdout == "torch 2.9.1 loads; CUDA libraries stood in for now: 2\n", done.stderr
    assert run(*ask, site=site).stdout == "1998\n"
    again = run(str(SCRIPT), sys.executable, site=site)
    assert again.stdout == "torch 2.9.1 loads; CUDA libraries stood in for now: 0\n"


def test_a_torch_that_lacks_something_else_is_told_in_one_line(site: Path) -> None:
    (site / "torch" / "__init__.py").write_text("import missing_module", encoding="utf-8")
    done = run(str(SCRIPT), sys.executable, site=site)
    assert done.returncode == 2
    assert done.stderr == (
        "error: python failed: ModuleNotFoundError: No module named 'missing_module'\n"
    ).replace("python", Path(sys.executable).name, 1)


def test_an_environment_without_torch_is_told_in_one_line(tmp_path: Path) -> None:
    done = run(str(SCRIPT), sys.executable, site=tmp_path)
    assert done.returncode == 2
    assert done.stderr == f"error: {sys.executable} has no torch; install it first\n"
