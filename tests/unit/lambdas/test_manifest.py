import copy
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from shared import manifest as module
from shared.manifest import MAXIMUM_BYTES, ManifestProblem, parse, problems_of
from tests.unit.lambdas.models import good_archive, manifest_of

SCHEMA = json.loads(Path(module.__file__).with_name("manifest.schema.json").read_text())
KNOWN_KEYWORDS = {
    "$schema",
    "title",
    "description",
    "type",
    "additionalProperties",
    "required",
    "properties",
    "const",
    "pattern",
    "minLength",
    "maxLength",
    "minimum",
    "maximum",
    "minItems",
    "maxItems",
    "items",
}
ODD_VALUES: list[Any] = [
    None,
    True,
    0,
    1,
    1.0,
    -1,
    2.5,
    10**12,
    "",
    "x",
    "a" * 3000,
    "2.6\n",
    "2026-11-30T16:00:00Z\n",
    [],
    ["a"],
    ["a", 1],
    {},
    {"x": 1},
    {"x": "y"},
]


def content(**changes: Any) -> bytes:
    return json.dumps(manifest_of(good_archive(), **changes)).encode()


def problems(value: bytes) -> list[str]:
    with pytest.raises(ManifestProblem) as caught:
        parse(value)
    return [problem.message for problem in caught.value.problems]


def keywords(schema: Any) -> Iterator[str]:
    if not isinstance(schema, dict):
        return
    yield from schema
    for key, inner in schema.items():
        if key == "properties":
            for item in inner.values():
                yield from keywords(item)
        elif key in ("items", "additionalProperties"):
            yield from keywords(inner)


def variants() -> Iterator[tuple[str, Any]]:
    """The good manifest with every part dropped, replaced by odd values, and added to."""
    good = manifest_of(good_archive(), source={"job": "17"})

    def paths(value: Any, path: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
        yield path
        items: Any = ()
        if isinstance(value, dict):
            items = value.items()
        elif isinstance(value, list):
            items = enumerate(value)
        for key, item in items:
            yield from paths(item, (*path, key))

    for path in paths(good, ()):
        if not path:
            continue
        for index, odd in enumerate([*ODD_VALUES, KeyError]):
            changed = copy.deepcopy(good)
            parent: Any = changed
            for key in path[:-1]:
                parent = parent[key]
            if odd is KeyError:
                del parent[path[-1]]
            else:
                parent[path[-1]] = odd
            yield f"{path}-{index}", changed
            if isinstance(parent, dict) and odd is not KeyError:
                added = copy.deepcopy(good)
                target: Any = added
                for key in path[:-1]:
                    target = target[key]
                target["unheard_of"] = odd
                yield f"{path}-{index}-added", added


def test_a_good_manifest_is_read() -> None:
    manifest = parse(content())
    assert manifest.created.isoformat() == "2026-11-30T16:00:00+00:00"
    assert (manifest.macro_f1, manifest.evaluation_set) == (0.78, "vader-tweets/test")
    assert [item.label for item in manifest.smoke] == ["positive"]


def test_the_schema_uses_only_keywords_that_the_checker_knows() -> None:
    Draft202012Validator.check_schema(SCHEMA)
    assert set(keywords(SCHEMA)) <= KNOWN_KEYWORDS


def test_the_checker_agrees_with_a_json_schema_validator() -> None:
    validator = Draft202012Validator(SCHEMA)
    count = 0
    for name, value in variants():
        count += 1
        assert (not list(problems_of(value, SCHEMA))) == validator.is_valid(value), name
    assert count > 500


def test_the_checker_agrees_on_manifests_with_many_mutations() -> None:
    validator = Draft202012Validator(SCHEMA)
    generator = random.Random(0)
    verdicts = {True: 0, False: 0}
    for _ in range(3000):
        value: Any = manifest_of(good_archive(), source={"job": "17"})
        for _ in range(generator.randint(1, 4)):
            mutate(value, generator)
        valid = validator.is_valid(value)
        assert (not list(problems_of(value, SCHEMA))) == valid, value
        verdicts[valid] += 1
    assert min(verdicts.values()) > 100


def mutate(value: Any, generator: random.Random) -> None:
    """Change one place of a manifest, somewhere: drop it, replace it, repeat it or add to it."""
    keys = list(value) if isinstance(value, dict) else list(range(len(value)))
    if not keys:
        return
    key = generator.choice(keys)
    inner = value[key]
    if isinstance(inner, dict | list) and generator.random() < 0.7:
        mutate(inner, generator)
        return
    match generator.choice(["drop", "replace", "nudge", "nudge", "nudge", "add"]):
        case "drop":
            del value[key]
        case "replace":
            value[key] = copy.deepcopy(generator.choice(ODD_VALUES))
        case "add" if isinstance(value, dict):
            value[f"{key}_x"] = inner
        case "add":
            value.append(copy.deepcopy(inner))
        case _ if isinstance(inner, str):
            value[key] = generator.choice([inner[1:], inner + "0", inner.upper(), inner * 2])
        case _ if isinstance(inner, int | float):
            value[key] = generator.choice([inner + 1, inner / 2, -inner, inner * 1.0, str(inner)])
        case _:
            value[key] = [inner]


def test_every_problem_is_told_with_its_path() -> None:
    value = manifest_of(good_archive(), labels=["a"], extra=1, created=None)
    value["archive"]["bytes"] = 0
    value["smoke"][0]["label"] = 3
    assert problems(json.dumps(value).encode()) == [
        "created: missing",
        "archive.bytes: got 0, allowed: 1 to 5368709120",
        "labels: got 1 items, allowed: 2 to 1000",
        "smoke[0].label: got 3, allowed: a string",
        "extra: unknown key, allowed: schema_version, model_name, created, archive, requires, "
        "trained_with, labels, metrics, smoke, source",
    ]


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (b"", "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b"{", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[]", "allowed: an object"),
        (content().replace(b"0.78", b"NaN"), "NaN is no JSON number"),
        (b" " * (MAXIMUM_BYTES + 1), "more than"),
        (content(schema_version=2), "schema_version: got 2, allowed: 1"),
        (content(schema_version=True), "schema_version: got True, allowed: 1"),
        (content(created="2026-13-30T16:00:00Z"), "which is no date"),
        (content(smoke=[{"text": "x", "label": "joy"}]), "smoke[0].label: got 'joy'"),
        (content().replace(b"sentiment", b"\\ud800", 1), "not JSON: 'utf-8' codec can't encode"),
    ],
)
def test_what_is_no_manifest_is_refused_with_a_sentence(value: bytes, said: str) -> None:
    (problem,) = problems(value)
    assert said in problem


@pytest.mark.parametrize(
    "value",
    [
        content(labels=[1] * 50_000),
        content(**{f"key{number}": 1 for number in range(10_000)}),
        content(
            labels=[f"{number:0100}" for number in range(1000)],
            smoke=[{"text": "x", "label": "joy"}] * 32,
        ),
    ],
)
def test_many_problems_fit_into_a_state_machine(value: bytes) -> None:
    assert 30 < len(problems(value)) < 60
    assert len("".join(problems(value))) < 20_000
