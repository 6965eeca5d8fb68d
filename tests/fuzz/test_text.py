"""Texts: networks as far as their graphs, solvers as far as their checks, and what --set lays over them."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from bpt.net_graph import build_graph_of
from bpt.plan.nets import file_plan
from bpt.plan.resolve import resolve
from bpt.plan.violations import violations
from bpt.predict.cluster_file import ClusterSource
from bpt.proto import bpt_pb2 as pb
from bpt.proto.merge import apply_set
from bpt.proto.parse import parse_text
from bpt.proto.rewrite import rewrite_net_text
from bpt.proto.sources import read_solver
from bpt.proto.text import to_text
from bpt.violation import refuse
from tests.fuzz import seeds
from tests.fuzz.engine import Target, run_cases, run_one
from tests.fuzz.mutations import mutate_text

CLUSTER = b"""server { latency: 0.001 bandwidth: 1000 update_rate: 500 }
node { name: "a" count: 3 samples_per_second: 20 spread: 0.2 noise: 0.1 change { at: 3 factor: 0.5 } }
node { gflops: 5.5 frequency: 2.5 latency: 0.01 bandwidth: 10 memory: 4096 fails: 60 }
"""


class NetTexts(Target):
    """Nets: read, upgraded, and built in both phases."""

    name = "net-text"
    suffix = ".prototxt"

    def case(self, rng: random.Random) -> bytes:
        return mutate_text(rng, seeds.net_texts(), seeds.words())

    def run(self, case: bytes) -> None:
        path = self.file(case)
        rewrite_net_text(path, self.folder / "new.prototxt")
        for phase in (pb.TRAIN, pb.TEST):
            graph = build_graph_of(file_plan(path, phase))
            assert graph.num_parameters >= 0 and graph.flops >= 0


class SolverTexts(Target):
    """Solvers: read and checked as ``bpt doctor`` does it, and their nets built."""

    name = "solver-text"
    suffix = ".prototxt"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        small = b'layer { name: "d" type: "DummyData" top: "x" dummy_data_param { shape { dim: 2 dim: 3 } } }'
        folder.joinpath("net.prototxt").write_bytes(small)

    def case(self, rng: random.Random) -> bytes:
        return mutate_text(rng, seeds.solver_texts(), seeds.words())

    def run(self, case: bytes) -> None:
        plan = resolve(read_solver(self.file(case)))
        refuse(plan, violations(plan))
        for net in (plan.train, *plan.tests):
            build_graph_of(net)


class Overrides(Target):
    """Texts of --set laid over a solver."""

    name = "set"
    suffix = ".txt"

    def case(self, rng: random.Random) -> bytes:
        return mutate_text(rng, seeds.solver_texts(), seeds.words())

    def run(self, case: bytes) -> None:
        base = seeds.solver_texts()[len(case) % len(seeds.solver_texts())].decode()
        parsed = parse_text(base, pb.SolverParameter)
        apply_set(parsed.message, [case.decode(errors="surrogateescape")], parsed.origins)
        parse_text(to_text(parsed.message), pb.SolverParameter)


class Clusters(Target):
    """Clusters of ``bpt simulate``."""

    name = "cluster"
    suffix = ".prototxt"

    def case(self, rng: random.Random) -> bytes:
        return mutate_text(rng, (CLUSTER,), seeds.words())

    def run(self, case: bytes) -> None:
        ClusterSource(self.file(case)).cluster(1e9, 1)


TARGETS = (NetTexts, SolverTexts, Overrides, Clusters)


@pytest.mark.parametrize("kind", TARGETS, ids=lambda kind: kind.name)
def test_texts_are_taken_or_refused(kind: type[Target], tmp_path: Path) -> None:
    run_cases(kind(tmp_path), 1, range(kind.short))


_INPUT = 'layer { name: "d" type: "Input" top: "x" input_param { shape { dim: 2 dim: 3 } } }\n'
_POWER = _INPUT + 'layer { name: "p" type: "Power" bottom: "x" top: "y" power_param { scale: %s } }'


@pytest.mark.parametrize(
    ("text", "is_refused"),
    [
        ("layer { " * 20_000, True),
        ("layer { convolution_param { weight_filler { " * 5000, True),
        ("input_dim: " + "[" * 20_000, True),
        ("input_dim: " + "1" * 10**6, True),
        (_POWER % ("1" * 10**6), True),  # infinite, as the next but one
        (_POWER % ("0." + "1" * 10**6), False),
        (_POWER % ("1e" + "1" * 10**6), True),
        ("a" * 10**6 + ": 3", True),
        ('name: "' + "a" * 10**6, True),
        ('name: "' + r"\x41" * 10**5 + '"', True),
        ("name: " + '"a" ' * 20_000, True),
        ("#" * 10**6, True),
        (_INPUT + 'layer { name: "' + "a" * 10**5 + '" type: "ReLU" bottom: "q" top: "y" }', True),
        (_INPUT + 'layer { name: "r" type: "' + "a" * 10**5 + '" bottom: "x" top: "y" }', True),
        (_INPUT + 'layer { name: "c" type: "Concat" ' + 'bottom: "x" ' * 2000 + 'top: "y" }', False),
        (_INPUT.replace("dim: 3", "dim: 9223372036854775807 " * 30), False),
        (_INPUT.replace("dim: 3", "dim: 1 " * 2000), True),
    ],
    ids=range(17),
)
def test_texts_that_say_too_much(text: str, is_refused: bool, tmp_path: Path) -> None:
    """Nesting, long numbers, names and lists: nothing that takes more than its length."""
    assert run_one(NetTexts(tmp_path), text.encode()).refused == is_refused


def test_a_cluster_of_too_many_nodes(tmp_path: Path) -> None:
    assert run_one(Clusters(tmp_path), b"node { count: 2147483647 samples_per_second: 3 }").refused
