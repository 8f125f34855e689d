"""`ultracluster predict`: asks the endpoint of an environment."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from typing import BinaryIO

from operations.commands import CONFIG
from operations.endpoint_client import EndpointClient, PredictionError
from ultracluster.environment import load_environment
from ultracluster.settings import SettingsError

Show = Callable[[str], None]


def predict(
    environment: str,
    texts: Sequence[str],
    *,
    as_json: bool,
    stdin: BinaryIO,
    show: Show = print,
    show_error: Show,
) -> int:
    """Show a label and its probability for each text; 1 where that fails.

    Without texts, standard input is read whole: a text a line, or a JSON text, or an object with
    the key `text`.
    """
    try:
        settings = load_environment(environment, CONFIG).settings
        asked = list(texts) or list(lines_of(stdin))
        if not asked:
            raise PredictionError("there is no text; give TEXT, or a text a line on standard input")
        client = EndpointClient(
            endpoint=settings.prefix,
            stack=f"{settings.prefix}-endpoint",
            region=settings.aws.region,
        )
        for prediction in client.predict(asked):
            if as_json:
                show(json.dumps(asdict(prediction), ensure_ascii=False))
            else:
                text = " ".join(prediction.text.split())
                show(f"{prediction.label:<10} {prediction.score:6.1%}  {text}")
    except (PredictionError, SettingsError) as error:
        show_error(str(error))
        return 1
    return 0


def lines_of(stdin: BinaryIO) -> Iterator[str]:
    """The texts of standard input; blank lines are left out.

    Raises:
        PredictionError: nobody writes to it, or a line holds no text.
    """
    if stdin.isatty():
        return
    for number, line in enumerate(stdin, start=1):
        try:
            plain = line.decode("utf-8-sig" if number == 1 else "utf-8").strip()
        except UnicodeDecodeError:
            raise PredictionError(f"line {number} of the input is not UTF-8") from None
        if plain:
            yield _text_of(plain, number)


def _text_of(line: str, number: int) -> str:
    if not line.startswith(('"', "{")):
        return line
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return line
    text = value.get("text") if isinstance(value, dict) else value
    if not isinstance(text, str):
        raise PredictionError(
            f'line {number} of the input is {line[:80]}; allowed: a text, or {{"text": "..."}}'
        )
    return text
