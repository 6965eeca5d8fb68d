"""What MkDocs makes the site of: the guides in the order of docs/README.md, and a reference of every package.

A hook of ``mkdocs.yml``. Guides stay as they are in the repository, where they link to each other and to files beside
docs/; here these links are turned to where the site has them.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from markdown import Extension, Markdown

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

    Section: TypeAlias = dict[str, list[str]]

ROOT = Path(__file__).resolve().parents[1]
INDEX = "docs/README.md"
# Pages that stand elsewhere in the repository, or whose name there is taken here.
MOVED = {
    "README.md": "index.md",
    INDEX: "guides.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changes.md",
}
LINK = re.compile(r"\]\(([^)\s#]+)(#[^)\s]*)?\)")


class IndentOfTwo(Extension):
    """Parts of a list's item are indented by two columns, as on GitHub, not by four."""

    def extendMarkdown(self, md: Markdown) -> None:  # noqa: N802, the name is the library's
        md.tab_length = 2


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """The order of the pages: the first page, the list of guides, its sections, and the reference."""
    modules = [f"api/{name}.md" for name in ["bpt", *packages()]]
    config.nav = [{"bpt": ["index.md", "guides.md"]}, *sections((ROOT / INDEX).read_text()), {"API": modules}]
    config.markdown_extensions.append(IndentOfTwo())
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages from beside docs/, the files that guides link to, and a page for each package."""
    from mkdocs.structure.files import File  # noqa: PLC0415, tests of what stands below do without mkdocs

    files.remove(files.src_uris["README.md"])
    for name, uri in MOVED.items():
        files.append(File.generated(config, uri, abs_src_path=str(ROOT / name)))
    guides = [*MOVED, *(f"docs/{uri}" for uri in files.src_uris if (ROOT / "docs" / uri).suffix == ".md")]
    beside = {path for guide in guides if (ROOT / guide).exists() for path in linked(guide) if place(path) not in files}
    for path in sorted(beside):
        files.append(File.generated(config, place(path), abs_src_path=str(ROOT / path)))
    for name in ["bpt", *packages()]:
        files.append(File.generated(config, f"api/{name}.md", content=reference(name)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turns links between files of the repository into links between pages of the site."""
    uri = page.file.src_uri
    names = {moved: name for name, moved in MOVED.items()}
    return turned(markdown, names.get(uri, f"docs/{uri}"), uri)


def sections(index: str) -> list[Section]:
    """The headings of docs/README.md, and the guides linked under each that stand under none before it."""
    found: list[Section] = []
    seen = {"index.md"}
    for heading, text in re.findall(r"^## (.*)\n((?:(?!## ).*\n?)*)", index, re.MULTILINE):
        uris = [place(posixpath.normpath(f"docs/{link}")) for link, _ in LINK.findall(text)]
        new = [uri for uri in dict.fromkeys(uris) if uri not in seen]
        seen.update(new)
        if new:
            found.append({heading: new})
    return found


def packages() -> list[str]:
    """The packages and modules in bpt/, but for what is generated and what is called by other names."""
    paths = (ROOT / "bpt").iterdir()
    return sorted(
        f"bpt.{path.stem}"
        for path in paths
        if path.suffix == ".py" or (path / "__init__.py").exists()
        if not path.stem.startswith("__")
    )


def reference(name: str) -> str:
    """The text of a page with the docstrings of a package; of ``bpt`` those of its public face."""
    options = "{show_submodules: false, members: true}" if name == "bpt" else "{}"
    return f"# {name}\n\n::: {name}\n    options: {options}\n"


def linked(guide: str) -> set[str]:
    """The files of the repository that a guide links to."""
    return {path for link, _ in LINK.findall((ROOT / guide).read_text()) if (path := target(guide, link))}


def target(guide: str, link: str) -> str | None:
    """Where a guide's link leads in the repository; none if this is no file of it."""
    path = posixpath.normpath(posixpath.join(posixpath.dirname(guide), link))
    return path if (ROOT / path).is_file() else None


def place(path: str) -> str:
    """Where the site has a file of the repository; what is no guide is shown as text."""
    if path in MOVED:
        return MOVED[path]
    return path.removeprefix("docs/") if path.startswith("docs/") else f"repository/{path}.txt"


def turned(markdown: str, guide: str, uri: str) -> str:
    """The text of a guide with its links as they are from its page, ``uri``."""

    def link(found: re.Match[str]) -> str:
        path = target(guide, found[1])
        if path is None:
            return found[0]
        return f"]({posixpath.relpath(place(path), posixpath.dirname(uri) or '.')}{found[2] or ''})"

    return LINK.sub(link, markdown)
