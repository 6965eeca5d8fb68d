"""``bpt report``: the numbers of the page, what it escapes, and files that are no metrics."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from bpt.apps.report.curve_chart import draw_chart, enclosing_ticks, round_ticks, tick_label
from bpt.apps.report.run_history import run_names
from bpt.cli.main import main

RANK = {"rank": 0, "host": "<b>a", "computing": 0.0104, "data": 0.001, "exchange": 0.0, "pipeline": None}
RECORDS = [
    {"kind": "start", "time": 10.0, "iteration": 0, "net": "<script>x</script>", "solver": "s&s", "ranks": 1},
    {"kind": "train", "time": 12.0, "iteration": 10, "loss": 2.5, "lr": 0.01, "ranks": [RANK]},
    {"kind": "train", "time": 14.0, "iteration": 20, "loss": None, "lr": 0.01, "ranks": [RANK]},
    {
        "kind": "start",
        "time": 15.0,
        "iteration": 10,
        "net": "<script>x</script>",
        "solver": "s&s",
        "ranks": 1,
        "max_iter": 77,
    },
    {"kind": "train", "time": 16.0, "iteration": 20, "loss": 1.25, "lr": 0.001, "ranks": [RANK]},
    {"kind": "test", "time": 17.0, "iteration": 20, "net": 0, "loss": 1.0, "outputs": {"acc<": 0.75, "many": [1, 2]}},
    {"kind": "end", "time": 18.5},
]


@pytest.mark.parametrize(
    ("paths", "names"),
    [
        (["x/run.jsonl", "x/other.jsonl"], ["run", "other"]),
        (["x/metrics.jsonl", "y/metrics.jsonl"], ["x", "y"]),
        (["x/run.jsonl", "y/run.jsonl", "y/other.jsonl"], ["x/run", "y/run", "other"]),
        (["a/x/metrics.jsonl", "b/x/metrics.jsonl"], ["a/x", "b/x"]),
    ],
)
def test_runs_have_names_that_tell_them_apart(paths: list[str], names: list[str]) -> None:
    assert run_names(paths) == names


def test_the_same_file_twice_has_one_name() -> None:
    first, second = run_names(["x/run.jsonl", "x/run.jsonl"])
    assert first == second


def test_charts_of_one_page_share_their_axes(tmp_path: Path) -> None:
    page = tmp_path / "run.html"
    assert main(["report", write(tmp_path / "one.jsonl"), "--output", str(page)]) == 0
    charts = re.findall(r"<svg viewBox=.*?</svg>", page.read_text(encoding="utf-8"), re.DOTALL)
    ticks = [tuple(re.findall(r'middle">([\d.]+)</text>', chart)) for chart in charts[1:]]
    assert len(ticks) == 6 and set(ticks[::2]) == {("0", "5", "10", "15", "20")}
    assert set(ticks[1::2]) == {("0", "2", "4", "6")}


class Nesting(HTMLParser):
    """Checks that every element is closed in order, and collects names of elements."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.seen.add(tag)
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: object) -> None:
        self.seen.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def write(path: Path) -> str:
    path.write_text("".join(json.dumps(record) + "\n" for record in RECORDS), encoding="utf-8")
    return str(path)


def test_page(tmp_path: Path) -> None:
    runs = [write(tmp_path / "one.jsonl"), write(tmp_path / "two&.jsonl")]
    page = tmp_path / "run.html"
    assert main(["report", *runs, "--output", str(page)]) == 0
    text = page.read_text(encoding="utf-8")
    nesting = Nesting()
    nesting.feed(text)
    assert not nesting.open
    assert "script" not in nesting.seen and "b" not in nesting.seen
    rows = re.findall(r"<tr><th>(.*?)</th>(.*?)</tr>", text)
    for name, value in (
        ("loss", "1.25 at 20"), ("learning rate", "0.001 at 20"), ("test acc&lt;", "0.75 at 20"), ("max_iter", "77"),
        ("state", "ended"), ("seconds", "8.5"),
    ):  # fmt: skip
        assert (name, f"<td>{value}</td>" * 2) in rows, name
    assert "<td>10.4</td><td>1</td><td>0</td><td>–</td>" in text
    assert "two&amp;" in text and "acc&lt;" in text
    assert text.count("<polyline") == 3 * 2 * 2  # loss, rate and score, against two axes, of two runs
    assert "http" not in text


def test_the_title_of_many_runs_names_the_first(tmp_path: Path) -> None:
    runs = [write(tmp_path / f"{name}.jsonl") for name in "abcde"]
    page = tmp_path / "run.html"
    assert main(["report", *runs, "--output", str(page)]) == 0
    assert "<h1>Training of a, b, c and 2 other runs</h1>" in page.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("low", "high", "is_whole", "labels"),
    [
        (0.1722, 0.3764, False, "0.2 0.25 0.3 0.35"),  # 0.2042 / 5 = 0.041: steps of 0.05
        (0.0337608, 0.547413, False, "0.2 0.4"),  # 0.51 / 5 = 0.103: steps of 0.2
        (5, 199, True, "50 100 150"),  # 194 / 5 = 38.8: steps of 50
        (1, 3, True, "1 2 3"),  # 2 / 5 = 0.4, but iterations are whole
        (0, 10, True, "0 2 4 6 8 10"),
        (-0.3, 0.3, False, "-0.2 0 0.2"),
        (1e-5, 1e-4, False, "2e-05 4e-05 6e-05 8e-05 0.0001"),
        (0.547413, 0.547413, False, "0.547"),
        (12345, 12345, True, "12345"),
    ],
)
def test_ticks_are_round(low: float, high: float, is_whole: bool, labels: str) -> None:
    ticks = round_ticks(low, high, is_whole)
    assert " ".join(tick_label(value, ticks) for value in ticks) == labels


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (0.1722, 0.3764, [0.15, 0.2, 0.25, 0.3, 0.35, 0.4]),
        (0.05, 1.81, [0, 0.5, 1, 1.5, 2]),
        (1.0, 2.0, [1, 1.2, 1.4, 1.6, 1.8, 2]),
        (-0.31, 0.3, [-0.4, -0.2, 0, 0.2, 0.4]),
        (0.5, 0.5, [0.5]),
    ],
)
def test_ticks_that_enclose_the_values(low: float, high: float, ticks: list[float]) -> None:
    assert enclosing_ticks(low, high) == ticks


def test_ticks_are_where_their_values_are() -> None:
    chart = draw_chart("loss", "iteration", [(0, [(0, 1.0), (5, 2.0)])])
    assert '<text x="70.0" y="196" text-anchor="middle">0</text>' in chart
    assert '<text x="137.0" y="196" text-anchor="middle">1</text>' in chart  # 70 + (420 - 70 - 15) / 5


@pytest.mark.parametrize(("content", "words"), [("{}\n", "line 1 is no record of metrics"), ("", "no displayed")])
def test_no_metrics(content: str, words: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "odd.jsonl"
    run.write_text(content)
    assert main(["report", str(run), "--output", str(tmp_path / "run.html")]) == 2
    assert words in capfd.readouterr().err


NET = """name: "a<b>c"
layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 1 dim: 3 } } }
layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip" inner_product_param { num_output: 2 } }
"""


def test_the_drawn_network_and_the_texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    Path("net.prototxt").write_text(NET)
    Path("solver.prototxt").write_text('net: "net.prototxt"  # 1 < 2\nbase_lr: 0.1 max_iter: 1\n')
    words = ["report", write(tmp_path / "run.jsonl"), "--solver", "solver.prototxt", "--output", "run.html"]
    assert main(words) == 0
    text = Path("run.html").read_text(encoding="utf-8")
    page = Nesting()
    page.feed(text)
    assert not page.open
    assert "<code>--set</code>" in text and "<code>max_iter</code>" in text
    assert "# 1 &lt; 2" in text and "name: &quot;a&lt;b&gt;c&quot;" in text
    drawing = text[text.index('<div class="drawing">') :]
    assert "InnerProduct" in drawing or "<use" in drawing  # matplotlib draws letters, or writes them
    assert "b" not in page.seen


def test_a_network_that_cannot_be_drawn_is_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("net.prototxt").write_text("layer {")
    Path("solver.prototxt").write_text('net: "net.prototxt" base_lr: 0.1 max_iter: 1\n')
    words = ["report", write(tmp_path / "run.jsonl"), "--solver", "solver.prototxt", "--output", "run.html"]
    assert main(words) == 0
    assert "The network is not drawn: net.prototxt:1:" in Path("run.html").read_text(encoding="utf-8")
