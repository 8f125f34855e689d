"""One environment, read and judged: its settings, the facts they rest on, and what was found."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ultracluster.catalog import Catalog, CatalogError, load_catalog
from ultracluster.rules import Level, Problem, findings
from ultracluster.settings import Settings, SettingsError, listed, read_draft

OWN_CATALOG = "catalog.toml"


@dataclass(frozen=True, kw_only=True)
class Environment:
    """Settings without a mistake that can be known before a deploy.

    Attributes:
        settings: of the environment.
        catalog: facts about AWS, with the user's own rows.
        findings: warnings and notes.
    """

    settings: Settings
    catalog: Catalog
    findings: tuple[Problem, ...]


def load_environment(environment: str, directory: Path) -> Environment:
    """Read settings and catalog, and apply every rule.

    Args:
        environment: name or path of a settings file, as `read_draft` takes it.
        directory: the folder `config`.

    Raises:
        SettingsError: a mistake of form or an error of a rule; the message lists all of them.
    """
    draft = read_draft(environment, directory)
    if draft.settings is None:
        raise SettingsError(listed(draft.path, draft.problems))
    catalog = _catalog(draft.settings, draft.path.parent)
    found = findings(draft.settings, catalog)
    errors = [str(problem) for problem in found if problem.level is Level.ERROR]
    if draft.problems or errors:
        raise SettingsError(listed(draft.path, [*draft.problems, *errors]))
    return Environment(settings=draft.settings, catalog=catalog, findings=tuple(found))


def _catalog(settings: Settings, folder: Path) -> Catalog:
    own = folder / (settings.catalog or OWN_CATALOG)
    if settings.catalog is None and not own.is_file():
        return load_catalog()
    try:
        return load_catalog(own)
    except CatalogError as error:
        raise SettingsError(f"catalog: {error}") from None
