"""The handler of the tiny packages that the emulator's tests serve."""

# mypy: ignore-errors

import json

import torch
from sagemaker_inference.errors import GenericInferenceToolkitError
from transformers import AutoModelForSequenceClassification, AutoTokenizer


def model_fn(model_dir):
    tokenizer = AutoTokenizer.from_pretrained(model_dir, local_files_only=True)
    model = AutoModelForSequenceClassification.from_pretrained(model_dir, local_files_only=True)
    return tokenizer, model.eval()


def input_fn(body, content_type):
    if content_type != "application/json":
        raise GenericInferenceToolkitError(415, f"send application/json, not {content_type}")
    try:
        inputs = json.loads(body)["inputs"]
    except (KeyError, TypeError, ValueError) as error:
        raise GenericInferenceToolkitError(400, f"no inputs: {error}") from error
    return [inputs] if isinstance(inputs, str) else inputs


def predict_fn(texts, loaded):
    tokenizer, model = loaded
    with torch.inference_mode():
        encoded = tokenizer(texts, padding=True, return_tensors="pt")
        scores = model(**encoded).logits.softmax(-1)
    best = zip(*scores.max(-1), strict=True)
    return [{"label": model.config.id2label[int(i)], "score": float(s)} for s, i in best]


def output_fn(predictions, accept):
    return json.dumps(predictions), "application/json"
