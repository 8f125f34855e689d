"""Requests that no client should send, from a seed."""

from __future__ import annotations

import json
from random import Random
from typing import Any

_TYPES = (
    *("application/json",) * 8,
    *("application/json; charset=utf-8", "APPLICATION/json;charset=UTF-16", "text/csv"),
    *("application/json; charset=idna", "application/json; charset*=x'y'%FF", "application/"),
    *("text/plain", "application/x-npy", "application/jsonlines", "", ";", "a/b/c", "=;=,", None),
)
_ACCEPTS = (
    *(None,) * 12,
    *(
        "*/*",
        "application/json",
        "application/*;q=0.5",
        "text/csv",
        "q=0",
        ";",
        ", ,",
        "*",
        "a;q=x",
    ),
)


def random_request(chance: Random) -> tuple[bytes, str | None, str | None]:
    """Body, content type and accepted types of one request."""
    kind = chance.randrange(4)
    if kind == 0:
        body = chance.randbytes(chance.randrange(40))
    elif kind == 1:
        body = json.dumps(_value(chance, 4), ensure_ascii=chance.random() < 0.5).encode(
            chance.choice(("utf-8", "utf-16", "utf-32", "utf-7")), "surrogatepass"
        )
    else:
        texts = [_text(chance) or "good" for _ in range(chance.randrange(1, 4))]
        texts *= chance.choice((1, 1, 1, 65))
        body = json.dumps({"inputs": texts} if chance.random() < 0.5 else texts).encode()
        if kind == 3 and body:  # one byte of it is wrong
            place = chance.randrange(len(body))
            body = body[:place] + chance.randbytes(1) + body[place + 1 :]
    return body, chance.choice(_TYPES), chance.choice(_ACCEPTS)


def _text(chance: Random) -> str:
    return "".join(
        chr(chance.choice((chance.randrange(32, 127), chance.randrange(0x11_0000))))
        for _ in range(chance.randrange(12))
    )


def _value(chance: Random, depth: int) -> Any:
    match chance.randrange(7 if depth else 5):
        case 0:
            return _text(chance)
        case 1:
            return chance.choice((None, True, False, float("inf"), float("nan")))
        case 2:
            return chance.randrange(-(10**30), 10**30)
        case 3:
            return chance.random()
        case 4:
            return {"inputs": _text(chance)}
        case 5:
            return [_value(chance, depth - 1) for _ in range(chance.randrange(4))]
        case _:
            return {_text(chance): _value(chance, depth - 1) for _ in range(chance.randrange(3))}
