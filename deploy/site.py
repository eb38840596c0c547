"""Hooks of MkDocs for `make docs`: the layout of the site.

The site mirrors the repository, so that relative links work on the site as in the repository: a
page of ``docs/`` is below ``docs/``. Only ``docs/index.md`` and the README have other addresses:
they are ``index.html`` and ``README.html`` at the site's root.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Any

import griffe
import mermaidx
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
PUBLISHED = ("*.md", "LICENSE", "docs/**/*", "deploy/**/*.md")
LISTED = ("docs/decisions", "docs/proofs")
MOVED = {"docs/index.md": "index.html", "README.md": "README.html"}
ROLE = re.compile(r":[a-z]+:`~?([\w.]+)`")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Add the pages of folders to the navigation, and have diagrams drawn."""
    for part in config.nav or []:
        for pages in part.values():
            for page in pages:
                for title, folder in page.items() if isinstance(page, dict) else ():
                    if folder in LISTED:
                        page[title] = published(f"{folder}/*.md")
    config.mdx_configs.setdefault("pymdownx.superfences", {})["custom_fences"] = [
        {"name": "mermaid", "class": "diagram", "format": diagram}
    ]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Replace what MkDocs found in docs/ by the published files, each at its own path."""
    theme = [file for file in files if file.src_dir != config.docs_dir]
    ours = [
        File(path, str(ROOT), config.site_dir, config.use_directory_urls, dest_uri=MOVED.get(path))
        for pattern in PUBLISHED
        for path in published(pattern)
    ]
    return Files([*theme, *ours])


def published(pattern: str) -> list[str]:
    """Return the files of the repository that match, as paths from its root."""
    return sorted(str(file.relative_to(ROOT)) for file in ROOT.glob(pattern) if file.is_file())


def diagram(source: str, _language: str, css_class: str, *_: Any, **__: Any) -> str:
    """Return a Mermaid diagram drawn as SVG, so that the page needs no script."""
    name = "diagram-" + hashlib.sha256(source.encode()).hexdigest()[:8]
    svg = mermaidx.render(source).svg().replace("my-svg", name)
    svg = svg.replace('width="100%"', "", 1).replace("max-width:", "width:", 1)  # as wide as it is
    return f'<div class="{css_class}">{svg}</div>'


class Roles(griffe.Extension):
    """Turns roles in docstrings, such as :class:`Roles`, into links if the object has a page."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Replace the roles in an object's docstring."""
        if obj.docstring:
            obj.docstring.value = ROLE.sub(lambda role: _linked(obj, role[1]), obj.docstring.value)


def _linked(obj: griffe.Object, name: str) -> str:
    try:
        target = obj.resolve(name)
    except griffe.NameResolutionError:
        target = name
    return f'<autoref identifier="{target}" optional><code>{name}</code></autoref>'
