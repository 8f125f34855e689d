"""BERT with both of its heads: transformers' own model and weights, asked at masked places only."""

import json
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import BertConfig, BertForPreTraining

from training.bert_pretraining.settings import PreTrain, Shape
from training.bert_pretraining.vocabulary import PAD, Vocabulary, save_tokenizer
from training.command import InputError, first_line
from training.core.backend import Backend
from training.core.lamb import Lamb
from training.core.loop import parameter_groups
from training.core.settings import Speed

EPSILON = 1e-6  # of both optimizers, as in the reference


class MaskedHeads(torch.nn.Module):  # type: ignore[misc]
    """The forward pass of BertForPreTraining with logits at the masked places alone.

    A tenth of the arithmetic of the vocabulary's matrix, and of the memory of its result, is left:
    20 places of 128 are asked for. The module holds no weights of its own.
    """

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(
        self,
        ids: torch.Tensor,
        mask: torch.Tensor,
        segments: torch.Tensor,
        positions: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Logits of the tokens, [samples, predictions, vocabulary], and of the order, [samples, 2].

        All arguments are int64, [samples, sequence], and `positions` [samples, predictions].
        """
        output = self.model.bert(input_ids=ids, attention_mask=mask, token_type_ids=segments)
        hidden = output.last_hidden_state
        places = positions.unsqueeze(-1).expand(-1, -1, hidden.shape[-1])
        chosen = torch.gather(hidden, 1, places)
        heads = self.model.cls
        return heads.predictions(chosen), heads.seq_relationship(output.pooler_output)


def make_model(shape: Shape, vocabulary: Vocabulary) -> Any:
    """A new BertForPreTraining in float32."""
    return BertForPreTraining(
        BertConfig(
            vocab_size=len(vocabulary),
            hidden_size=shape.hidden,
            num_hidden_layers=shape.layers,
            num_attention_heads=shape.heads,
            intermediate_size=shape.intermediate,
            max_position_embeddings=shape.positions,
            hidden_dropout_prob=shape.dropout,
            attention_probs_dropout_prob=shape.dropout,
            pad_token_id=vocabulary.id_of(PAD),
        )
    ).float()


def load_model(folder: Path) -> Any:
    """A BertForPreTraining to go on from.

    Raises:
        InputError: the folder has none, or lacks weights of its heads.
    """
    _quiet()
    try:
        kind = json.loads((folder / "config.json").read_text(encoding="utf-8")).get("model_type")
        if kind != "bert":
            raise InputError(f"the model in {folder} is {kind}, and bert is needed")
        model, facts = BertForPreTraining.from_pretrained(
            folder, local_files_only=True, output_loading_info=True
        )
    except InputError:
        raise
    except Exception as error:  # many libraries read these files, and each has its own errors
        raise InputError(f"cannot start from {folder}: {first_line(error)}") from error
    if missing := sorted(facts["missing_keys"]):
        raise InputError(f"the model in {folder} lacks {', '.join(missing[:3])}")
    return model.float()


def save_model(model: Any, vocabulary: Vocabulary, folder: Path) -> None:
    """Write float32 safetensors, the configuration and the tokenizer."""
    _quiet()
    # A tied weight once: a copy from a device is not known to be the same as another.
    weights = {name: tensor.detach().cpu().float() for name, tensor in model.named_parameters()}
    model.save_pretrained(folder, state_dict=weights)
    save_tokenizer(vocabulary, folder, longest=model.config.max_position_embeddings)


def make_optimizer(
    model: Any, *, train: PreTrain, speed: Speed, backend: Backend
) -> torch.optim.Optimizer:
    """AdamW or LAMB; their state is float32."""
    groups = parameter_groups(model, weight_decay=train.weight_decay)
    if train.optimizer == "lamb":
        return Lamb(groups, lr=train.learning_rate, eps=EPSILON)
    fused = speed.optimizer == "fused-adamw" and backend.fused_optimizer
    return torch.optim.AdamW(groups, lr=train.learning_rate, eps=EPSILON, fused=fused)


def _quiet() -> None:
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
