"""Every reason to refuse a model, with what it means; docs/package.md shows this table."""

from __future__ import annotations

REASONS = {
    "wrong-place": "the manifest lies elsewhere than the served model's manifests",
    "bucket-elsewhere": "the model bucket is in another region than the endpoint",
    "manifest-invalid": "the manifest breaks its schema",
    "manifest-version": "the manifest has a schema version that is not known",
    "metrics-missing": "the manifest lacks metrics",
    "manifest-elsewhere": "the manifest is about another model or archive than it lies beside",
    "created-in-future": "it says that it was made more than a day from now",
    "torch-too-old": "it needs a newer torch than the serving image has",
    "python-too-old": "it needs a newer Python than the serving image has",
    "below-gate": "its macro-F1 is below `delivery.minimum_macro_f1`",
    "worse-than-served": "its macro-F1 is below that of the model that serves, on the same set",
    "archive-missing": "there is no archive under its key",
    "size-differs": "the archive has another size than the manifest says",
    "checksum-missing": "S3 holds no SHA-256 of the whole archive",
    "checksum-differs": "the archive has another SHA-256 than its key says",
    "archive-empty": "it has no bytes",
    "archive-not-gzip": "it is no gzip: a plain tar, a zip, a page of HTML",
    "archive-truncated": "it ends before its end",
    "archive-corrupt": "the gzip or a tar header is damaged, or something follows its end",
    "archive-not-tar": "there is no tar inside the gzip",
    "archive-too-large": "it has more members, or a longer name, than an honest one",
    "archive-unsafe-name": "a name is absolute or leads out with `..`",
    "archive-link": "it holds a symbolic or a hard link",
    "archive-device": "it holds a device, a pipe or a sparse file",
    "archive-twice": "a file is in it twice",
    "archive-extra-root-folder": "everything lies in one folder around it",
    "archive-stray-folder": "a folder other than `code` lies at its root",
    "archive-missing-file": "a file that every archive holds is missing",
    "archive-pickle": "weights lie at its root as a pickle",
    "archive-requirements": "a `requirements.txt` has the container call pip, without a network",
    "archive-configuration": "`config.json` is no JSON object",
    "archive-code": "`code/inference.py` is no Python",
    "archive-handlers": "`code/inference.py` lacks a function that the serving toolkit calls",
    "archive-weights": "`model.safetensors` is no safetensors file, or not a whole one",
    "archive-architecture": (
        "a library below `code/vendor/<platform>` is for another processor or Python"
    ),
    "instance-architecture": "a library is for another processor or Python than the instance's",
    "instance-package": "it is larger than `endpoint.largest_package_mib`",
    "instance-disk": "it unpacks to more than the instance's volume holds",
    "instance-memory": "the weights do not fit into the instance's memory, once for each worker",
    "instance-no-bf16": "weights are bf16, and the instance's processor has no bf16",
}
"""Those from `archive-empty` on are about the bytes and final, but for `instance-...`."""
