"""docs/settings.md lists every option as it is."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from operations.settings_reference import settings_reference
from tests.environments import EXAMPLES, ROOT

PAGE = ROOT / "docs" / "settings.md"
MARK = "<!-- from `ultracluster settings`; `make snapshots` renews it -->\n\n"


def test_page_lists_every_option(request: pytest.FixtureRequest) -> None:
    text = PAGE.read_text(encoding="utf-8")
    head, _, _ = text.partition(MARK.rstrip("\n"))
    wanted = f"{head}{MARK}{settings_reference()}\n"
    if request.config.getoption("--renew-snapshots"):
        PAGE.write_text(wanted, encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == wanted, "changed; renew with `make snapshots`"


def test_every_option_is_explained() -> None:
    rows = [line for line in settings_reference().splitlines() if line.startswith("| `")]
    assert len(rows) > 80
    for row in rows:
        meaning = re.split(r"(?<!\\)\|", row)[-2].strip()
        assert len(meaning) > 5, row


def test_page_names_every_example() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for name in EXAMPLES:
        assert f"`config/{name}.toml`" in text


@pytest.mark.parametrize("path", sorted((ROOT / "config").rglob("*.toml")), ids=lambda p: p.stem)
def test_every_settings_file_says_what_it_is_for(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.startswith("# ")
    assert tomllib.loads(text)
