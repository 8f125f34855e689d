"""The commands of docs/slurm.md, on a cluster, in the order of a reader."""

from __future__ import annotations

import os
import re
import shlex
import sys
from pathlib import Path

from tests.slurm.cluster import ROOT, SlurmCluster
from training.bert_pretraining.cli import _parser as pretraining
from training.slurm.cli import _parser as slurm

PAGE = (ROOT / "docs" / "slurm.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^(<!-- runs -->\n)?```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_the_commands_of_the_page_run(cluster: SlurmCluster, tmp_path: Path) -> None:
    (tmp_path / "corpus").mkdir()
    words = [
        "a",
        "node",
        "of",
        "the",
        "cluster",
        "trains",
        "one",
        "model",
        "with",
        "all",
        "others,",
        "step",
        "by",
        "step,",
        "to",
        "its",
        "end",
    ]
    for number in range(40):
        lines = [" ".join(words[(number + at) % 16 :] + words[: at % 16]) for at in range(30)]
        (tmp_path / "corpus" / f"{number}.txt").write_text(".\n".join(lines) + ".\n")
    script = "set -eu\n" + "\n".join(match[2] for match in BLOCK.finditer(PAGE) if match[1])
    # `tail` needs a step and words to show.
    ready = "until [ -e runs/bert.run/steps.csv ] && squeue -h -t R | grep -q .; do sleep 0.5; done"
    script = script.replace("\nsqueue\n", f"\n{ready}\nsqueue\n", 1)
    result = cluster.call(
        *("env", f"--chdir={tmp_path}", "bash", "-c", script),
        check=False,
        python=sys.executable,
        PYTHONPATH=str(ROOT),
        OMP_NUM_THREADS="1",
    )
    logs = "".join(path.read_text() for path in tmp_path.glob("runs/bert.slurm/logs/*.txt"))
    assert result.returncode == 0, result.stdout + result.stderr + logs
    assert "running\n" in result.stdout
    assert "2 ranks on train-dy-trn1-[1-2]" in result.stdout
    assert "stopped: asked for; submit the same run to go on" in result.stdout


def test_every_command_of_the_page_has_options_that_exist(tmp_path: Path) -> None:
    """Also those that no test runs, since they need accelerators."""
    seen = 0
    for match in BLOCK.finditer(PAGE):
        for line in match[2].replace("\\\n", " ").splitlines():
            words = shlex.split(line)
            if "training.slurm" in words:
                options = slurm().parse_args(words[words.index("training.slurm") + 1 :])
                words = ["-m", *getattr(options, "module", [])]
            elif "--wrap" in words:
                words = shlex.split(os.path.expandvars(words[words.index("--wrap") + 1]))
            if "training.bert_pretraining" in words:
                arguments = words[words.index("training.bert_pretraining") + 1 :]
                arguments = ["0" if word.startswith("$") else word for word in arguments]
                pretraining().parse_args(arguments)
                seen += 1
    assert seen == 5
