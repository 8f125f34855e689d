# ruff: noqa: INP001 - a script beside its data, not a package
"""Lets a CUDA build of torch load on a machine that has no CUDA libraries.

torch_xla 2.9 fits torch 2.9 alone, and for x86-64 the package index has only its CUDA build, with
gigabytes of libraries that a processor never calls, and that the dynamic linker asks for all the
same. This reads in torch's own libraries which names are missing, and compiles libraries that have
them; their functions all answer 999 (cudaErrorUnknown). The real CUDA runtime is installed beside
them, so that torch finds out, in its own way, that there is no GPU.

    python3 requirements/cuda_stand_ins.py PYTHON

PYTHON is the interpreter of the environment that holds torch. Needs gcc and readelf.
"""

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

ANSWER = 999
CUDA_LIBRARY = re.compile(r"lib(?:cu|nv|nccl)")
# Opened only when a GPU is used; torch says well by itself that they are missing.
OPENED_LATER = {"libcaffe2_nvrtc.so", "libcuda.so.1", "libnvrtc.so.12"}
REAL = {"libcudart.so.12", "libcupti.so.12"}


class Refusal(Exception):
    """Why the libraries are not made, in one line."""


@dataclass(frozen=True, kw_only=True)
class Library:
    """What a shared library asks for and gives: names of libraries and of symbols.

    `asks` holds pairs (symbol, version), the version empty where the symbol has none; `versions`
    says which library a version is of.
    """

    name: str
    needs: frozenset[str]
    versions: dict[str, str]
    asks: frozenset[tuple[str, str]]
    gives: frozenset[str]


def read_library(path: Path) -> Library:
    """Read the dynamic section and the dynamic symbols; weak symbols may stay undefined."""
    symbols = list(_symbols(_readelf("--dyn-syms", path)))
    versions, owner = {}, ""
    for key, name in re.findall(r"\b(File|Name): (\S+)", _readelf("--version-info", path)):
        if key == "File":
            owner = name
        else:
            versions[name] = owner
    return Library(
        name=path.name,
        needs=frozenset(re.findall(r"\(NEEDED\).*\[(.+?)\]", _readelf("--dynamic", path))),
        versions=versions,
        asks=frozenset(
            (name, version)
            for name, version, section, binding in symbols
            if section == "UND" and binding != "WEAK"
        ),
        gives=frozenset(name for name, _, section, _ in symbols if section != "UND"),
    )


def stand_ins(libraries: Iterable[Library]) -> dict[str, dict[str, list[str]]]:
    """For each missing library the symbols it must give, by version.

    A symbol with a version is looked up in that version's library; one without is looked up in all
    libraries, so one of them may hold them all.
    """
    asking = [library for library in libraries if library.name not in OPENED_LATER]
    given = {name for library in asking for name in library.gives}
    present = {library.name for library in asking} | OPENED_LATER | REAL
    missing = sorted(
        {
            need
            for library in asking
            for need in library.needs
            if CUDA_LIBRARY.match(need) and need not in present
        }
    )
    found: dict[str, dict[str, set[str]]] = {name: defaultdict(set) for name in missing}
    for library in asking:
        if library.needs.isdisjoint(missing):
            continue
        for symbol, version in library.asks:
            owner = library.versions.get(version)
            if owner in found:
                found[owner][version].add(symbol)
            elif not version and symbol not in given:
                found[missing[0]][""].add(symbol)
    return {
        name: {version: sorted(symbols) for version, symbols in versions.items()}
        for name, versions in found.items()
    }


def compile_library(folder: Path, name: str, versions: dict[str, list[str]]) -> None:
    """Compile one library into `folder`, which is where torch looks for its own."""
    with tempfile.TemporaryDirectory() as scratch:
        source, script = Path(scratch) / "library.c", Path(scratch) / "library.map"
        symbols = {symbol for names in versions.values() for symbol in names}
        source.write_text("".join(f"int {one}(void) {{ return {ANSWER}; }}\n" for one in symbols))
        script.write_text(
            "".join(
                f"{version} {{ global: {'; '.join(names)}; }};\n"
                for version, names in versions.items()
                if version
            )
        )
        options = ["-shared", "-fPIC", "-w", f"-Wl,-soname,{name}", "-o", str(folder / name)]
        if script.stat().st_size:
            options.append(f"-Wl,--version-script={script}")
        _output("gcc", *options, str(source))


def make(python: str) -> str:
    """Make what is missing, import torch, and say what was done.

    Raises:
        Refusal: a tool is missing, or torch does not load even so.
    """
    if absent := [tool for tool in ("gcc", "readelf") if shutil.which(tool) is None]:
        raise Refusal(f"{' and '.join(absent)} not found: install gcc and binutils")
    code = "import importlib.util as u; print(getattr(u.find_spec('torch'), 'origin', ''))"
    origin = _output(python, "-c", code).strip()
    if not origin:
        raise Refusal(f"{python} has no torch; install it first")
    folder = Path(origin).parent / "lib"
    wanted = stand_ins(
        read_library(path) for path in sorted(folder.glob("lib*.so*")) if path.is_file()
    )
    for name, versions in wanted.items():
        compile_library(folder, name, versions)
    version = _output(python, "-c", "import torch; print(torch.__version__)").strip()
    return f"torch {version} loads; CUDA libraries stood in for now: {len(wanted)}"


def _symbols(table: str) -> Iterator[tuple[str, str, str, str]]:
    """Name, version, section and binding of each row of readelf's table."""
    for line in table.splitlines():
        fields = line.split()
        if len(fields) >= 8 and fields[0].rstrip(":").isdigit():
            name, _, version = fields[7].partition("@")
            yield name, version.lstrip("@"), fields[6], fields[4]


def _readelf(option: str, path: Path) -> str:
    return _output("readelf", "--wide", option, str(path))


def _output(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["no reason"])[-1]
        raise Refusal(f"{Path(command[0]).name} failed: {reason}")
    return done.stdout


def main() -> int:
    """Exit code 0 when torch loads, 2 with one line otherwise."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("python", help="interpreter of the environment that holds torch")
    try:
        print(make(parser.parse_args().python))
    except (Refusal, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
