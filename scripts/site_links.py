"""A hook of mkdocs: links to the repository, if ``project.urls`` in pyproject.toml names one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tomllib


def on_config(config: Any) -> Any:
    """Link the site, and each page's source, to the repository."""
    project = tomllib.loads(Path(config.config_file_path).with_name("pyproject.toml").read_text())
    if address := project["project"].get("urls", {}).get("Repository"):
        config.repo_url = address
        config.edit_uri = "edit/main/docs/"
        config.theme["features"].append("content.action.edit")
    return config
