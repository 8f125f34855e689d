"""The last step of a run: the model folder, tried out, and all that was measured."""

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from training.files import check_schema, sha256_of, sync_files, write_json
from training.roberta_sentiment import confusion, results
from training.roberta_sentiment import model as classifier
from training.roberta_sentiment.dataset import Example
from training.roberta_sentiment.tables import LABELS

TRIED = 64
MEASURED = ("steps.csv", "tensorboard")


def export(
    model: Any,
    tokenizer: Any,
    *,
    work: Path,
    output: Path,
    examples: Sequence[Example],
    given: Sequence[int],
    report: Callable[[str], dict[str, Any]],
) -> bool:
    """Write the model folder under the run's folder, rename it to `output`, remove the run's.

    Args:
        model: trained.
        tokenizer: its own.
        work: the run's folder, on the same file system as `output`.
        output: takes its name at the end.
        examples: of the test split; some are asked again of what was saved.
        given: what the trained model made of them.
        report: the content of results.json, from the SHA-256 of the saved weights.

    Returns:
        Whether there is a picture of the confusion matrix, which needs matplotlib.

    Raises:
        InputError: what was saved does not load, or answers otherwise.
    """
    folder = work / "model"
    shutil.rmtree(folder, ignore_errors=True)  # of an export that was killed
    folder.mkdir()
    classifier.save(model, tokenizer, folder)
    classifier.try_out(folder, examples[:TRIED], given[:TRIED])
    content = report(sha256_of(folder / "model.safetensors"))
    check_schema(content, schema=results.SCHEMA, name="results.json")
    write_json(folder / "results.json", content)
    pictured = confusion.draw(folder / "confusion.png", content["confusion"], LABELS)
    for name in MEASURED:
        if (work / name).is_dir():
            shutil.copytree(work / name, folder / name)
        elif (work / name).is_file():
            shutil.copyfile(work / name, folder / name)
    sync_files(folder)
    folder.replace(output)
    shutil.rmtree(work, ignore_errors=True)  # the lock in it is open, which NFS may not remove
    return pictured
