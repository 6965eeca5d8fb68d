"""The sections of ``bpt report`` about predictions, ranks' time and layers, and pages of runs that still train."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

import h5py
import numpy as np
import pytest

from bpt import caffe
from bpt.apps.report.page import write_report
from bpt.apps.report.results_report import ReportRequest, report
from bpt.apps.report.timeline_section import TimelineBar, timeline_section
from bpt.base.errors import FileError, UsageError

RUN = [
    {"kind": "start", "time": 1.0, "iteration": 0, "net": "n", "solver": "s", "ranks": 1},
    {"kind": "train", "time": 2.0, "iteration": 10, "loss": 2.5, "lr": 0.01, "ranks": []},
]
END = {"kind": "end", "time": 3.0}
NET = """name: "bright"
layer { name: "data" type: "HDF5Data" top: "data" top: "label" hdf5_data_param { source: "list.txt" batch_size: 3 } }
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv" convolution_param { num_output: 1 kernel_size: 1 } }
layer { name: "ip" type: "InnerProduct" bottom: "conv" top: "ip" inner_product_param { num_output: 2 } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
"""
SOLVER = 'net: "net.prototxt" base_lr: 0.1 lr_policy: "fixed" max_iter: 1 test_iter: 2 test_interval: 1\n'
SUMS = (0.0, 1.0, 4.0, 3.0, 0.0, 4.0)  # of the pixels; the net answers class 1 if they are above 2
LABELS = (0, 0, 1, 0, 1, 1)  # so samples 3 and 4 are wrong, the latter with more certainty


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A trained network and its test data."""
    monkeypatch.chdir(tmp_path)
    Path("net.prototxt").write_text(NET)
    Path("solver.prototxt").write_text(SOLVER)
    Path("list.txt").write_text("data.h5\n")
    Path("run.jsonl").write_text("".join(json.dumps(record) + "\n" for record in [*RUN, END]))
    pixels = np.repeat(np.array(SUMS, np.float32) / 4, 4).reshape(-1, 1, 2, 2)
    with h5py.File("data.h5", "w") as file:
        file["data"], file["label"] = pixels, np.array(LABELS, np.float32)
    net = caffe.Net("net.prototxt", caffe.TEST)
    net.params["conv"][0].data[...], net.params["conv"][1].data[...] = 1, 0
    net.params["ip"][0].data[...], net.params["ip"][1].data[...] = [[0] * 4, [1] * 4], [0, -2]
    net.save("net.caffemodel")
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


def test_the_layers_under_the_roofs(folder: Path) -> None:
    pytest.importorskip("matplotlib")
    report(ReportRequest(["run.jsonl"], "run.html", "solver.prototxt", has_roofline=True))
    assert "<h2>Layers</h2>" in Path("run.html").read_text()


@pytest.mark.parametrize(
    ("settings", "flag"),
    [({"weights": ["w"]}, "--weights"), ({"has_roofline": True}, "--roofline"), ({"iterations": 2}, "--iterations")],
)
def test_settings_that_need_others(folder: Path, settings: dict[str, object], flag: str) -> None:
    with pytest.raises(UsageError, match=flag):
        report(ReportRequest(["run.jsonl"], "run.html", **settings))  # type: ignore[arg-type]


def bar(rank: int, kind: str, name: str, start: float, length: float) -> dict[str, object]:
    return {"ph": "X", "pid": rank, "tid": 1, "cat": kind, "name": name, "ts": start * 1e3, "dur": length * 1e3}


def iterations(count: int) -> list[dict[str, object]]:
    """Iterations of 10 ms on two ranks."""
    return [
        event
        for index in range(count)
        for rank in (0, 1)
        for event in (
            bar(rank, "compute", "F0", 10 * index, 3), bar(rank, "compute", "B0", 10 * index + 3, 4),
            bar(rank, "exchange", "Allreduce", 10 * index + 4, 2), bar(rank, "compute", "U", 10 * index + 8, 2),
            bar(rank, "disk", "write", 10 * index, 1),
        )
    ]  # fmt: skip


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
