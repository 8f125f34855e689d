"""What a Trn1 node installs: exact Neuron packages, from Neuron's own index and no other."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).parents[2]
INDEX = "https://pip.repos.neuron.amazonaws.com"
BASE = "requirements-neuron-base.txt"
# The releases of the catalog, which the nodes' boot scripts install as well.
CATALOG = ROOT / "constructs" / "ultracluster" / "catalog" / "neuron.toml"
RELEASES = tomllib.loads(CATALOG.read_text(encoding="utf-8"))["sets"]
# What the public index has under these names: placeholders, and the backend for Trn2 and Trn3.
PUBLIC = {
    "torch-neuronx": ("0.0.1", "1.0", "2.13.0.1", "2.14.0.1"),
    "neuronx-cc": ("0.1", "1.0", "1.0.post1"),
}
NEURON_NAME = re.compile(r"torch[-_.]neuronx|neuronx[-_.]|libneuronxla", re.IGNORECASE)


def lines(path: Path) -> list[str]:
    """What pip reads of a requirements file."""
    return [
        line
        for raw in path.read_text(encoding="utf-8").splitlines()
        if (line := raw.split(" #")[0].strip()) and not line.startswith("#")
    ]


def release_file(release: str) -> Path:
    return ROOT / "training" / f"requirements-neuron-{release}.txt"


def requirements(path: Path) -> list[Requirement]:
    return [Requirement(line) for line in lines(path) if not line.startswith("-")]


def pip(*options: str) -> subprocess.CompletedProcess[str]:
    """A dry run of pip."""
    return subprocess.run(
        [
            *(sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed"),
            *("--no-deps", "--disable-pip-version-check", "--retries", "0", "--timeout", "15"),
            *options,
        ],
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def public_index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of wheels that has what the public index has."""
    folder = tmp_path_factory.mktemp("index")
    for name, versions in PUBLIC.items():
        module = name.replace("-", "_")
        for version in versions:
            about = f"{module}-{version}.dist-info"
            with zipfile.ZipFile(folder / f"{module}-{version}-py3-none-any.whl", "w") as wheel:
                wheel.writestr(f"{module}.py", "raise ImportError('wrong package')\n")
                wheel.writestr(
                    f"{about}/METADATA",
                    f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
                )
                wheel.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
                wheel.writestr(f"{about}/RECORD", "")
    return folder


def test_there_is_one_file_for_each_release() -> None:
    found = {path.name for path in (ROOT / "training").glob("requirements-neuron-*.txt")}
    assert found == {release_file(release).name for release in RELEASES} | {BASE}


@pytest.mark.parametrize("release", RELEASES)
def test_the_versions_are_those_of_the_release(release: str) -> None:
    got = {one.name: Version(str(one.specifier)[2:]) for one in requirements(release_file(release))}
    row = RELEASES[release]
    assert got == {
        "torch-neuronx": Version(row["framework"]),
        "neuronx-cc": Version(row["compiler"]),
    }


@pytest.mark.parametrize("release", RELEASES)
def test_neurons_index_comes_beside_the_usual_one(release: str) -> None:
    options = [line for line in lines(release_file(release)) if line.startswith("-")]
    assert options == [f"--extra-index-url {INDEX}", f"-r {BASE}"]


@pytest.mark.parametrize("name", [*(release_file(one).name for one in RELEASES), BASE])
def test_every_version_is_exact(name: str) -> None:
    for requirement in requirements(ROOT / "training" / name):
        specifiers = list(requirement.specifier)
        assert len(specifiers) == 1, requirement
        assert specifiers[0].operator == "==", requirement
        assert "*" not in specifiers[0].version, requirement


@pytest.mark.parametrize("release", RELEASES)
def test_no_public_version_satisfies_a_pin(release: str) -> None:
    for requirement in requirements(release_file(release)):
        public = PUBLIC[requirement.name]
        assert not list(requirement.specifier.filter(public, prereleases=True))


@pytest.mark.parametrize("name", PUBLIC)
def test_pip_refuses_rather_than_take_a_placeholder(name: str, public_index: Path) -> None:
    offline = ("--no-index", "--find-links", str(public_index))
    # Without a version the public name is installable, which is the danger.
    assert pip(*offline, name).returncode == 0
    pin = next(one for one in requirements(release_file("2.31.1")) if one.name == name)
    refused = pip(*offline, str(pin))
    assert refused.returncode != 0
    assert f"No matching distribution found for {name}==" in refused.stderr


def test_the_configured_index_cannot_satisfy_the_newest_release() -> None:
    pin = next(one for one in requirements(release_file("2.31.1")) if one.name == "torch-neuronx")
    if pip("--quiet", "torch-neuronx").returncode != 0:
        pytest.skip("no package index is reachable, so there is no public torch-neuronx to refuse")
    answer = pip("--quiet", "--report", "-", str(pin))
    if answer.returncode == 0:  # a machine whose pip is set up with Neuron's index
        url = json.loads(answer.stdout)["install"][0]["download_info"]["url"]
        assert urlsplit(url).hostname == urlsplit(INDEX).hostname
    else:
        assert f"No matching distribution found for {pin}" in answer.stderr


@pytest.mark.parametrize(
    "path",
    [
        "pyproject.toml",
        *(
            str(path.relative_to(ROOT))
            for folder in ("requirements", "training/packaging")
            for path in sorted((ROOT / folder).iterdir())
            if path.suffix in (".in", ".txt")
        ),
    ],
)
def test_no_other_file_names_a_neuron_package(path: str) -> None:
    assert not NEURON_NAME.search((ROOT / path).read_text(encoding="utf-8"))


def test_the_packages_beside_a_release_are_those_that_the_xla_tests_use() -> None:
    locked = {one.name: one for one in requirements(ROOT / "requirements" / "xla.txt")}
    for requirement in requirements(ROOT / "training" / BASE):
        assert requirement.specifier == locked[requirement.name].specifier
