"""The papers' numbers beside bpt's: the value files, where bpt's values are found, and the tables."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from scripts.benches.cgdp.results import ORIGINAL, fixed
from scripts.benches.papers import comparison, forecasts
from scripts.benches.papers.comparison import HEAD, PAPERS, Quantity, number, page, quantities, write_page
from scripts.benches.papers.found import COUNTED, FORECAST, GIVEN, MEASURED, Results
from scripts.benches.papers.sources import SOURCES


def test_every_quantity_names_a_source_and_its_place_in_the_paper() -> None:
    found = list(quantities())
    assert {each.paper for each in found} == set(PAPERS.values())
    for each in found:
        assert each.item and each.quantity and each.source.split(" ")[0] in SOURCES, each
    assert len({(each.paper, each.item, each.quantity) for each in found}) == len(found)


def quantity(source: str, printed: float = 2.0) -> Quantity:
    return Quantity("CGDP", "Table 1", "something", "ms", printed, source)


def test_a_bench_that_has_left_nothing(tmp_path: Path) -> None:
    row = dict(zip(HEAD, quantity("cgdp_phase TREE forward").row(Results(tmp_path)), strict=True))
    assert (row["value here"], row["ratio"], row["remark"]) == ("", "", comparison.MISSING)


def test_values_that_a_bench_has_measured(tmp_path: Path) -> None:
    place = tmp_path / "07_cgdp_quick"
    place.mkdir()
    (place / "summary.csv").write_text(  # by the names that the bench itself writes
        f"net,ranks,size,batch_per_rank,way,forward\nlenet,2,28,16,{ORIGINAL},0.003\nlenet,2,28,16,{fixed(1)},0.004\n"
    )
    results = Results(tmp_path)
    for way, milliseconds in (("TREE", 3), ("CGDP", 4)):
        row = dict(zip(HEAD, quantity(f"cgdp_phase {way} forward").row(results), strict=True))
        assert row["value here"] == pytest.approx(milliseconds) and row["ratio"] == pytest.approx(milliseconds / 2)
        assert row["kind"] == MEASURED and "lenet on 2 CPU ranks" in str(row["remark"])


@pytest.mark.parametrize(("exposed", "words"), [("0.012", "inverts the paper: 60% of an iteration"), ("0.0001", "")])
def test_an_exchange_that_is_not_hidden_is_told_with_its_share(exposed: str, words: str, tmp_path: Path) -> None:
    place = tmp_path / "07_cgdp_quick"
    place.mkdir()
    (place / "summary.csv").write_text(
        f"net,ranks,size,batch_per_rank,way,seconds,exposed\nlenet,2,28,16,{fixed(1)},0.02,{exposed}\n"
    )
    here = SOURCES["cgdp_phase"](Results(tmp_path), "CGDP", "exposed")
    assert here is not None and words in here.remark and ("inverts" in here.remark) == bool(words)


def test_no_accuracy_is_forecast_where_its_bench_has_not_run(tmp_path: Path) -> None:
    """StaticLB's bench wants root and cgroups: without it all but accuracies is forecast, and none is the paper's."""
    found = {each.source: each for each in quantities() if each.paper == "StaticLB"}
    for source, each in found.items():
        here = each.here(Results(tmp_path))
        assert (here is None) == source.startswith("staticlb_accuracy"), source
        assert here is None or here.kind == COUNTED or here.number != each.printed, source


def test_accuracies_that_the_bench_of_staticlb_has_measured(tmp_path: Path) -> None:
    place = tmp_path / "11_balance_quick"
    place.mkdir()
    (place / "accuracy.csv").write_text(
        "net,balance,epochs,repetitions,maximum,last\nstaticlb_cifar10,UNIFORM,5,1,0.5,0.25\n"
    )
    here = SOURCES["staticlb_accuracy"](Results(tmp_path), "staticlb_cifar10", "UNIFORM", "last")
    assert here is not None and (here.number, here.kind) == (25, MEASURED)


def test_the_exchange_of_orig_dp_is_measured_not_repeated(tmp_path: Path) -> None:
    """It is an input of the cost model, whose output would be the paper's own 43 ms."""
    assert SOURCES["cgdp_exposed"](Results(tmp_path), "TREE") is None
    place = tmp_path / "07_cgdp_quick"
    place.mkdir()
    (place / "summary.csv").write_text(f"net,ranks,size,batch_per_rank,way,exposed\nlenet,2,28,16,{ORIGINAL},0.005\n")
    here = SOURCES["cgdp_exposed"](Results(tmp_path), "TREE")
    assert here is not None and (here.number, here.kind) == (pytest.approx(5), MEASURED)


def test_minutes_that_the_paper_gives_are_not_told_as_found(tmp_path: Path) -> None:
    place = tmp_path / "06_resattnet_quick"
    place.mkdir()
    (place / "forecast.csv").write_text("depth,gpus,speedup\n18,1,1.0\n18,2,2.0\n")
    (place / "resattnet.csv").write_text("ranks,way,speedup,accuracy,epochs\n2,hybrid2x1,1.5,0.9,6\n")
    results = Results(tmp_path)
    one, two = (SOURCES["hybrid_minutes"](results, "18", gpus, "34") for gpus in "12")
    assert one is not None and two is not None
    assert (one.number, one.kind) == (34, GIVEN)
    assert two.number == 17 and "not found" not in two.remark
    accuracy = SOURCES["hybrid_accuracy"](results, "8")
    assert accuracy is not None and "2 ranks (hybrid2x1), 6 epochs" in accuracy.remark


def test_speed_ups_that_the_paper_gives_to_the_wrong_network() -> None:
    """Fig. 5's text has 3D-ResAttNet-34, but its numbers are the ratios of Table 3's minutes of 3D-ResAttNet-18."""
    hybrid = {each.quantity: each for each in quantities() if each.paper == "Hybrid"}
    for task in ("AD vs. NC", "sMCI vs. pMCI"):
        for gpus in range(2, 9):
            ratios = {
                net: hybrid[f"3D-ResAttNet-{net}, {task}, 1 GPU: training time"].printed
                / hybrid[f"3D-ResAttNet-{net}, {task}, {gpus} GPUs: training time"].printed
                for net in (18, 34)
            }
            speedup = hybrid[f"3D-ResAttNet-34, {task}, {gpus} GPUs: speed-up"]
            assert speedup.printed == pytest.approx(ratios[18], abs=0.006)
            assert speedup.remark.endswith(f"and {ratios[34]:.2f} for 3D-ResAttNet-34")


def test_images_in_the_memory_that_cgdp_frees(tmp_path: Path) -> None:
    """The two gradients that the root of a tree holds are nine images: 103 in the place of 94."""
    place = tmp_path / "07_cgdp_quick"
    place.mkdir()
    (place / "summary.csv").write_text(
        f"net,way,peak_bytes\nlenet,{ORIGINAL},{100 * 2**20}\nlenet,{fixed(2)},{104 * 2**20}\nlenet,{fixed(1)},\n"
    )
    ratio = SOURCES["cgdp_images"](Results(tmp_path), "ratio")
    assert ratio is not None and ratio.number == pytest.approx(103 / 94)
    assert "+4 MiB a rank with CGDP" in ratio.remark


def test_what_was_measured_along_the_axes_of_fig_13(tmp_path: Path) -> None:
    for name, text in {
        "03_figures/fig13a.csv": "nodes,AGWU+IDPA\n5,40\n35,10\n",
        "04_bptcnn_quick/axes.csv": "axis,value,way,seconds_to_level\nnodes,2,AGWU+IDPA,3\nnodes,1,AGWU+IDPA,5\n"
        "nodes,1,ASGD+UDPA,1\nthreads,1,AGWU+IDPA,7\n",
    }.items():
        path = tmp_path / name
        path.parent.mkdir()
        path.write_text(text)
    found = SOURCES["bptcnn_falls"](Results(tmp_path), "fig13a", "5", "35")
    assert found is not None and found.number == 1
    assert found.remark.endswith("; measured here, digits: 1 nodes 5.0 s, 2 nodes 3.0 s")


def test_an_order_that_is_not_the_papers_is_told_with_its_cause(tmp_path: Path) -> None:
    place = tmp_path / "04_bptcnn_quick"
    place.mkdir()
    for best, is_inverted in ((0.9, False), (0.5, True)):
        (place / "runs.csv").write_text(f"way,windows_accuracy\nAGWU+IDPA,{best}\nASGD+UDPA,0.75\none process,0.93\n")
        found = SOURCES["bptcnn_accuracy"](Results(tmp_path), "ratio")
        assert found is not None and found.number == pytest.approx(best / 0.75)
        assert ("too few passes" in found.remark) == is_inverted


@pytest.mark.parametrize(
    ("fdg", "is_least", "words"),
    [
        ("6.0", 1, "HYBRID on 2 5.0 s, FDG on 2 6.0 s"),
        ("4.0", 0, "1.25 times as long as FDG, which differs from it by"),
    ],
)
def test_whether_the_hybrid_takes_least_time(fdg: str, is_least: int, words: str, tmp_path: Path) -> None:
    """One process is no rival; where another one is faster, the remark says by how much, also against the placement."""
    place = tmp_path / "05_hybrid_rivals_quick"
    place.mkdir()
    (place / "rivals.csv").write_text(
        f"way,ranks,training_seconds\nONE,1,1.0\nFDG,2,{fdg}\nHYBRID,2,5.0\nHYBRID_ASGD,4,7.0\n"
    )
    found = SOURCES["hybrid_least"](Results(tmp_path))
    assert found is not None and found.number == is_least and words in found.remark


def test_forecasts_near_the_papers_numbers(tmp_path: Path) -> None:
    """AlexNet's costs are the paper's own, so its speed-up must come out."""
    results = Results(tmp_path)
    alexnet = SOURCES["cgdp_speedup"](results, "alexnet")
    assert alexnet is not None and alexnet.kind == FORECAST
    assert alexnet.number == pytest.approx(1.21, abs=0.02)
    resnet = SOURCES["cgdp_speedup"](results, "resnet152")
    assert resnet is not None and "inverts the paper" not in alexnet.remark
    assert "inverts the paper" in resnet.remark and "they give 1.284" in resnet.remark
    assert forecasts.cgdp_exposed() == pytest.approx(39e-6)  # Table 3, layer 1
    assert forecasts.balanced_speedup() == pytest.approx(2.5, abs=0.01)
    assert forecasts.slow_speed_for(2.5) == pytest.approx(forecasts.SLOW)
    counted = SOURCES["staticlb_parameters"](results, "staticlb_mnist")
    assert counted is not None and (counted.number, counted.kind) == (21840, COUNTED)


def test_numbers() -> None:
    assert [number(each) for each in (1234.5, 1.23456, 0.00218, 0.0, math.inf, "")] == [
        "1,234", "1.235", "0.0022", "0", "never", "",
    ]  # fmt: skip


def test_the_page_between_its_markers(tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    path.write_text(f"before\n{comparison.BEGIN}\nold\n{comparison.END}\nafter\n")
    rows = [("CGDP", "Table 2", "forward", "ms", 50.6, 25.3, 0.5, MEASURED, "here")]
    for _ in range(2):
        write_page(rows, path)
    text = path.read_text()
    assert text.startswith("before\n") and text.endswith("after\n") and "old" not in text
    assert text.count("| Table 2 | forward | 50.6 ms | 25.3 | 0.5 | measured | here |") == 1
    assert next(iter(page(rows))) == "### CGDP"
    assert comparison.BEGIN in comparison.PAGE.read_text() and comparison.END in comparison.PAGE.read_text()
