"""Ways to run a fully connected layer, the networks that do, and how many elements each way moves (MPI-FC, Table 1)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from bpt.config.proto import bpt_pb2 as pb
from scripts.benches.harness.nets import solver_param

WHOLE, MASTER_SLAVE, PEER = "whole", "MASTER_SLAVE", "PEER"


@dataclass(frozen=True)
class Way:
    """How the layer is run.

    Attributes:
        scheme: "whole" on one rank, or a value of ``fc_param { scheme }``.
        slaves: K, ranks that hold a slice each; MASTER_SLAVE has a master besides.
        batch: samples of a pass.
        passes: of an iteration (iter_size).
    """

    scheme: str
    slaves: int
    batch: int
    passes: int = 1

    @property
    def ranks(self) -> int:
        """How many take part."""
        return self.slaves + (self.scheme == MASTER_SLAVE)

    @property
    def parallel(self) -> str:
        """The text of the solver."""
        if self.scheme == WHOLE:
            return ""
        return f"parallel_param {{ num_shards: {self.ranks} fc_param {{ scheme: {self.scheme} }} }}"

    def elements(self, inputs: int, outputs: int) -> float:
        """That move in either direction of all passes of an iteration.

        MASTER_SLAVE: Table 1, B (K n_b + n_t). PEER, where each rank runs the other layers on its own samples: bottoms
        go from each to each, B (K - 1) n_b, and of the tops what belongs to others' samples, B n_t (K - 1) / K.
        """
        samples, k = self.batch * self.passes, self.slaves
        if self.scheme == MASTER_SLAVE:
            return samples * (k * inputs + outputs)
        return samples * (k - 1) * (inputs + outputs / k)


def ways_of(slaves: Iterable[int], batch: int) -> list[Way]:
    """All of them: on one rank and on K, each with the whole batch in a pass and with batches of 1 (section 4.2)."""
    schemes = [
        (WHOLE, 1),
        *((scheme, k) for k in slaves for scheme in (MASTER_SLAVE, PEER) if (scheme, k) != (PEER, 1)),
    ]
    return [Way(scheme, k, *size) for scheme, k in schemes for size in dict.fromkeys([(batch, 1), (1, batch)])]


def layer_solver(way: Way, inputs: int, outputs: int) -> pb.SolverParameter:
    """Trains one MpiFc layer, which reads what wants a diff as if layers were below it."""
    net = pb.NetParameter(name="layer", force_backward=True)
    data = net.layer.add(name="data", type="DummyData", top=["data", "target"])
    for columns in (inputs, outputs):
        data.dummy_data_param.shape.add(dim=(way.batch, columns))
        data.dummy_data_param.data_filler.add(type="constant", value=0.5)
    layer = net.layer.add(name="fc", type="MpiFc", bottom=["data"], top=["fc"])
    layer.inner_product_param.num_output = outputs
    layer.inner_product_param.weight_filler.type = "xavier"
    net.layer.add(name="loss", type="EuclideanLoss", bottom=["fc", "target"], top=["loss"])
    param = solver_param(net, 1e-6, iter_size=way.passes)
    param.engine = pb.SolverParameter.CONTIGUOUS
    return param
