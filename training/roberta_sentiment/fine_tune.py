"""One run from settings to a folder with a model and its results."""

import time
from pathlib import Path

import torch

from training.backend import choose_backend
from training.command import InputError
from training.files import check_schema, sha256_of, write_json
from training.roberta_sentiment import model as classifier
from training.roberta_sentiment import results, scoring
from training.roberta_sentiment.batches import encode
from training.roberta_sentiment.dataset import LABELS, read_dataset
from training.roberta_sentiment.loop import Plan, Progress, class_weights, train
from training.roberta_sentiment.settings import DEFAULT_EPOCHS, ModelSource, Settings

LINES = 10


def fine_tune(settings: Settings, source: ModelSource, folder: Path) -> None:
    """Fine-tune, score, and write the model and `results.json` into `folder`, with progress lines.

    Raises:
        InputError: the data or the model cannot be used.
    """
    started = time.perf_counter()
    dataset = read_dataset(settings.data)
    torch.manual_seed(settings.seed)
    backend = choose_backend(settings.precision)
    model, tokenizer = classifier.load(source)
    if settings.max_length > tokenizer.model_max_length:
        raise InputError(
            f"--max-length is {settings.max_length}, and {source.name} takes at most "
            f"{tokenizer.model_max_length} tokens"
        )
    parameters = sum(tensor.numel() for tensor in model.parameters())
    print(f"model {source.name}: {parameters / 1e6:.1f} M parameters")
    print(
        f"tweets {dataset.name}: {len(dataset.train)} to train on, "
        f"{len(dataset.validation)} for validation, {len(dataset.test)} for the test"
    )
    print(
        f"device {backend.device.type}, {torch.get_num_threads()} threads; "
        f"precision {backend.precision}: {backend.reason}",
        flush=True,
    )
    splits = [
        encode(examples, tokenizer=tokenizer, max_length=settings.max_length)
        for examples in (dataset.train, dataset.validation, dataset.test)
    ]
    labels = [example.label for example in dataset.train]
    per_epoch = -(-len(labels) // settings.batch_size)
    steps = settings.max_steps or per_epoch * (settings.epochs or DEFAULT_EPOCHS)
    plan = Plan(
        steps=steps,
        batch_size=settings.batch_size,
        learning_rate=settings.learning_rate,
        seed=settings.seed,
        class_weights=class_weights(labels, classes=len(LABELS)),
        compile=settings.compile,
        optimizer=settings.optimizer,
    )
    pad = tokenizer.pad_token_id
    train_seconds, samples = train(
        model, splits[0], plan=plan, backend=backend, pad=pad, report=_print_progress
    )
    print("scoring in fp32, as the model is served", flush=True)
    scores = {
        name: scoring.score(
            [example.label for example in split],
            scoring.predict(model, split, pad=pad, device=backend.device),
        )
        for name, split in (("validation", splits[1]), ("test", splits[2]))
    }
    majority_label, scores["majority"] = scoring.majority(dataset.train, dataset.test)
    scores["vader"] = scoring.vader(dataset.test)
    classifier.save(model, tokenizer, folder)
    report = results.build(
        settings=settings,
        base_model=source.name,
        backend=backend,
        dataset=dataset,
        scores=scores,
        majority_label=majority_label,
        steps=steps,
        samples=samples,
        train_seconds=train_seconds,
        total_seconds=time.perf_counter() - started,
        parameters=parameters,
        weights_sha256=sha256_of(folder / "model.safetensors"),
    )
    check_schema(report, schema=results.SCHEMA, name="results.json")
    write_json(folder / "results.json", report)
    rows = {
        f"majority ({majority_label})": scores["majority"],
        "VADER lexicon": scores["vader"],
        "this model": scores["test"],
    }
    print(f"\ntest split, {len(splits[2])} tweets")
    print(results.table(rows))
    print(f"\ntrained {samples} samples in {train_seconds:.1f} s", flush=True)


def _print_progress(progress: Progress) -> None:
    """One line at the first step, the last, and about ten times between."""
    every = max(1, progress.steps // LINES)
    if progress.step % every and progress.step not in (1, progress.steps):
        return
    minutes, seconds = divmod(round(progress.left), 60)
    print(
        f"step {progress.step}/{progress.steps}  loss {progress.loss:.4f}  "
        f"learning rate {progress.learning_rate:.1e}  {progress.rate:.0f} samples/s  "
        f"{minutes}:{seconds:02d} left",
        flush=True,
    )
