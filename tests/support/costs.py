"""Made-up costs of the small net, in round numbers."""

from __future__ import annotations

from bpt.parallel.cluster.costs_file import MeasuredCosts, MeasuredLayerCost

# conv works twice as long as ip and loss; in one piece the net is as fast as layer by layer.
COSTS = MeasuredCosts(
    net="small", batch=8, micro_batches=2, machine="host: cpu (Fast)", threads=2, forward=4.0, backward=8.0, update=0.0,
    layers=(
        MeasuredLayerCost("data", "DummyData", 0, 0.0, 0.0),
        MeasuredLayerCost("conv", "Convolution", 28160, 2.0, 4.0),
        MeasuredLayerCost("ip", "InnerProduct", 3096, 1.0, 2.0),
        MeasuredLayerCost("loss", "SoftmaxWithLoss", 96, 1.0, 2.0),
    ),
)  # fmt: skip
