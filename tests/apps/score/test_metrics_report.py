"""What bpt test reports, and the confusion matrix as a file."""

from __future__ import annotations

import csv
import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bpt.apps.score import metrics_report
from bpt.apps.score.metrics_report import Metrics, check_confusion_path, write_confusion
from bpt.apps.score.score_model import score
from bpt.base.errors import UserError, WriteError
from bpt.cli.main import main
from bpt.config.plan.nets import file_plan
from bpt.config.proto import bpt_pb2 as pb
from bpt.nn.net_graph import build_graph_of
from bpt.system.comm.base import Communicator
from bpt.system.device import CPU
from bpt.train.runtime.net_on_device import make_net
from bpt.train.state import save_weights
from tests.support.doubles.thread_ranks import run_ranks
from tests.support.lmdbs import write_images

# The scores of three classes for six samples, and their labels. The third is wrong, but second best.
SCORES = [[9, 1, 0], [8, 2, 1], [7, 5, 0], [1, 6, 2], [0, 1, 5], [6, 2, 1]]
LABELS = [0, 0, 1, 1, 2, 2]
NET = """
layer { name: "data" type: "Data" top: "scores" top: "label"
  data_param { source: "lmdb" backend: LMDB batch_size: 3 } }
layer { name: "scale" type: "Scale" bottom: "scores" top: "scaled" scale_param { filler { value: 1 } } }
layer { name: "flat" type: "Flatten" bottom: "scaled" top: "flat" }
"""
LOSS = 'layer { name: "loss" type: "SoftmaxWithLoss" bottom: "flat" bottom: "label" top: "loss" }'
Score = Callable[..., list[str]]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_images(tmp_path / "lmdb", [np.array(row, np.uint8).reshape(3, 1, 1) for row in SCORES], LABELS)
    (tmp_path / "net.prototxt").write_text(NET + LOSS)
    (tmp_path / "names").write_text("cat\ndog\nbird\n\n")
    save_weights(make_net(build_graph_of(file_plan("net.prototxt", pb.TEST)), CPU), "net.caffemodel")


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Callable[[Metrics], list[str]]:
    def run(metrics: Metrics) -> list[str]:
        caplog.clear()
        with caplog.at_level(logging.INFO, "bpt"):
            score("net.prototxt", ["net.caffemodel"], 2, CPU, metrics=metrics)
        messages = [record.getMessage() for record in caplog.records]
        return messages[messages.index(next(m for m in messages if m.startswith("loss = "))) + 1 :]

    return run


def test_top_k_and_classes(lines: Callable[[Metrics], list[str]]) -> None:
    found = lines(Metrics(top_k=(1, 2), per_class=True, labels="names"))
    assert found == [
        "Top-1 accuracy = 0.666667",
        "Top-2 accuracy = 0.833333",
        "    class            labels  right  accuracy",
        "    cat                   2      2    1.0000",
        "    dog                   2      1    0.5000",
        "    bird                  2      1    0.5000",
        "    mean of classes       6      4    0.6667",
    ]


def test_names_beside_the_network(lines: Callable[[Metrics], list[str]]) -> None:
    """As bpt new writes them; a file for another number of classes is of another network."""
    Path("classes.txt").write_text("cat\ndog\nbird\n")
    found = lines(Metrics(per_class=True, confusion="c.csv"))
    assert [line.split()[0] for line in found[1:4]] == ["cat", "dog", "bird"]
    assert Path("c.csv").read_text().startswith("label,cat,dog,bird\n")
    Path("classes.txt").write_text("cat\ndog\n")
    found = lines(Metrics(per_class=True, confusion="c.csv"))
    assert [line.split()[0] for line in found[1:4]] == ["0", "1", "2"]
    assert Path("c.csv").read_text().startswith("label,0,1,2\n")


def test_auc_and_confusion(lines: Callable[[Metrics], list[str]]) -> None:
    found = lines(Metrics(confusion="c.csv", auc=True, labels="names"))
    # By hand, from the softmax of each row. Of cat, its two samples have more than the others: 8 of 8 pairs. So have
    # those of dog. Of bird the second has 0.0066, which is less than the fourth row's 0.018: 7 of 8. (1 + 1 + 7/8) / 3.
    assert found[1] == "Confusion matrix written to c.csv"
    assert list(csv.reader(Path("c.csv").read_text().splitlines())) == [
        ["label", "cat", "dog", "bird"],
        ["cat", "2", "0", "0"],
        ["dog", "1", "1", "0"],
        ["bird", "1", "0", "1"],
    ]
    assert found[0] == "Macro AUC = 0.958333"


def test_a_file_that_cannot_be_written_costs_no_other_number(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*arguments: object) -> None:
        raise WriteError("c.csv", "No space left on device")

    monkeypatch.setattr(metrics_report, "write_confusion", fail)
    with caplog.at_level(logging.INFO, "bpt"), pytest.raises(WriteError, match="No space"):
        score("net.prototxt", ["net.caffemodel"], 2, CPU, metrics=Metrics(confusion="c.csv", auc=True))
    assert caplog.messages[-1] == "Macro AUC = 0.958333"
    assert not any(message.startswith("Initializing solver") for message in caplog.messages)  # there is none


def test_nothing_is_said_unasked(lines: Callable[[Metrics], list[str]]) -> None:
    assert lines(Metrics()) == []


TURNED = 'layer { name: "turned" type: "Permute" bottom: "flat" top: "turned" permute_param { order: 1 } }'


@pytest.mark.parametrize("more", ["", TURNED])
def test_ranks_report_as_one(more: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Also where each scores whole batches; the file is written by the first."""
    Path("net.prototxt").write_text(NET + LOSS + more)
    writers = []
    write = metrics_report.write_confusion

    def spy(*arguments: Any) -> None:
        writers.append(threading.current_thread().name)
        write(*arguments)

    monkeypatch.setattr(metrics_report, "write_confusion", spy)

    def run(comm: Communicator) -> None:
        metrics = Metrics(top_k=(1,), auc=True, confusion="c.csv")
        score("net.prototxt", ["net.caffemodel"], 2, CPU, world=comm, metrics=metrics)

    with caplog.at_level(logging.INFO, "bpt"):
        run_ranks(2, run)
    assert writers == ["rank 0"]
    for rank in ("rank 0", "rank 1")[: 1 if more else 2]:
        said = [record.getMessage() for record in caplog.records if record.threadName == rank]
        assert "Top-1 accuracy = 0.666667" in said
        assert "Macro AUC = 0.958333" in said
    assert Path("c.csv").read_text() == "label,0,1,2\n0,2,0,0\n1,1,1,0\n2,1,0,1\n"


@pytest.mark.parametrize(
    ("metrics", "message"),
    [
        (Metrics(top_k=(1, 4)), '--top_k 4: layer "loss" of net.prototxt has 3 classes'),
        (Metrics(confusion="c.gif"), '"c.gif": a confusion matrix is written as .csv, .png or .svg'),
        (
            Metrics(per_class=True, labels="few"),
            "few: names 2 classes, the net has 3; write a line for each, from class 0 on",
        ),
        (Metrics(per_class=True, labels="nmes"), 'nmes: no such file; did you mean "names"?'),
    ],
)
def test_refusals(metrics: Metrics, message: str) -> None:
    Path("few").write_text("a\nb")
    with pytest.raises(UserError) as error:
        score("net.prototxt", ["net.caffemodel"], 2, CPU, metrics=metrics)
    assert str(error.value) == message


def test_a_net_that_does_not_classify() -> None:
    Path("plain.prototxt").write_text(NET)
    with pytest.raises(UserError, match=r"plain\.prototxt: no layer of the TEST phase compares scores of classes"):
        score("plain.prototxt", ["net.caffemodel"], 1, CPU, metrics=Metrics(auc=True))


def test_flags(capsys: pytest.CaptureFixture[str]) -> None:
    files = ["test", "--model", "net.prototxt", "--weights", "net.caffemodel", "--iterations=2"]
    assert main([*files, "-top_k", "2", "--per_class", "--auc", "--confusion=c.svg", "--class_names", "names"]) == 0
    assert "Top-2 accuracy = 0.833333" in capsys.readouterr().err
    assert Path("c.svg").is_file()
    assert main([*files, "--top_k", "0"]) == 2
    assert capsys.readouterr().err == 'error: --top_k takes a whole number of at least 1, found "0"\n'
    assert main([*files, "--per_class", "--labels", "names"]) == 0
    assert "    bird " in capsys.readouterr().err
    assert main([*files, "--per_class", "--labels", "names", "--class_names", "names"]) == 2
    assert "are the same" in capsys.readouterr().err
    assert main([*files, "--class_names", "names"]) == 2
    assert "give one of them, too" in capsys.readouterr().err


MATRIX = np.array([[3, 1], [0, 2]])


def test_a_table(tmp_path: Path) -> None:
    write_confusion(tmp_path / "c.csv", MATRIX, ["cat, wild", "dog"])
    assert (tmp_path / "c.csv").read_text() == 'label,"cat, wild",dog\n"cat, wild",3,1\ndog,0,2\n'


@pytest.mark.parametrize("classes", [2, 20, 70])
@pytest.mark.slow
def test_pictures(tmp_path: Path, classes: int) -> None:
    """With numbers and names, with names only, with neither; a $ in a name is no formula."""
    matrix = np.eye(classes, dtype=np.int64)
    matrix[0, 0] = 0  # a class without labels
    for name in ("c.png", "c.SVG"):
        write_confusion(tmp_path / name, matrix, [f"$name_{i}" for i in range(classes)])
    assert (tmp_path / "c.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (tmp_path / "c.SVG").read_text()


def test_other_kinds_of_file() -> None:
    for path in ("a.csv", "b.PNG", "c.svg"):
        check_confusion_path(path)
    with pytest.raises(UserError, match=r'"a\.gif": a confusion matrix is written as \.csv, \.png or \.svg'):
        check_confusion_path("a.gif")


def test_a_folder_that_is_missing_is_told_before_the_test(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r'c\.csv: cannot be written: there is no folder ".*/nowhere"'):
        check_confusion_path(f"{tmp_path}/nowhere/c.csv")


def test_letters_that_the_font_lacks_are_no_warning(tmp_path: Path) -> None:
    write_confusion(tmp_path / "c.png", MATRIX, ["猫", "犬"])
