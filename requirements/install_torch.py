# ruff: noqa: INP001 - a script beside its data, not a package
"""Installs the torch of the training lock into an environment, and never a CUDA build by accident.

On Linux, a plain `pip install torch` may bring gigabytes of CUDA libraries that a processor cannot
use. This asks pip first what it would bring. Set TORCH_INDEX_URL to choose where torch comes from:
https://download.pytorch.org/whl/cpu has builds without CUDA.

    python3 requirements/install_torch.py PYTHON

PYTHON is the interpreter of the environment that gets torch.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

LOCK = Path(__file__).with_name("training.txt")
CPU_INDEX = "https://download.pytorch.org/whl/cpu"
CUDA_PREFIXES = ("nvidia-", "cuda-", "triton")


class Refusal(Exception):
    """Why torch is not installed, in one line."""


def pinned() -> str:
    """The version of torch in the lock."""
    found = re.search(r"^torch==(\S+)$", LOCK.read_text(encoding="utf-8"), re.MULTILINE)
    if found is None:
        raise Refusal(f"{LOCK.name} pins no torch")
    return found[1]


def installed(python: str) -> str | None:
    """The version of torch in the environment, a local label such as +cpu included."""
    code = "from importlib.metadata import version; print(version('torch'))"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else None


def would_install(python: str, requirement: str, index: list[str]) -> list[str]:
    """The names of all packages that pip would bring, from its own report of a dry run."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        options = ["--dry-run", "--ignore-installed", "--quiet", "--report", str(report)]
        done = subprocess.run(
            [python, "-m", "pip", "install", *options, *index, requirement],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
            reason = (lines or done.stderr.strip().splitlines() or ["no reason"])[-1]
            raise Refusal(f"pip cannot get {requirement}: {reason}")
        content = json.loads(report.read_text(encoding="utf-8"))
    return [re.sub(r"[-_.]+", "-", item["metadata"]["name"]).lower() for item in content["install"]]


def install(python: str) -> str:
    """Install torch with what it needs (the lock then sets those versions), and say what was done.

    Raises:
        Refusal: pip fails, or would bring a CUDA build that nobody asked for.
    """
    version = pinned()
    requirement = f"torch=={version}"
    present = installed(python)
    if present is not None and present.partition("+")[0] == version:
        return f"torch {present} is there already"
    url = os.environ.get("TORCH_INDEX_URL")
    index = ["--index-url", url] if url else []
    if not url:
        names = would_install(python, requirement, index)
        if cuda := sorted(name for name in names if name.startswith(CUDA_PREFIXES)):
            raise Refusal(
                f"pip would install a CUDA build of torch with {len(cuda)} packages such as "
                f"{cuda[0]}; set TORCH_INDEX_URL={CPU_INDEX} for a processor, or to the index of "
                "the CUDA build that you want"
            )
    command = [python, "-m", "pip", "install", "--quiet", *index, requirement]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Refusal(f"pip failed: {(done.stderr.strip().splitlines() or ['no reason'])[-1]}")
    return f"torch {installed(python)} installed"


def main() -> int:
    """Exit code 0 when torch is there, 2 with one line otherwise."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("python", help="interpreter of the environment")
    try:
        print(install(parser.parse_args().python))
    except (Refusal, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
