"""Template URLs: AWS takes a bucket's name in the host as well as in the path."""

from __future__ import annotations

import re
from typing import Any

from ministack.services.cloudformation import helpers

_IN_HOST = re.compile(r"https?://(?P<bucket>[^/]+?)\.s3[.-][a-z0-9.-]*amazonaws\.com/(?P<key>.+)")


def apply() -> None:
    """Apply the correction, for stacks and for nested stacks."""
    resolve = helpers._resolve_document

    def resolve_any(params: dict[str, Any], body_key: str, url_key: str, label: str) -> Any:
        url = helpers._p(params, url_key)
        found = _IN_HOST.fullmatch(url) if url else None
        if found is not None:
            in_path = f"https://s3.amazonaws.com/{found['bucket']}/{found['key']}"
            params = {**params, url_key: [in_path]}
        return resolve(params, body_key, url_key, label)

    helpers._resolve_document = resolve_any
