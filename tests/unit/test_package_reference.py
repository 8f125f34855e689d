"""docs/package.md shows layout, manifest and reasons as the checks have them."""

from __future__ import annotations

import pytest

from operations.package_reference import package_reference
from tests.environments import ROOT

PAGE = ROOT / "docs" / "package.md"
MARK = "<!-- from `operations/package_reference.py`; `make snapshots` renews it -->\n\n"


def test_page_is_as_the_definitions_are(request: pytest.FixtureRequest) -> None:
    text = PAGE.read_text(encoding="utf-8")
    head, _, _ = text.partition(MARK.rstrip("\n"))
    wanted = f"{head}{MARK}{package_reference()}\n"
    if request.config.getoption("--renew-snapshots"):
        PAGE.write_text(wanted, encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == wanted, "changed; renew with `make snapshots`"
