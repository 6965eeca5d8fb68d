"""A small net of every kind of parameter, spread over ranks that are threads."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch

from bpt.graph.share import Share
from bpt.nn.net import Net
from bpt.parallel.balance import Balance, Uniform
from bpt.parallel.balance.batch_shares import tile
from bpt.system.comm.base import Communicator
from bpt.system.comm.grid import ProcessGrid
from bpt.train.runtime.parallel import Parallel
from tests.support.doubles.thread_ranks import run_ranks
from tests.support.golden_cases import graph_of
from tests.support.training import solver_of

T = TypeVar("T")

# Parameters: "first" 4 · 6 + 4, whole everywhere; "bn" 4 + 4 + 1, not trained; "fc" 5 · 4 + 5 and "last" 2 · 5 + 2,
# split; "fixed" 3 · 2, split and not trained.
NET = """
name: "small"
layer { name: "data" type: "DummyData" top: "x" top: "y"
  dummy_data_param { shape { dim: 8 dim: 6 } shape { dim: 8 } data_filler { type: "gaussian" }
                     data_filler { type: "constant" } } }
layer { name: "first" type: "InnerProduct" bottom: "x" top: "a" parallel_param { mode: DATA }
  inner_product_param { num_output: 4 weight_filler { type: "gaussian" } } }
layer { name: "bn" type: "BatchNorm" bottom: "a" top: "bn" }
layer { name: "fc" type: "InnerProduct" bottom: "bn" top: "b"
  inner_product_param { num_output: 5 weight_filler { type: "gaussian" } } }
layer { name: "relu" type: "ReLU" bottom: "b" top: "b" }
layer { name: "last" type: "InnerProduct" bottom: "b" top: "c"
  inner_product_param { num_output: 2 weight_filler { type: "gaussian" } } }
layer { name: "fixed" type: "InnerProduct" bottom: "c" top: "d" param { lr_mult: 0 }
  inner_product_param { num_output: 3 bias_term: false weight_filler { type: "gaussian" } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "d" bottom: "y" top: "loss" }
"""
PEER = "num_shards: 2"
MASTER = "num_shards: 2 fc_param { scheme: MASTER_SLAVE }"


class Given:
    """A balance with fixed counts for any batch."""

    def __init__(self, *counts: int) -> None:
        self._counts = counts

    def shares(self, total: int, ranks: int) -> tuple[Share, ...]:
        assert (total, ranks) == (sum(self._counts), len(self._counts))
        return tile(self._counts)


def parallel_of(
    comm: Communicator, text: str = "", balance: Balance | None = None, batch_factor: int | None = None
) -> Parallel:
    param = solver_of(f"parallel_param {{ {text} }}").parallel_param
    return Parallel(param, ProcessGrid.regular(comm, 1, param.num_shards), balance or Uniform(), batch_factor)


def on_ranks(ranks: int, function: Callable[[Parallel], T], text: str = "", balance: Balance | None = None) -> list[T]:
    """What ``function`` returns on each rank."""

    def run(comm: Communicator) -> T:
        with parallel_of(comm, text, balance) as parallel:
            return function(parallel)

    return run_ranks(ranks, run)


def net_of(parallel: Parallel, text: str = NET, seed: int = 0) -> Net:
    """This rank's part of the net."""
    graph = graph_of(text)
    return Net(graph, parallel.batches.context(seed, graph=graph), part=parallel.parts(graph)[parallel.grid.shard])


def named(net: Net) -> dict[str, torch.nn.Parameter]:
    return {f"{net.graph.nodes[p.layer].name}/{p.blob}": net.value(p) for p in net.local_params}
