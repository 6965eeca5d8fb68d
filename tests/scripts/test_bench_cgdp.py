"""What ``scripts/bench cgdp`` does around its measurements: networks, ways to train, their order, jobs, arguments."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from bpt.config.plan.resolve import resolve
from bpt.graph.layer_graph import LayerGraph
from bpt.graph.layer_spec import count
from bpt.nn.net_graph import build_graph_of
from bpt.train.runtime.autotuner import WARM_UP
from scripts.benches.cgdp import bench as cgdp
from scripts.benches.cgdp import figures
from scripts.benches.cgdp import scaling as scaling_file
from scripts.benches.cgdp.bench import ALONE_WAY, EXCHANGES, FIXED, SEARCHING, Comparison, fixed_ways
from scripts.benches.cgdp.gpu import gpu_numbers
from scripts.benches.cgdp.jobs import Done, Turn, Way, Work, run_job
from scripts.benches.cgdp.nets import PAPER, SMALL, TINY, solver_source, trained
from scripts.benches.cgdp.results import MODEL, SEARCH, Outcome
from scripts.benches.cgdp.scaling import Scaling, scaling_rows, scaling_table
from scripts.benches.harness.launch import JobError, call, reason
from scripts.benches.harness.nets import KINDS, Images
from tests.support.bench_arguments import parse
from tests.support.mpirun import needs_mpi
from tests.support.paths import ROOT


def test_arguments() -> None:
    given = parse(cgdp)
    assert given.nets == ["alexnet", "googlenet", "vgg16", "resnet152"]
    assert given.sizes == ["1", "2", "5", "10", "20", "50", "search", "model"]
    assert (given.ranks, given.rounds, given.iterations) == (2, 4, 10)
    assert given.out == ROOT / "bench" / "cgdp"
    assert given.scaling == [1, 2, 4]
    assert parse(cgdp, "--scaling", "").scaling == []
    assert parse(cgdp, "--output", "here").out == parse(cgdp, "--out", "here").out == Path("here")
    quick = parse(cgdp, "--quick")
    cgdp.made_quick(quick)
    assert (quick.nets, quick.sizes, quick.scaling[:2]) == (["lenet"], ["1", "2", "search"], [1, 2])
    search_alone = parse(cgdp, "--quick", "--sizes", "search", "--scaling", "", "--learn", "0")  # Fig. 8
    cgdp.made_quick(search_alone)
    assert (search_alone.sizes, search_alone.scaling, search_alone.learn) == (["search"], [], 0)
    assert parse(cgdp, "--nets", "lenet,vgg16", "--sizes", "7,7,model").nets == ["lenet", "vgg16"]
    assert parse(cgdp, "--sizes", "7,7,model").sizes == ["7", "model"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--nets", "lenet,nope"), 'argument --nets: no network "nope" here; there are lenet, alexnet'),
        (("--nets", ""), "argument --nets: name a network"),
        (("--sizes", "1,0"), 'argument --sizes: takes chunk sizes of at least 1, search and model, found "0"'),
        (("--sizes", "some"), 'found "some"'),
        (("--ranks", "1"), 'argument --ranks: takes a whole number of at least 2, found "1"'),
        (("--rounds", "-3"), 'at least 1, found "-3"'),
        (("--iterations", "many"), 'at least 1, found "many"'),
    ],
)
def test_wrong_arguments(words: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit:
        parse(cgdp, *words)
    assert exit.value.code == 2
    assert message in capsys.readouterr().err


def graph_of(name: str, size: int, drawn: bool = False) -> LayerGraph:
    return build_graph_of(resolve(solver_source(name, size, 4, drawn)).train)


@pytest.mark.parametrize(("name", "parameters"), [("alexnet", 60_965_224), ("googlenet", 13_378_280)])
def test_full_size_networks_are_whole(name: str, parameters: int) -> None:
    """The numbers of docs/networks.md; average poolings are as they were."""
    graph = graph_of(name, KINDS[name].size)
    assert sum(count(p.shape) for p in graph.learnable) == parameters
    assert graph.edges[0].shape == (4, 3, PAPER[name].size, PAPER[name].size)


@pytest.mark.parametrize("images", [SMALL, TINY], ids=["small", "tiny"])
def test_small_images_fit(images: dict[str, Images]) -> None:
    """All layers with parameters stay: 8 and 16 of AlexNet and VGG-16; of GoogLeNet 57 convolutions and 7 more."""
    layers = {name: trained(name, images[name].size) for name in ("lenet", "alexnet", "googlenet", "vgg16")}
    assert layers == {"lenet": 4, "alexnet": 8, "googlenet": 64, "vgg16": 16}


def test_generated_images() -> None:
    fed, drawn = graph_of("lenet", 28), graph_of("lenet", 28, drawn=True)
    assert [graph.nodes[0].type for graph in (fed, drawn)] == ["Input", "DummyData"]
    for graph in (fed, drawn):
        assert [graph.edges[top].shape for top in graph.nodes[0].tops] == [(4, 1, 28, 28), (4,)]
        assert [node.type for node in graph.nodes[1:]] == [node.type for node in fed.nodes[1:]]
        assert not [node for node in graph.nodes if node.type in ("Data", "Accuracy")]


def test_sizes_with_the_same_chunks_are_one() -> None:
    """Of 8 layers: size 8 gives single layers, as 1 does; all above give one chunk."""
    assert fixed_ways(8, ["50", "8", "1", "search", "5", "10"]) == [
        Way("CGDP 1", FIXED, lengths=(1,) * 8),
        Way("CGDP 5", FIXED, lengths=(5, 1, 1, 1)),
        Way("CGDP 10", FIXED, lengths=(8,)),
    ]


def test_orders_and_answers_go_through_files(tmp_path: Path) -> None:
    work = Work("lenet", 28, 4, 2, (Way("a", apart=True), Way("b", FIXED, lengths=(2, 1))), trace="t")
    assert Work.of(json.loads(json.dumps(asdict(work)))) == work
    turn = {"seconds": [0.5, 0.25], "ranks": [{"exchange": 0.125}]}
    written = {
        "turns": {"b": [turn]}, "lengths": {"b": [2, 1]}, "settling": {"b": [1.0]}, "trials": {"b": [[[3], 2.0]]},
        "peak": [7, 8], "engine": "CONTIGUOUS",
    }  # fmt: skip
    assert Done.of(json.loads(json.dumps(written))) == Done(
        {"b": (Turn((0.5, 0.25), ({"exchange": 0.125},)),)}, {"b": (2, 1)}, {"b": (1.0,)}, {"b": (((3,), 2.0),)},
        (7, 8), "CONTIGUOUS",
    )  # fmt: skip


def test_why_a_job_has_failed() -> None:
    assert reason("noise\nerror: rank 1 (host a): out of memory; less\n-----\nprterun detected\n") == (
        "rank 1 (host a): out of memory; less"
    )
    assert reason('Traceback\n  File "x"\nKeyError: 3\n\n') == "KeyError: 3"
    assert reason("") == ""
    assert JobError("conv1: out of memory; a smaller batch_size needs less").is_memory
    with pytest.raises(JobError, match=r"^no more$"):
        call([sys.executable, "-c", "import sys; print('yes'); sys.exit('no more')"])
    with pytest.raises(JobError, match=r"^exit status 3$"):
        call([sys.executable, "-c", "raise SystemExit(3)"])
    with pytest.raises(JobError, match="No such file"):
        call(["/nowhere/at/all"])
    assert call([sys.executable, "-c", "import os; print(os.environ['OMP_NUM_THREADS'])"], threads=3) == "3\n"


PHASES = {"broadcast": 0.0, "forward": 0.1, "backward": 0.2, "exchange": 0.1, "update": 0.1}


class Jobs:
    """Answers jobs without doing them: every iteration of the n-th takes n seconds."""

    def __init__(self, *failing: str) -> None:
        self.done: list[Work] = []
        self._failing = failing

    def __call__(self, work: Work) -> Done:
        self.done.append(work)
        names = [way.name for way in work.ways]
        if len(names) == 1 and names[0] in self._failing:
            raise JobError("broken")
        turn = Turn((float(len(self.done)),) * work.iterations, (PHASES,) * work.ranks)
        chosen = {SEARCH: (2, 2), MODEL: (3, 1)}
        lengths = {way.name: way.lengths or chosen.get(way.name, ()) for way in work.ways}
        searched = {name: (9.0,) * 20 for name in names if name in chosen}
        trials = dict.fromkeys(searched, (((2, 2), 9.0),))
        turns = dict.fromkeys(names, (turn,) * work.turns)
        return Done(turns, lengths, searched, trials, (100 * len(self.done), 7), "CHANNELS_LAST")


def test_a_comparison(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cgdp, "trained", lambda name, size: 4)
    jobs = Jobs()
    notes: list[Any] = []
    comparison = Comparison(Work("lenet", 28, 4, 2), ["1", "2", "search", "model"], jobs, notes.append)
    comparison.prepare()
    assert [(work.ranks, [way.name for way in work.ways]) for work in jobs.done] == [
        (1, ["one process"]), (2, ["OrigDP"]), (2, ["ALLREDUCE"]), (2, ["CGDP 1"]), (2, [SEARCH]), (2, [MODEL]),
    ]  # fmt: skip
    assert [work.engine for work in jobs.done] == ["AUTO"] + ["CHANNELS_LAST"] * 5
    jobs.done.clear()
    for number in range(2):
        comparison.round(number)
    # By the paper's rule size 2 cuts 4 layers into 2, 1, 1; so all four cuts differ.
    together = ["no exchange", "OrigDP", "ALLREDUCE", "CGDP 1", "CGDP 2", SEARCH, MODEL]
    assert [(work.ranks, work.turns, [way.name for way in work.ways]) for work in jobs.done] == [
        (1, 2, ["one process"]), (2, 2, together), (2, 2, together[::-1]), (1, 2, ["one process"]),
    ]  # fmt: skip
    outcomes = comparison.outcomes
    assert list(outcomes) == ["one process", *together]
    assert [len(outcome.turns) for outcome in outcomes.values()] == [4] * 8
    assert [outcome.turns[0].seconds[0] for outcome in outcomes.values()] == [1.0] + [2.0] * 7
    assert [outcome.peak for outcome in outcomes.values()] == [400, 0, 200, 300, 400, 0, 500, 600]
    assert outcomes[MODEL].lengths == (3, 1)
    assert outcomes[MODEL].search
    search = outcomes[MODEL].search
    assert search is not None
    assert (search.settling, search.after) == ((9.0,) * 20, (6.0,) * 50)
    assert not comparison.failed


def test_a_choice_that_is_a_fixed_size_is_trained_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cgdp, "trained", lambda name, size: 4)
    monkeypatch.setattr(cgdp, "chunks", lambda layers, size: (2, 2))
    jobs = Jobs()
    comparison = Comparison(Work("lenet", 28, 4, 2), ["2", "search"], jobs, lambda line: None)
    comparison.prepare()
    comparison.round(0)
    assert [way.name for way in jobs.done[-1].ways] == ["no exchange", "OrigDP", "ALLREDUCE", "CGDP 2"]
    assert comparison.outcomes[SEARCH].turns == comparison.outcomes["CGDP 2"].turns


def test_what_fails_is_told_and_the_rest_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cgdp, "trained", lambda name, size: 4)
    notes: list[str] = []
    comparison = Comparison(Work("lenet", 28, 4, 2), ["1", "search"], Jobs(SEARCH), notes.append)
    comparison.prepare()
    comparison.round(0)
    assert comparison.failed == {SEARCH: "broken"}
    assert f"lenet: {SEARCH}: FAILED: broken" in notes
    assert list(comparison.outcomes) == ["one process", "no exchange", "OrigDP", "ALLREDUCE", "CGDP 1"]
    with pytest.raises(JobError):
        Comparison(Work("lenet", 28, 4, 2), [], Jobs("one process"), notes.append).prepare()


def test_scaling_takes_over_what_is_known() -> None:
    """Two ranks are known; one and four are measured, in turn in each round and then apart for their memory."""
    jobs, ways = Jobs("ALLREDUCE"), [Way("OrigDP", "t"), Way("ALLREDUCE", "a")]
    scaling = Scaling(Work("lenet", 28, 4, 2), ALONE_WAY, ways, jobs, ["0", "3", "5", "7"], lambda line: None)
    known = {2: {"OrigDP": Outcome((Turn((1.0,), (PHASES,)),), (), 5)}}
    scaled = scaling.measure([1, 2, 4], 2, known)
    assert list(scaled) == [1, 2, 4]
    assert scaled[2] == known[2]
    assert [(work.ranks, work.gpu, [way.name for way in work.ways]) for work in jobs.done] == [
        *[(1, "0", ["one process"])] * 3,
        (4, "0,3,5,7", ["OrigDP", "ALLREDUCE"]),
        (4, "0,3,5,7", ["ALLREDUCE", "OrigDP"]),
        (4, "0,3,5,7", ["OrigDP"]),
        (4, "0,3,5,7", ["ALLREDUCE"]),
    ]
    assert [outcome.peak for outcome in scaled[4].values()] == [600, 0]
    assert scaling.failed == {"4 ranks, memory of ALLREDUCE": "broken"}


def test_scaling_in_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scaling_file, "cores_left", lambda ranks: 3 - ranks)

    def outcome(seconds: float, peak: int = 2**20) -> Outcome:
        return Outcome((Turn((seconds, seconds), (PHASES,)),), (), peak)

    scaled = {1: {"one process": outcome(1)}, 4: {"OrigDP": outcome(2), "CGDP 2": outcome(1.25, 0)}}
    assert list(scaling_rows("n", 8, scaled)) == [
        ("n", 1, 2, 8, "one process", 1, 0, 8, 1, "", 2**20),
        ("n", 4, -1, 8, "OrigDP", 2, 0, 16, 0.5, 1, 2**20),
        ("n", 4, -1, 8, "CGDP 2", 1.25, 0, 25.6, 0.8, 1.6, ""),
    ]
    assert list(scaling_table(scaled)) == [
        "ranks  cores left  way               ms     ±  x OrigDP  efficiency  MiB",
        "1      2           one process  1000.00  0.00                100.0%    1",
        "4      -1          OrigDP       2000.00  0.00      1.00       50.0%    1",
        "4      -1          CGDP 2       1250.00  0.00      1.60       80.0%",
        "cores left: below 1, the exchange of CGDP takes cores that compute; below 0, ranks share cores.",
    ]
    figures.draw_scaling(tmp_path / "f.png", "n", scaled)
    assert (tmp_path / "f.png").stat().st_size


def test_learning_in_a_figure(tmp_path: Path) -> None:
    figures.draw_learning(tmp_path / "f.png", "LeNet", {"OrigDP": [(0, 0.0, 0.1), (9, 1.0, 0.9)], SEARCH: [(0, 0, 0)]})
    assert (tmp_path / "f.png").stat().st_size


def test_gpus_have_a_rank_each() -> None:
    assert gpu_numbers(4) == ([1, 2, 4], ["0", "1", "2", "3"])
    assert gpu_numbers(3)[0] == [1, 2]


@needs_mpi
@pytest.mark.slow
def test_a_job_of_all_ways(tmp_path: Path) -> None:
    """What the ranks see is what was asked for: turns, chunks, a search to its end."""
    cut = Way("cut", FIXED, lengths=(3, 1))
    work = Work("lenet", 28, 4, 2, (*EXCHANGES, cut, replace(cut, name="whole", lengths=(4,))), 2, 3, 1, "CONTIGUOUS")
    done = run_job(work, tmp_path)
    assert list(done.turns) == ["no exchange", "OrigDP", "ALLREDUCE", "cut", "whole"]
    for turns in done.turns.values():
        assert [(len(turn.seconds), len(turn.ranks)) for turn in turns] == [(3, 2)] * 2
        assert all(seconds > 0 for turn in turns for seconds in turn.seconds)
    assert done.lengths == {"cut": (3, 1), "whole": (4,)}
    assert (len(done.peak), done.engine, done.settling) == (2, "CONTIGUOUS", {})
    assert all(turn.ranks[0]["broadcast"] > 0 for turn in done.turns["OrigDP"])
    assert not any(turn.ranks[0]["broadcast"] for turn in done.turns["cut"])

    searching = Way(SEARCH, cgdp.cgdp("chunk_size: 0 interval: 2"))
    done = run_job(replace(work, ways=(searching,), turns=1), tmp_path)
    tried = [lengths for lengths, _ in done.trials[SEARCH]]
    assert tried[0] == (1, 1, 1, 1)
    assert done.lengths[SEARCH] in tried
    assert len(done.settling[SEARCH]) == WARM_UP + 2 * len(tried)

    alone = run_job(replace(work, ranks=1, ways=(ALONE_WAY,), engine="AUTO"), tmp_path)
    assert alone.engine in ("CONTIGUOUS", "CHANNELS_LAST")
    assert len(alone.turns["one process"]) == 2


@needs_mpi
@pytest.mark.slow
def test_smoke(tmp_path: Path) -> None:
    words = [
        "--nets",
        "lenet",
        "--sizes",
        "1,2,10,50,search",
        "--rounds",
        "1",
        "--iterations",
        "2",
        "--scaling",
        "1,2",
        "--learn",
        "2",
    ]
    bench = [sys.executable, str(ROOT / "scripts" / "bench"), "cgdp", *words, "--out", str(tmp_path / "new")]
    printed = call(bench)
    assert "lenet: 2 ranks, each 16 images of 28x28" in printed
    for way in ("one process", "no exchange", "OrigDP", "ALLREDUCE", "CGDP 1", "CGDP 2", "CGDP 10", "CGDP search"):
        assert any(line.startswith(f"  {way} ") for line in printed.splitlines()), way
    assert "CGDP 50" not in printed
    assert "  CGDP search: chose chunks " in printed
    assert "FAILED" not in printed
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == [
        "accuracy.csv", "iterations.csv", "lenet_accuracy.png", "lenet_scaling.png", "lenet_search.png",
        "lenet_sizes.png", "scaling.csv", "summary.csv", "trials.csv",
    ]  # fmt: skip


def test_all_searching_ways_are_there() -> None:
    """What --sizes knows, jobs know."""
    assert set(cgdp.CHOSEN.values()) == set(SEARCHING)
