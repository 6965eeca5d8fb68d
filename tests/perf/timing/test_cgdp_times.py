"""The tables of CGDP's cost model, line by line from made-up costs; and that ``bpt time`` shows them."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import pytest

from bpt.parallel.cgdp.calibration import IterationKind
from bpt.parallel.cgdp.cost_model import TrainedLayerCost
from bpt.parallel.cgdp.layer_costs import CalibrationResult, ChunkMeasurement
from bpt.perf.timing.cgdp_times import cuts, layer_table, phase_table, summary, total_table
from bpt.perf.timing.phases import time_ranks
from bpt.system.device import CPU
from tests.support.doubles.thread_ranks import run_ranks
from tests.support.small_solver import SOLVER, small_solver

# 7 ms of backward; 3, 2 and 1 ms of exchange, of which half holds up what follows; 0.25 ms a chunk.
MEASURED = CalibrationResult(
    (
        TrainedLayerCost("ip", 30, bp=0.001, d2h=0.001, accumulate=0.0005, bc=0.0015),
        TrainedLayerCost("conv2", 20, bp=0.002, d2h=0.001, accumulate=0.00025, bc=0.00075),
        TrainedLayerCost("conv1", 10, bp=0.004, d2h=0.0005, accumulate=0.00025, bc=0.00025),
    ),
    per_chunk=0.00025,
    blocking_share=0.5,
    seen={
        IterationKind((2, 1)): ChunkMeasurement(total=0.0125, waited=0.0015),
        IterationKind((1, 1, 1)): ChunkMeasurement(total=0.01, waited=0.001),
        IterationKind((3,)): ChunkMeasurement(total=0.0145, waited=0.006),
    },
)
CUTS = {"in use": (2, 1), "size 1": (1, 1, 1), "all layers": (3,)}


def test_a_line_a_layer() -> None:
    """First chunk: back after 3 + 0.25 + 5 ms; t_as 0.25 + 5 / 2 ms. Second: back after 7 + 2.75 + 0.25 + 1 ms."""
    assert list(layer_table(MEASURED, (2, 1))) == [
        "layer  parameters   t_bp    D2H  accumulate  H2D (t_bc)   t_as  T_BP^i",
        "ip             30  1.000  1.000       0.500       1.500",
        "conv2          20  2.000  1.000       0.250       0.750  2.750   8.250",
        "conv1          10  4.000  0.500       0.250       0.250  0.250  11.000",
        "sum            60  7.000  2.500       1.000       2.500  3.000  11.000",
        "t_aa: D2H and accumulate. t_as, predicted: delay of the backward pass of lower layers by a chunk's exchange.",
        "T_BP^i, predicted: from the start of backward until a chunk's gradients are back (Eq. 1); its maximum is T.",
    ]


def test_a_line_a_layer_on_several_hosts() -> None:
    layers = tuple(replace(layer, reduce=0.002) for layer in MEASURED.layers)
    table = list(layer_table(replace(MEASURED, layers=layers, blocking_share=0.0), (3,)))
    assert table[0] == "layer  parameters   t_bp    D2H  accumulate  between hosts  H2D (t_bc)   t_as  T_BP^i"
    assert table[4] == "sum            60  7.000  2.500       1.000          6.000       2.500  0.250  19.250"


def test_a_line_for_each_cut() -> None:
    """T by hand: 7 ms, 0.25 a chunk, half of the exchange that something follows, all of the last. T' = 7 + 6 ms."""
    assert list(total_table(MEASURED, CUTS)) == [
        "chunks                     T predicted  T measured  ratio  T_O predicted  Eq. 2  T_O measured",
        "in use            1x2 1x1       11.000      12.500  0.880          4.000  4.000         5.500",
        "size 1            3x1           11.250      10.000  1.125          4.250  4.250         3.000",
        "all layers        1x3           13.250      14.500  0.914          6.250  6.250         7.500",
        "OrigDP: T', T'_O                13.000                             6.000",
        "ratio: predicted / measured. OrigDP: all exchange after backward; predicted from the same times.",
        "T_O: by Eq. 1, T less backward alone; by Eq. 2, t_as, and the exchange of the last chunk.",
    ]


def test_original_as_measured() -> None:
    """12.5 ms, of which 7 are backward."""
    line = list(total_table(MEASURED, CUTS, 0.0125))[4]
    assert line == "OrigDP: T', T'_O                13.000      12.500  1.040          6.000                5.500"


def test_eq_2_leaves_out_what_is_not_hidden_above_the_last_chunk() -> None:
    """7 ms of backward, nothing holds it up. The top layer takes 9 ms to come back, the last 1: Eq. 2 has 1 ms."""
    top = replace(MEASURED.layers[0], d2h=0.007)
    slow = replace(MEASURED, layers=(top, *MEASURED.layers[1:]), blocking_share=0.0, per_chunk=0.0)
    row = list(total_table(slow, {"size 1": (1, 1, 1)}))[1].split()
    assert row[3:] == ["10.000", "10.000", "1.000", "3.000", "1.000", "3.000"]  # T: 1 ms of backward, and 9


def test_phases_of_both() -> None:
    """Table 2, of the paper's own numbers."""
    original = {"broadcast": 0.02, "forward": 0.0506, "backward": 0.104, "pipeline": 0.0, "exchange": 0.023,
                "update": 0.0051}  # fmt: skip
    cgdp = {"broadcast": 0.0, "forward": 0.051, "backward": 0.111, "pipeline": 0.0, "exchange": 0.0000218,
            "update": 0.0051}  # fmt: skip
    assert list(phase_table(cgdp, original)) == [
        "        broadcast  forward  backward  grad-acc  update-param  total time",
        "OrigDP     20.000   50.600   104.000    23.000         5.100     202.700",
        "CGDP          N/A   51.000   111.000     0.022         5.100     167.122",
        "grad-acc of CGDP: the part that backward does not hide, until all gradients are back from the CPUs.",
    ]


def test_many_chunks_are_shown_in_part() -> None:
    lengths = (1, 2) * 10
    layers = tuple(replace(MEASURED.layers[0], name=str(number)) for number in range(30))
    many = replace(MEASURED, layers=layers, seen={IterationKind(lengths): ChunkMeasurement(1.0, 0.0)})
    assert list(total_table(many, {"in use": lengths}))[1].split("…")[0] == "in use            1x1 1x2 1x1 1x2 1x1 1x2"


def test_what_is_hidden() -> None:
    """Of 6 ms, 12.5 - 7 are added, and 11 - 7 by prediction. As one chunk 14.5 - 7, and 13.25 - 7; OrigDP takes 13."""
    assert list(summary(MEASURED, (2, 1))) == [
        "All exchange takes 6.000 ms (T'_O). Beside backward it adds 5.500 ms (T_O; predicted 4.000), so 8.3% of it is "
        "hidden (predicted: 33.3%).",
        "t_as delays backward by 3.000 ms: 0.250 a chunk, and 50% of the copies and sums, which take the cores that "
        "compute.",
    ]
    first, _, last = summary(MEASURED, (3,))
    assert first.endswith("so nothing of it is hidden (predicted: nothing).")
    assert last.startswith("One exchange after backward is predicted to be faster here: T' = 13.000 against T = 13.250")


def test_noise_that_makes_the_exchange_faster_than_none_hides_all_of_it() -> None:
    """Backward alone takes 7 ms, with the exchange 5 ms here: not more than 100 % is hidden."""
    faster = replace(MEASURED, seen={**MEASURED.seen, IterationKind((2, 1)): ChunkMeasurement(0.005, 0.0)})
    first = next(iter(summary(faster, (2, 1))))
    assert "it adds -2.000 ms" in first and "so all of it is hidden (predicted: 33.3%)" in first


def test_cuts_that_are_looked_at() -> None:
    assert cuts(3, (2, 1)) == {"in use": (2, 1), "size 1": (1, 1, 1), "size 2": (2, 1), "all layers": (3,)}
    assert list(cuts(10, (10,))) == ["in use", "size 1", "size 2", "size 5", "size 10", "all layers"]


def test_bpt_time_shows_them(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    text = SOLVER + "parallel_param { exchange: CGDP cgdp_param { chunk_size: 1 } }\n"
    source = small_solver(tmp_path, text=text)
    with caplog.at_level(logging.INFO, "bpt"):
        run_ranks(2, lambda comm: time_ranks(source, CPU, comm, 5))
    heads = [line.split(":")[0] for line in dict.fromkeys(caplog.messages)]
    start = heads.index("Between ranks, by segment of the net, mean of an iteration over all ranks")
    (by_layer,) = [number for number, head in enumerate(heads) if head.startswith("CGDP, by layer, in ms")]
    (in_all,) = [number for number, head in enumerate(heads) if head.startswith("CGDP, backward until")]
    (by_phase,) = [number for number, head in enumerate(heads) if head.startswith("CGDP beside OrigDP")]
    assert start < by_phase < by_layer < in_all
    assert [head.split()[0] for head in heads[by_phase + 2 : by_phase + 4]] == ["OrigDP", "CGDP"]
    (original,) = {line for line in caplog.messages if line.startswith("OrigDP: T'")}  # of both ranks
    assert len(original.split()) == 3 + 5  # T' and T'_O, predicted and measured
    assert [head.split()[0] for head in heads[by_layer + 1 : by_layer + 5]] == ["layer", "ip", "conv", "sum"]
    assert heads[in_all + 2].startswith("in use")
    assert any(head.startswith("All exchange takes") for head in heads[in_all:])


def test_nothing_is_shown_of_other_exchanges(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    source = small_solver(tmp_path)
    with caplog.at_level(logging.INFO, "bpt"):
        run_ranks(2, lambda comm: time_ranks(source, CPU, comm, 1))
    assert not any("CGDP" in line for line in caplog.messages)
