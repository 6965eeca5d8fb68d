"""A headless Chromium that lays out pages: what a page measures in it, in a light and in a dark scheme."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from html import escape, unescape
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
SECONDS = 120  # a start takes two of them on a quiet machine
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
    "--hide-scrollbars", "--enable-logging=stderr",
)  # fmt: skip
SCHEMES = {"dark": 0, "light": 1}  # of Chromium's setting preferredColorScheme
_CONSOLE = re.compile(r"CONSOLE[^\n]*")
_RESULT = re.compile(r'<script type="application/json" id="measured">(.*?)</script>', re.DOTALL)


@dataclass(frozen=True)
class Rendered:
    """What Chromium made of a page.

    Attributes:
        measured: by the width of the window in pixels, what PROBE found.
        console: the messages of the console: errors of scripts, and what could not be loaded.
        picture: the page in its first width, a PNG file.
    """

    measured: dict[int, dict[str, Any]]
    console: list[str]
    picture: Path


def find_chromium() -> str:
    """The program; the test is skipped where there is none."""
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        pytest.skip(f"no browser: none of {', '.join(NAMES)} is installed (Debian: apt-get install chromium)")
    return found


def run_chromium(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run Chromium with a new profile in ``folder``. It is ended with all its processes after SECONDS."""
    profile = folder / "profile"
    shutil.rmtree(profile, ignore_errors=True)
    command = [find_chromium(), *FLAGS, f"--user-data-dir={profile}", *words]
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True, errors="replace",
    ) as process:  # fmt: skip
        try:
            out, err = process.communicate(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            _, err = process.communicate()
            pytest.fail(f"the browser did not end within {SECONDS} s: {' '.join(command)}\n{err[-2000:]}")
    assert process.returncode == 0, f"the browser failed ({process.returncode}): {' '.join(command)}\n{err[-2000:]}"
    return subprocess.CompletedProcess(command, process.returncode, out, err)


def render(page: Path, folder: Path, widths: tuple[int, ...], scheme: str) -> Rendered:
    """Lay out ``page`` in frames of these ``widths``, in one start of the browser, and measure it in each by PROBE.

    Args:
        page: the page; it is not changed.
        folder: an empty folder.
        scheme: a key of SCHEMES.
    """
    wrapper, picture = folder / "wrapper.html", folder / f"{scheme}.png"
    wrapper.write_text(_wrapper(page, widths, 900, PROBE), encoding="utf-8")
    made = run_chromium(
        folder, f"--blink-settings=preferredColorScheme={SCHEMES[scheme]}", f"--window-size={max(widths) + 40},2000",
        "--dump-dom", f"--screenshot={picture}", wrapper.as_uri(),
    )  # fmt: skip
    found = _RESULT.search(made.stdout)
    assert found, f"the browser dumped no measures:\n{made.stdout[-2000:]}\n{made.stderr[-2000:]}"
    measured = json.loads(unescape(found[1]))
    return Rendered(dict(zip(widths, measured, strict=True)), _CONSOLE.findall(made.stderr), picture)


def photograph(page: Path, picture: Path, width: int, height: int, scheme: str) -> None:
    """Write a PNG file of what Chromium shows of ``page``, to look at; in a frame, since windows have a least width."""
    wrapper = picture.with_suffix(".html")
    wrapper.write_text(_wrapper(page, (width,), height, ""), encoding="utf-8")
    run_chromium(
        picture.parent, f"--blink-settings=preferredColorScheme={SCHEMES[scheme]}",
        f"--window-size={width},{height}", f"--screenshot={picture}", wrapper.as_uri(),
    )  # fmt: skip
    wrapper.unlink()


def _wrapper(page: Path, widths: tuple[int, ...], height: int, script: str) -> str:
    """Return a page that shows ``page``, which is not changed, in a frame of each width."""
    html = escape(page.read_text(encoding="utf-8"))
    frames = "".join(
        f'<iframe width="{width}" height="{height}" style="border: 0" srcdoc="{html}"></iframe>' for width in widths
    )
    return (
        '<!DOCTYPE html><html><head><meta charset="utf-8"><meta name="color-scheme" content="light dark"></head>'
        f'<body style="margin: 0">{frames}<script>{script}</script></body></html>'
    )


PROBE = r"""
function box(element) {
  const r = element.getBoundingClientRect();
  return [r.left, r.top, r.right, r.bottom];
}
function rgba(text) {
  const parts = text.match(/[\d.]+/g).map(Number);
  return [...parts.slice(0, 3), parts.length > 3 ? parts[3] : 1];
}
function over(top, below) {
  const a = top[3];
  return [0, 1, 2].map(i => top[i] * a + below[i] * (1 - a)).concat(1);
}
// The colour behind an element: those of its ancestors, over what the window paints below the page.
function behind(element, view, canvas) {
  const layers = [];
  for (let each = element; each; each = each.parentElement) {
    layers.push(rgba(view.getComputedStyle(each).backgroundColor));
  }
  return layers.reverse().reduce((below, layer) => over(layer, below), canvas);
}
function texts(page, view) {
  const canvas = view.matchMedia('(prefers-color-scheme: dark)').matches ? [18, 18, 18, 1] : [255, 255, 255, 1];
  const walker = page.createTreeWalker(page.body, NodeFilter.SHOW_TEXT);
  const found = [];
  while (walker.nextNode()) {
    const parent = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || parent.closest('style, title, script')) continue;
    if (!parent.getClientRects().length) continue;  // what is folded up
    const style = view.getComputedStyle(parent);
    const colour = rgba(parent.closest('svg') ? style.fill : style.color);
    const below = behind(parent, view, canvas);
    found.push({
      text: walker.currentNode.data.trim().slice(0, 60), colour: over(colour, below).slice(0, 3),
      behind: below.slice(0, 3), size: parseFloat(style.fontSize) * scaleOf(parent),
      scrolls: !!parent.closest('table, pre, .drawing, .wide'), box: box(parent),
    });
  }
  return found;
}
function scaleOf(element) {
  const svg = element.closest('svg');
  return svg && svg.viewBox.baseVal.width ? svg.getBoundingClientRect().width / svg.viewBox.baseVal.width : 1;
}
function measure(frame) {
  const page = frame.contentDocument, view = frame.contentWindow;
  return {
    width: view.innerWidth,
    scrollWidth: page.documentElement.scrollWidth,
    isDark: view.matchMedia('(prefers-color-scheme: dark)').matches,
    requests: view.performance.getEntriesByType('resource').map(entry => entry.name.slice(0, 80)),
    pictures: [...page.images].map(image => ({box: box(image), isWhole: image.complete && image.naturalWidth > 0})),
    charts: [...page.querySelectorAll('svg[role=img], .drawing svg')].map(svg => ({
      name: svg.getAttribute('aria-label') || 'drawing', box: box(svg),
      labels: [...svg.querySelectorAll('text')].map(text => ({text: text.textContent, box: box(text)})),
    })),
    texts: texts(page, view),
  };
}
window.addEventListener('load', () => {
  const result = document.createElement('script');
  result.type = 'application/json';
  result.id = 'measured';
  result.textContent = JSON.stringify([...document.querySelectorAll('iframe')].map(measure));
  document.body.append(result);
});
"""


if __name__ == "__main__":  # .venv/bin/python -m tests.support.browser run.html: pictures of a page, to look at
    given = Path(sys.argv[1]).resolve()
    for each in SCHEMES:
        for size in ((1280, 3600), (390, 6000)):
            photograph(given, given.with_name(f"{given.stem}_{each}_{size[0]}.png"), *size, each)
