"""The sections of ``bpt report`` about predictions, ranks' time and layers, and pages of runs that still train."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

import pytest

from bpt.apps.report.page import write_report
from bpt.apps.report.results_report import ReportRequest, report
from bpt.apps.report.timeline_section import TimelineBar, timeline_section
from bpt.base.errors import FileError, UsageError
from tests.support.report_inputs import bar, iterations, write_lines, write_network

RUN = [
    {"kind": "start", "time": 1.0, "iteration": 0, "net": "n", "solver": "s", "ranks": 1},
    {"kind": "train", "time": 2.0, "iteration": 10, "loss": 2.5, "lr": 0.01, "ranks": []},
]
END = {"kind": "end", "time": 3.0}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A trained network and its test data."""
    monkeypatch.chdir(tmp_path)
    write_network()
    write_lines("run.jsonl", [*RUN, END])
    return tmp_path


def test_the_confusion_and_the_worst_mistakes(folder: Path) -> None:
    pytest.importorskip("matplotlib")
    report(ReportRequest(["run.jsonl"], "run.html", "solver.prototxt", ["net.caffemodel"]))
    text = Path("run.html").read_text()
    assert "6 samples of the test data, 66.67% of them correct" in text
    counts = re.findall(r'<td style="--share: ([\d.]+)"( class=right)?>(\d+)</td>', text)
    assert counts == [
        ("0.667", " class=right", "2"),
        ("0.333", "", "1"),
        ("0.333", "", "1"),
        ("0.667", " class=right", "2"),
    ]
    assert re.findall(r"<figcaption>(.*?)</figcaption>", text) == [
        "sample 4: label class 1, predicted class 0 (88%)",  # 1 / (1 + exp(-2))
        "sample 3: label class 0, predicted class 1 (73%)",  # 1 / (1 + exp(-1))
    ]
    assert text.count("data:image/png;base64,") == 4  # each with its evidence


def test_mistakes_name_the_files_of_the_pictures(folder: Path) -> None:
    """Also in a random order: each file's name has its shade and its label."""
    pytest.importorskip("matplotlib")
    image = pytest.importorskip("PIL.Image")
    lines = [
        f"{shade}_{label}.png {label}" for shade, label in ((0, 0), (40, 1), (80, 1), (200, 0), (240, 0), (250, 1))
    ]
    for line in lines:
        image.new("L", (2, 2), int(line.partition("_")[0])).save(line.partition(" ")[0])
    Path("pictures.txt").write_text("\n".join(lines))
    text = Path("net.prototxt").read_text()
    data = 'image_data_param { source: "pictures.txt" batch_size: 3 is_color: false shuffle: true }'
    data += " transform_param { scale: 0.00392156862 }"
    start = text.index("hdf5_data_param")
    text = text[:start] + data + text[text.index("}", start) + 1 :]
    Path("net.prototxt").write_text(text.replace("HDF5Data", "ImageData"))
    report(ReportRequest(["run.jsonl"], "run.html", "solver.prototxt", ["net.caffemodel"]))
    page = Path("run.html").read_text()
    said = re.findall(r"<figcaption>sample \d \((\d+)_(\d).png\): label class (\d), predicted class (\d)", page)
    assert [(shade, label) for shade, label, *_ in said] == [("240", "0"), ("40", "1"), ("200", "0"), ("80", "1")]
    assert all(label == seen != predicted for _, label, seen, predicted in said)
    assert "By the weights of net.caffemodel" in page


def test_names_of_classes(folder: Path) -> None:
    """Those of --labels, or of classes.txt beside the network's text."""
    pytest.importorskip("matplotlib")
    Path("classes.txt").write_text("dark\nlight\n")
    Path("names.txt").write_text("<night>\nday\n")
    for labels, words in (("", "label 1 &quot;light&quot;, predicted 0 &quot;dark&quot;"),
                          ("names.txt", "label 1 &quot;day&quot;, predicted 0 &quot;&lt;night&gt;&quot;")):  # fmt: skip
        report(ReportRequest(["run.jsonl"], "run.html", "solver.prototxt", ["net.caffemodel"], labels=labels))
        assert f"sample 4: {words}" in Path("run.html").read_text()


def test_a_tie_is_a_mistake_for_the_other_class(folder: Path) -> None:
    """As in the confusion matrix: sample 1 has a sum of 2, so both scores are 0."""
    pytest.importorskip("matplotlib")
    write_network((0.0, 2.0, 4.0), (0, 0, 1))
    report(ReportRequest(["run.jsonl"], "run.html", "solver.prototxt", ["net.caffemodel"], iterations=1))
    text = Path("run.html").read_text()
    assert "66.67% of them correct" in text
    assert re.findall(r"<figcaption>(.*?)</figcaption>", text) == ["sample 1: label class 0, predicted class 1 (50%)"]


def test_the_layers_under_the_roofs(folder: Path) -> None:
    pytest.importorskip("matplotlib")
    report(ReportRequest(["run.jsonl"], "run.html", "solver.prototxt", has_roofline=True))
    assert "<h2>Layers</h2>" in Path("run.html").read_text()


@pytest.mark.parametrize(
    ("settings", "flag"),
    [
        ({"weights": ["w"]}, "--weights"),
        ({"has_roofline": True}, "--roofline"),
        ({"iterations": 2}, "--iterations"),
        ({"labels": "names.txt"}, "--labels"),
    ],
)
def test_settings_that_need_others(folder: Path, settings: dict[str, object], flag: str) -> None:
    with pytest.raises(UsageError, match=flag):
        report(ReportRequest(["run.jsonl"], "run.html", **settings))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz"])
def test_two_iterations_of_a_trace(name: str, tmp_path: Path) -> None:
    content = json.dumps({"traceEvents": iterations(5)}).encode()
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    text = "\n".join(timeline_section(str(tmp_path / name)))
    assert re.findall(r">(rank \d: \w+)<", text) == [
        f"rank {rank}: {row}" for rank in (0, 1) for row in ("compute", "exchange")
    ]
    assert text.count("<title>") == 2 * 2 * 4  # iterations, ranks, bars
    assert text.count("<title>B0: 4.000 ms</title>") == 4
    assert ">20</text>" in text  # ms


def test_the_shortest_iterations_in_a_row(tmp_path: Path) -> None:
    ends = (10, 20, 120, 128, 140, 147, 190)  # pairs take 110, 108, 20, 19 and 50 ms
    events = [bar(0, "compute", "U", end - 2, 2) for end in ends]
    (tmp_path / "trace.json").write_text(json.dumps({"traceEvents": [*events, bar(0, "compute", "test", 20, 98)]}))
    text = "\n".join(timeline_section(str(tmp_path / "trace.json")))
    assert "test: " not in text and text.count("<title>U: ") == 2
    assert ">15</text>" in text and ">20</text>" not in text  # of 19 ms


@pytest.mark.parametrize(
    ("name", "kind"),
    [("F0", "forward"), ("F1.3", "forward"), ("B0", "backward"), ("I0.1", "backward"), ("V2.10", "backward"),
     ("G2", "wait"), ("W", "wait"), ("X2", "start of an exchange"), ("U", "update"), ("D0", "other"),
     ("snapshot", "other"), ("s1.0", "other")],
)  # fmt: skip
def test_kinds_of_bars(name: str, kind: str) -> None:
    assert TimelineBar(0, "compute", name, 0.0, 1.0).kind == kind


@pytest.mark.parametrize("content", ["", "{}", '{"traceEvents": [{"ph": "X"}]}', '{"traceEvents": []}'])
def test_files_that_are_no_trace(content: str, tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text(content)
    with pytest.raises(FileError, match="trace"):
        list(timeline_section(str(path)))


def test_a_trace_that_is_too_short(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": iterations(2)}))
    with pytest.raises(FileError, match="2 iterations"):
        list(timeline_section(str(path)))


def test_a_live_page_is_loaded_again_until_the_run_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, page = tmp_path / "run.jsonl", tmp_path / "run.html"
    run.write_text("".join(json.dumps(record) + "\n" for record in RUN))
    assert not write_report([str(run)], str(page), is_live=True)
    assert 'http-equiv="refresh"' in page.read_text()

    def end_the_run(seconds: float) -> None:
        with run.open("a") as file:
            file.write(json.dumps(END) + "\n")

    monkeypatch.setattr("bpt.apps.report.results_report.time.sleep", end_the_run)
    report(ReportRequest([str(run)], str(page), is_live=True))
    assert "refresh" not in page.read_text() and "ended" in page.read_text()
