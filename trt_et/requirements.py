"""Read the versions of required packages from ``pyproject.toml``.

The metadata of the installed package contains them, so no other file repeats them.
"""

from __future__ import annotations

from functools import cache
from importlib import metadata


def allowed_versions(package: str) -> str:
    """Return the required range of a package, such as ``>=2.13,<2.15``."""
    return _allowed().get(package, "")


def is_allowed(package: str, version: str) -> bool:
    """Return whether a version of a package is in its range; pre-releases sort as usual."""
    from packaging.specifiers import SpecifierSet

    return SpecifierSet(allowed_versions(package)).contains(version, prereleases=True)


def install_command(*packages: str) -> str:
    """Return the command that installs supported versions of packages."""
    return " ".join(["pip install", *(f'"{name}{allowed_versions(name)}"' for name in packages)])


@cache
def _allowed() -> dict[str, str]:
    from packaging.requirements import Requirement

    try:
        required = [Requirement(line) for line in metadata.requires("trt-et") or ()]
    except metadata.PackageNotFoundError:
        return {}  # Imported from its source folder.
    # The lower limit first, as people write it.
    return {
        each.name: ",".join(sorted(map(str, each.specifier), reverse=True)) for each in required
    }
