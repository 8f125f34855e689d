"""The handler of the tiny packages that the emulator's tests serve."""

import json
import os
import time

import torch
from sagemaker_inference.errors import GenericInferenceToolkitError
from transformers import AutoModelForSequenceClassification, AutoTokenizer


def model_fn(model_dir):
    if os.environ.get("FAIL_TO_LOAD"):
        raise RuntimeError("the weights\nare not here")
    time.sleep(float(os.environ.get("LOAD_SECONDS", "0")))
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
    if texts == ["end yourself"]:
        os._exit(3)
    if texts == ["take your time"]:
        time.sleep(1.5)
    with torch.inference_mode():
        encoded = tokenizer(texts, padding=True, return_tensors="pt")
        scores = model(**encoded).logits.softmax(-1)
    best = zip(*scores.max(-1), strict=True)
    return [{"label": model.config.id2label[int(i)], "score": float(s)} for s, i in best]


def output_fn(predictions, accept):
    return json.dumps(predictions), "application/json"
