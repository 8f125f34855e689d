"""The serving packages inside an archive: whole, pinned, and laid out as an installer would."""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import zipfile
from importlib.metadata import distribution, requires
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

from training.command import InputError
from training.files import sha256_of
from training.packaging import vendor
from training.packaging.inspection import problems
from training.packaging.package import package

pytestmark = pytest.mark.training

IN_THE_IMAGE = {"numpy", "torch"}
# Named by transformers, and used by its command line and by downloads only.
LEFT_OUT = {
    *("annotated-doc", "annotated-types", "click", "hf-xet", "markdown-it-py", "mdurl", "pydantic"),
    *("pydantic-core", "pygments", "rich", "shellingham", "typer", "typing-inspection"),
}
IMPORT_NAMES = {
    "hf-xet": "hf_xet",
    "markdown-it-py": "markdown_it",
    "pydantic-core": "pydantic_core",
}


def pins() -> dict[str, str]:
    text = vendor.REQUIREMENTS.read_text(encoding="utf-8")
    return dict(re.findall(r"^([a-z0-9-]+)==(\S+) \\$", text, re.MULTILINE))


def needed_by(name: str, *, found: set[str]) -> set[str]:
    """Names of everything that a package asks for on the serving platform, and so on."""
    environment = {"platform_machine": "aarch64", "python_version": "3.12", "extra": ""}
    for line in requires(name) or []:
        requirement = Requirement(line)
        other = requirement.name.lower().replace("_", "-")
        wanted = requirement.marker is None or requirement.marker.evaluate(environment)
        if wanted and other not in found:
            found.add(other)
            if other not in IN_THE_IMAGE:
                needed_by(other, found=found)
    return found


@pytest.mark.case("M07")
def test_every_package_that_transformers_needs_is_pinned_in_the_image_or_left_out() -> None:
    assert set(pins()) | LEFT_OUT | {"numpy"} == needed_by("transformers", found={"transformers"})


def test_the_served_versions_are_those_that_train_and_check() -> None:
    for name, version in pins().items():
        assert distribution(name).version == version, name


def test_every_pin_names_the_digest_of_its_wheel() -> None:
    text = vendor.REQUIREMENTS.read_text(encoding="utf-8")
    assert len(re.findall(r"^    --hash=sha256:[0-9a-f]{64}$", text, re.MULTILINE)) == len(pins())


@pytest.mark.case("M05")
def test_a_model_loads_and_answers_without_the_packages_that_are_left_out(trained: Path) -> None:
    names = sorted(IMPORT_NAMES.get(name, name.replace("-", "_")) for name in LEFT_OUT)
    code = (
        "import sys\n"
        f"sys.modules.update(dict.fromkeys({names!r}))\n"
        "from transformers import AutoModelForSequenceClassification, AutoTokenizer\n"
        "folder = sys.argv[1]\n"
        "tokenizer = AutoTokenizer.from_pretrained(folder)\n"
        "model = AutoModelForSequenceClassification.from_pretrained(folder)\n"
        "print(tuple(model(**tokenizer(['good'], return_tensors='pt')).logits.shape))\n"
    )
    command = [sys.executable, "-c", code, str(trained)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout == "(1, 3)\n", done.stderr


def wheel(folder: Path, name: str, files: dict[str, str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(folder / name, "w") as content:
        for path, text in files.items():
            content.writestr(path, text.encode("latin-1"))


# The head of a shared object for aarch64.
ELF = "\x7fELF\x02\x01" + "\0" * 12 + "\xb7\0"
METADATA = """Metadata-Version: 2.4
Name: transformers
Version: 9.0
Requires-Python: >=3.11.0
Requires-Dist: torch>=2.7.1; extra == "torch"
"""


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache that holds wheels already, so that nothing is downloaded."""

    def fail(*_: object, **__: object) -> None:
        raise AssertionError("pip was called")

    cache = tmp_path / "cache"
    folder = cache / f"cp312-aarch64-{sha256_of(vendor.REQUIREMENTS)[:16]}"
    wheel(
        folder,
        "transformers-9.0-py3-none-any.whl",
        {
            "transformers/__init__.py": "",
            "transformers-9.0.dist-info/METADATA": METADATA,
            "transformers-9.0.data/scripts/transformers": "#!python",
            "transformers-9.0.data/purelib/transformers/more.py": "",
            "../outside.py": "",
        },
    )
    wheel(folder, "tokenizers-1.0-cp312-cp312-linux_aarch64.whl", {"tokenizers/core.so": ELF})
    monkeypatch.setattr(subprocess, "run", fail)
    return cache


@pytest.mark.case("M05")
def test_vendored_packages_lie_under_their_tag_and_set_what_the_image_needs(
    request_for: Any, wheels: Path
) -> None:
    request = request_for(platform="cp312-aarch64", cache=wheels)
    manifest = package(request)
    with tarfile.open(request.output / "model.tar.gz") as tar:
        names = [member.name for member in tar if member.isfile()]
    assert [name for name in names if "vendor" in name] == [
        "code/vendor/cp312-aarch64/tokenizers/core.so",
        "code/vendor/cp312-aarch64/transformers-9.0.dist-info/METADATA",
        "code/vendor/cp312-aarch64/transformers/__init__.py",
        "code/vendor/cp312-aarch64/transformers/more.py",
    ]
    assert problems(request.output / "model.tar.gz") == []
    assert manifest["requires"] == {"torch": "2.7", "python": "3.12"}


def test_a_wheel_cannot_write_outside_its_folder(wheels: Path, tmp_path: Path) -> None:
    (folder,) = wheels.iterdir()
    vendor.unpack(folder, into=tmp_path / "deep" / "in")
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["in"]


def test_packing_vendored_packages_is_repeatable(
    request_for: Any, wheels: Path, tmp_path: Path
) -> None:
    digests = {
        package(request_for(platform="cp312-aarch64", cache=wheels, output=tmp_path / name))[
            "archive"
        ]["sha256"]
        for name in ("one", "other")
    }
    assert len(digests) == 1


def test_a_download_that_fails_names_the_way_without_it_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(command: list[str], **_: object) -> Any:
        return subprocess.CompletedProcess(command, 1, "", "ERROR: No matching distribution found")

    monkeypatch.setattr(subprocess, "run", fail)
    with pytest.raises(
        InputError, match=r"No matching .*; --serving-platform none leaves them out"
    ):
        vendor.fetch("cp312-aarch64", cache=tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []


def test_pip_is_asked_for_the_platform_and_for_known_wheels_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []

    def answer(command: list[str], **_: object) -> Any:
        calls.append(command)
        (Path(command[-1]) / "x-1-py3-none-any.whl").write_bytes(b"")
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(subprocess, "run", answer)
    folders = {vendor.fetch("cp312-aarch64", cache=tmp_path / "cache") for _ in range(2)}
    assert len(calls) == len(folders) == 1
    assert {"--require-hashes", "--no-deps", "manylinux_2_28_aarch64", "312"} <= set(calls[0])
    assert [path.name for path in folders.pop().iterdir()] == ["x-1-py3-none-any.whl"]
