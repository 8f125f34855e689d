"""The layout of a model archive, version 1: the one definition.

Packager, delivery and `ultracluster package check` read it, docs/package.md is tested against it.
SageMaker unpacks an archive into its model folder as it is, so members lie at the root.
"""

from __future__ import annotations

VERSION = 1

CONFIGURATION = "config.json"
WEIGHTS = "model.safetensors"
ENTRY_POINT = "code/inference.py"
REQUIRED = {
    CONFIGURATION: "the configuration that transformers reads, a JSON object",
    WEIGHTS: "the weights, in one safetensors file",
    ENTRY_POINT: "the code that serves them",
}
"""What every archive holds, from its root."""

CODE = "code"
"""The only folder at the root."""

VENDOR = "code/vendor"
"""Holds one folder a platform (`cp312-aarch64`): unpacked wheels for images that lack them."""

HANDLERS = (("model_fn", "input_fn", "predict_fn", "output_fn"), ("model_fn", "transform_fn"))
"""The functions of `code/inference.py`: one of these sets. For a missing one AWS's serving toolkit
takes its own, which looks for a .pt file and speaks tensors."""

PICKLES = (".bin", ".pt", ".pth", ".pkl", ".ckpt")
"""Endings of weights that may run code when they are read."""

MAXIMUM_ARCHIVE = 5 * 1024**3
"""Bytes: S3 takes no more in one put, and only one put has a checksum of the whole."""
MAXIMUM_MEMBERS = 100_000
MAXIMUM_NAME = 1024
"""Characters of one name."""
MAXIMUM_CONFIGURATION = 1024 * 1024
MAXIMUM_CODE = 256 * 1024
"""Bytes that are read into memory; code becomes a thousand times as much once it is parsed."""
MAXIMUM_WEIGHTS_HEADER = 8 * 1024 * 1024
"""Bytes of the table at the head of the weights: some 100 for each tensor."""
