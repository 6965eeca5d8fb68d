"""``scripts/bench gpu`` without a GPU: it reads made-up traces, and what fails does not stop the rest."""

from __future__ import annotations

import gzip
import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from scripts.benches.cgdp import gpu
from scripts.benches.cgdp.gpu import Parts, Seen, copy_rows, overlap_table
from scripts.benches.cgdp.gpu_trace import Copies, Event, copies_of, covered, merged, name_threads, read_events
from scripts.benches.cgdp.jobs import Done, Turn, Work
from scripts.benches.cgdp.largest_batch import fitting, largest
from scripts.benches.harness.launch import JobError, call
from tests.support.bench_arguments import parse
from tests.support.mpirun import needs_mpi
from tests.support.paths import ROOT


def test_spans() -> None:
    union = merged([(5, 6), (1, 3), (2, 4), (6, 7), (9, 10)])
    assert union == [(1, 4), (5, 7), (9, 10)]
    assert covered((0, 20), union) == 6
    assert covered((2, 6), union) == 3  # 2 to 4, and 5 to 6
    assert covered((4, 5), union) == 0
    assert covered((9.5, 9.75), union) == 0.25
    assert covered((11, 12), union) == 0
    assert covered((1, 2), []) == 0


def kernel(stream: int, start: float, end: float) -> Event:
    return {"ph": "X", "cat": "kernel", "name": "gemm", "ts": start, "dur": end - start, "args": {"stream": stream}}


def copy(direction: str, stream: int, start: float, end: float) -> Event:
    name = f"Memcpy {direction}"
    return {"ph": "X", "cat": "gpu_memcpy", "name": name, "ts": start, "dur": end - start, "args": {"stream": stream}}


def test_a_trace_of_a_gpu() -> None:
    """Microseconds; the computing stream, 7, works from 0 to 100 and from 120 to 200."""
    events = [
        {"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "python"}},
        {"ph": "X", "cat": "cpu_op", "name": "aten::copy_", "pid": 1, "tid": 1, "ts": 0, "dur": 999},
        kernel(7, 0, 60),
        kernel(7, 60, 100),
        kernel(7, 120, 200),
        kernel(13, 100, 140),  # another stream hides nothing
        copy("DtoH (Device -> Pinned)", 13, 50, 90),  # hidden
        copy("DtoH (Device -> Pinned)", 13, 90, 130),  # 20 of 40: a gap lies in it
        copy("DtoH (Device -> Pageable)", 7, 100, 110),  # on the computing stream itself
        copy("HtoD (Pinned -> Device)", 17, 195, 205),  # half
        copy("DtoD (Device -> Device)", 7, 100, 120),
    ]
    seen = copies_of(events)
    assert seen["D2H"].count == 3
    assert (seen["D2H"].seconds, seen["D2H"].hidden) == pytest.approx((90e-6, 60e-6))
    assert (seen["H2D"].seconds, seen["H2D"].hidden) == pytest.approx((10e-6, 5e-6))
    both = seen["D2H"] + seen["H2D"]
    assert (both.count, both.share) == (4, pytest.approx(0.65))


def on_thread(tid: int, start: float, end: float) -> Event:
    return {"ph": "X", "cat": "cpu_op", "name": "aten::copy_", "pid": 1, "tid": tid, "ts": start, "dur": end - start}


THREADS = [
    {"ph": "M", "name": "thread_name", "pid": 1, "tid": tid, "args": {"name": f"thread {tid} (python)"}}
    for tid in (1, 2, 3, 4)
]
ON_CPU = [
    *THREADS,
    on_thread(1, 0, 100),  # the main thread computes
    on_thread(1, 10, 20),  # inside of the call before
    on_thread(2, 80, 120),  # half
    on_thread(2, 85, 90),  # inside of the call before
    on_thread(3, 0, 100),  # sums
    on_thread(4, 90, 100),
]


def test_a_trace_of_a_cpu(tmp_path: Path) -> None:
    """Threads get the names that they have in Python; those for D2H and H2D are the ones that copy."""
    path = tmp_path / "trace.json.gz"
    with gzip.open(path, "wt") as file:
        json.dump({"traceEvents": ON_CPU, "schemaVersion": 1}, file)
    assert copies_of(read_events(path)) == {"D2H": Copies(), "H2D": Copies()}
    name_threads(path, {1: "MainThread", 2: "D2H of MainThread", 3: "host of MainThread", 4: "H2D of MainThread"})
    seen = copies_of(read_events(path))
    assert (seen["D2H"].seconds, seen["D2H"].hidden) == pytest.approx((40e-6, 20e-6))
    assert (seen["H2D"].seconds, seen["H2D"].hidden) == pytest.approx((10e-6, 10e-6))
    assert seen["D2H"].count == seen["H2D"].count == 1


def test_overlap_table() -> None:
    seen = Seen(
        Work("lenet", 28, 2, 2),
        {},
        {
            "OrigDP": {"D2H": Copies(), "H2D": Copies()},
            "CGDP 1": {"D2H": Copies(12, 0.006, 0.0045), "H2D": Copies(6, 0.003, 0.003)},
        },
    )  # of 3 iterations
    assert list(overlap_table(seen)) == [
        "way     D2H copies  D2H ms  D2H hidden  H2D copies  H2D ms  H2D hidden  all copies  all ms  all hidden",
        "OrigDP           0    0.00           -           0    0.00           -           0    0.00           -",
        "CGDP 1           4    2.00       75.0%           2    1.00      100.0%           6    3.00       83.3%",
    ]
    *names, count, seconds, hidden, share = list(copy_rows(seen))[2]
    assert names == ["lenet", "CGDP 1", "D2H"]
    assert (count, seconds, hidden, share) == pytest.approx((4, 0.002, 0.0015, 0.75))


TURN = Turn((1.0,), ())
DONE = Done({"way": (TURN,)}, {}, {}, {}, (0,), "CONTIGUOUS")


def test_the_largest_batch_that_fits(capsys: pytest.CaptureFixture[str]) -> None:
    tried = []

    def run(work: Work) -> Done:
        tried.append(work.batch)
        if work.batch > 3:
            raise JobError("conv1: out of memory; a smaller batch_size needs less")
        return DONE

    work, done = fitting(Work("vgg16", 224, 12, 2), run)
    assert (tried, work.batch, done) == ([12, 6, 3, 4], 3, DONE)
    assert "vgg16: 2 ranks of 12 images do not fit" in capsys.readouterr().out

    def broken(work: Work) -> Done:
        raise JobError("error: out of memory" if work.batch < 2 else "out of memory")

    with pytest.raises(JobError):  # not even one image
        fitting(Work("vgg16", 224, 2, 2), broken)

    def wrong(work: Work) -> Done:
        raise JobError("no such layer")

    with pytest.raises(JobError, match="no such layer"):
        fitting(Work("vgg16", 224, 2, 2), wrong)


@pytest.mark.parametrize("most", [94, 103, 7])
def test_the_largest_batch_by_steps_of_one(most: int) -> None:
    """From the paper's 32 images of VGG-16 to 94 and 103, or down to fewer, as the memory has it."""

    def run(work: Work) -> Done:
        if work.batch > most:
            raise JobError("out of memory")
        return DONE

    work, _ = largest(Work("vgg16", 224, 32, 2), run, 256)
    assert work.batch == most
    assert largest(Work("vgg16", 224, 32, 2), run, 50)[0].batch == min(most, 50)


def test_a_part_that_fails_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    def broken() -> None:
        raise JobError("no GPU left")

    parts = Parts()
    done = []
    parts.attempt("first", broken)
    parts.attempt("second", lambda: done.append(2))
    assert done == [2]
    assert parts.failed == {"first": "no GPU left"}
    assert capsys.readouterr().out == "first: FAILED: no GPU left\n"


def test_arguments(capsys: pytest.CaptureFixture[str]) -> None:
    given = parse(gpu)
    assert (given.nets, given.dry_run, given.gpu) == (["alexnet", "googlenet", "vgg16", "resnet152"], False, "0")
    assert given.out == ROOT / "bench" / "gpu"
    with pytest.raises(SystemExit):
        parse(gpu, "--nets", "resnet1001")
    assert 'no network "resnet1001" here' in capsys.readouterr().err


def test_without_a_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SystemExit, match="no usable CUDA device; --dry-run does the same on the CPU"):
        gpu.run(parse(gpu, "--out", str(tmp_path / "new")))
    assert not (tmp_path / "new").exists()


def test_a_trace_without_kernels_is_no_proof(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU nothing may pass for "nothing to hide"; the times stay."""
    monkeypatch.setattr(gpu, "run_job", lambda work, folder: replace(DONE, turns={"OrigDP": (TURN,)}))
    monkeypatch.setattr(gpu, "read_events", lambda path: ON_CPU)
    seen = Seen(Work("lenet", 28, 2, 2, gpu="0"), {}, {})
    with pytest.raises(JobError, match=r"^lenet_OrigDP.trace.json.gz has no kernels"):
        gpu.measure_way(seen, gpu.WAYS[1], tmp_path, tmp_path)
    assert list(seen.outcomes) == ["OrigDP"]
    assert not seen.copies


def test_parts_are_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Jobs of one network fail, but not its check, nor anything of the other; the exit status tells it."""

    def run_job(work: Work, folder: Path) -> Done:
        if work.net == "lenet":
            raise JobError("broken")
        if work.trace:
            Path(work.trace).write_bytes(gzip.compress(json.dumps({"traceEvents": ON_CPU}).encode()))
        phases = {"broadcast": 0.0, "forward": 0.1, "backward": 0.2, "exchange": 0.1, "update": 0.1}
        name = work.ways[0].name
        return Done({name: (Turn((1.0, 1.0), (phases, phases)),)}, {}, {}, {}, (1, 1), "CONTIGUOUS")

    checked = []

    def call(words: list[str], ranks: int) -> str:
        checked.append((ranks, words[words.index("--iterations") + 1], "--gpu" in words))
        return "parameter\nconv1/0 ok\nconv1/1 ok\n"

    monkeypatch.setattr(gpu, "run_job", run_job)
    monkeypatch.setattr(gpu, "call", call)
    with pytest.raises(SystemExit, match=r"^FAILED: lenet: times, lenet: scaling$"):
        gpu.run(parse(gpu, "--nets", "lenet,alexnet", "--dry-run", "--out", str(tmp_path)))
    assert checked == [(2, "2", False)] * 2
    printed = capsys.readouterr().out
    assert "lenet: times: FAILED: broken" in printed
    assert "alexnet: 2 ranks on the CPU, each 2 images of 67x67" in printed
    assert printed.count("check: 2 parameters are equal after 2 iterations") == 2
    assert "This was a dry run: tiny images on the CPU." in printed
    lines = (tmp_path / "summary.csv").read_text().splitlines()
    assert [line.split(",")[5] for line in lines[1:]] == [way.name for way in gpu.WAYS]
    lines = (tmp_path / "scaling.csv").read_text().splitlines()
    assert [line.split(",")[:2] for line in lines[1:]] == [["alexnet", "1"], ["alexnet", "2"]]
    assert len((tmp_path / "copies.csv").read_text().splitlines()) == 1 + 2 * 4


@needs_mpi
@pytest.mark.slow
def test_dry_run(tmp_path: Path) -> None:
    bench = [sys.executable, str(ROOT / "scripts" / "bench"), "gpu", "--dry-run", "--nets", "lenet"]
    printed = call([*bench, "--out", str(tmp_path)])
    assert "FAILED" not in printed
    assert "check: 8 parameters are equal after 2 iterations" in printed
    seen = copies_of(read_events(tmp_path / "lenet_CGDP_1.trace.json.gz"))
    assert seen["D2H"].count  # on the CPUs of one host its thread does the rest, too
    assert all(0 <= copies.hidden <= copies.seconds for copies in seen.values())
    assert (tmp_path / "lenet_OrigDP.trace.json.gz").exists()
