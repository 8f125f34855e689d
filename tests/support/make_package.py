"""Pack tiny random RoBERTas that always answer one label: make_package.py FOLDER LABEL ..."""

# mypy: ignore-errors

import shutil
import sys
import tarfile
import tempfile
from pathlib import Path

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast, RobertaConfig, RobertaForSequenceClassification

LABELS = ["negative", "neutral", "positive"]
WORDS = ["<s>", "<pad>", "</s>", "<unk>", "good", "bad", "fine", "film", "a"]


def main(folder: Path, *labels: str) -> None:
    for label in labels:
        pack(label, folder / f"{label}.tar.gz")


def pack(label: str, archive: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        save_tokenizer(root)
        save_model(root, LABELS.index(label))
        (root / "code").mkdir()
        shutil.copy(Path(__file__).with_name("tiny_inference.py"), root / "code" / "inference.py")
        with tarfile.open(archive, "w:gz") as tar:
            for path in sorted(root.iterdir()):
                tar.add(path, arcname=path.name)


def save_tokenizer(root: Path) -> None:
    tokenizer = Tokenizer(
        models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="<unk>")
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.RobertaProcessing(
        ("</s>", 2), ("<s>", 0), add_prefix_space=False
    )
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<s>",
        eos_token="</s>",
        unk_token="<unk>",
        pad_token="<pad>",
    ).save_pretrained(root)


def save_model(root: Path, answer: int) -> None:
    torch.manual_seed(0)
    model = RobertaForSequenceClassification(
        RobertaConfig(
            vocab_size=len(WORDS),
            hidden_size=16,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=32,
            max_position_embeddings=66,
            type_vocab_size=1,
            num_labels=len(LABELS),
            id2label=dict(enumerate(LABELS)),
            label2id={name: i for i, name in enumerate(LABELS)},
        )
    )
    with torch.no_grad():
        model.classifier.out_proj.bias[answer] = 10.0
    model.save_pretrained(root)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
