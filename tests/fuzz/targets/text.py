"""Texts: networks as far as their graphs, solvers as far as their checks, and what --set lays over them."""

from __future__ import annotations

import random
from pathlib import Path

from bpt.base.violation import refuse
from bpt.config.plan.nets import file_plan
from bpt.config.plan.resolve import resolve
from bpt.config.proto import bpt_pb2 as pb
from bpt.config.proto.merge import apply_set
from bpt.config.proto.parse import parse_text
from bpt.config.proto.rewrite import rewrite_net_text
from bpt.config.proto.sources import read_solver
from bpt.config.proto.text import to_text
from bpt.nn.net_graph import build_graph_of
from bpt.parallel.cluster.cluster_file import ClusterSource
from bpt.train.rules.violations import violations
from tests.fuzz import seeds
from tests.fuzz.engine import Target
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
