"""Draw the districts of bpt, and which of them import which, from the package's own imports.

``python scripts/draw_districts.py`` writes ``docs/pictures/districts.svg``, the picture of docs/architecture.md.
``make env`` brings what it needs: grimp reads the imports, for import-linter's contract, too.
"""

from __future__ import annotations

import configparser
import textwrap
from collections.abc import Collection
from html import escape
from pathlib import Path

import grimp

ROOT = Path(__file__).resolve().parents[1]
PICTURE = ROOT / "docs" / "pictures" / "districts.svg"
CELL, GAP, LEFT, BOX, TOP = 34, 6, 12, 470, 92
STYLE = """
svg { background: #ffffff; font: 13px sans-serif }
text { fill: #1f2933 } .faint { fill: #52606d; font-size: 11px } .box { fill: #e8eef7; stroke: #7b8794 }
.import { fill: #2f6fb7 } .empty { fill: #f1f4f8 } .self { fill: #7b8794 }
@media (prefers-color-scheme: dark) {
svg { background: #15191e } text { fill: #e4e7eb } .faint { fill: #9aa5b1 } .box { fill: #26313f; stroke: #52606d }
.empty { fill: #1c222a } .import { fill: #6aa5e8 } }
"""


def districts() -> list[str]:
    """Return the districts from the top one down, as the import contract in setup.cfg orders them."""
    parser = configparser.ConfigParser()
    parser.read(ROOT / "setup.cfg")
    return parser["importlinter:contract:districts"]["layers"].split()


def imports() -> set[tuple[str, str]]:
    """Return the pairs of districts of which the first imports the second."""
    graph = grimp.build_graph("bpt")
    known = set(districts())
    pairs: set[tuple[str, str]] = set()
    for module in graph.modules:
        importer = {module.partition(".")[2].partition(".")[0]} & known
        imported = {
            name.partition(".")[2].partition(".")[0] for name in graph.find_modules_directly_imported_by(module)
        }
        pairs.update((one, other) for one in importer for other in imported & known - importer)
    return pairs


def parts(district: str) -> str:
    """Return the names of a district's folders, then of its modules, as far as they fit into its box."""
    root = ROOT / "bpt" / district
    folders = sorted(path.parent.name for path in root.glob("*/__init__.py"))
    modules = sorted(path.stem for path in root.glob("*.py") if not path.stem.startswith("_"))
    return textwrap.shorten(", ".join(folders + modules), 80, placeholder=" …")


def picture(names: list[str], pairs: Collection[tuple[str, str]]) -> str:
    """Return the picture as SVG: a box a district, and right of it a row that marks the districts it imports."""
    step, right = CELL + GAP, LEFT + BOX + 24
    width, height = right + step * len(names) + 12, TOP + step * len(names) + 34
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}">',
        f"<style>{STYLE}</style>",
        f'<text x="{LEFT}" y="{TOP - 18}">district, and what is in it</text>',
    ]
    for column, name in enumerate(names):
        x = right + step * column + CELL / 2 + 4
        lines.append(f'<text transform="translate({x},{TOP - 12}) rotate(-55)">{name}</text>')
    for row, name in enumerate(names):
        y = TOP + step * row
        lines += [
            f'<rect class="box" x="{LEFT}" y="{y}" width="{BOX}" height="{CELL}" rx="4"/>',
            f'<text x="{LEFT + 8}" y="{y + 14}" font-weight="bold">{name}</text>',
            f'<text class="faint" x="{LEFT + 8}" y="{y + 28}">{escape(parts(name))}</text>',
        ]
        for column, other in enumerate(names):
            kind = "self" if other == name else "import" if (name, other) in pairs else "empty"
            title = f"<title>{name} imports {other}</title>" if kind == "import" else ""
            place = f'x="{right + step * column}" y="{y}" width="{CELL}" height="{CELL}" rx="4"'
            lines.append(f'<rect class="{kind}" {place}>{title}</rect>')
    note = "A blue cell: the row's district imports the column's. None is left of the diagonal: no import leads upward."
    lines += [f'<text class="faint" x="{LEFT}" y="{height - 14}">{note}</text>', "</svg>", ""]
    return "\n".join(lines)


if __name__ == "__main__":
    PICTURE.write_text(picture(districts(), imports()), encoding="utf-8")
    print(PICTURE.relative_to(ROOT))
