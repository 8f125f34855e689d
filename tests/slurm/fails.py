"""A training module that fails each time."""

raise SystemExit(1)
