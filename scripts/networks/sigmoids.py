"""Caffe's example of nets with sigmoids, with and without batch normalisation."""

from __future__ import annotations

from functools import partial

from bpt.caffe.netspec import L, NetSpec, P, Top
from scripts.networks.common import CIFAR10, WEIGHT_ONLY, Network, classify, solver


def sigmoids(n: NetSpec, label: Top | None, batch_norm: bool) -> None:
    top = n.data
    for index, (channels, std) in enumerate([(32, 0.0001), (32, 0.01), (64, 0.01)], 1):
        filler = {"type": "gaussian", "std": std}
        bias: dict[str, object] = {"param": [{"lr_mult": 1}, {"lr_mult": 2}]}
        top = n[f"conv{index}"] = L.Convolution(
            top, num_output=channels, kernel_size=5, pad=2, weight_filler=filler,
            **({"bias_term": False, "param": [{"lr_mult": 1}]} if batch_norm else bias),
        )  # fmt: skip
        if index == 1:
            top = n.pool1 = L.Pooling(top, pool=P.Pooling.MAX, kernel_size=3, stride=2)
        if batch_norm:
            top = n[f"bn{index}"] = L.BatchNorm(top, param=[{"lr_mult": 0}] * 3)
        top = n[f"Sigmoid{index}"] = L.Sigmoid(top)
        if not batch_norm and index < 3:
            top = n[f"norm{index}"] = L.LRN(top, local_size=3, alpha=5e-05, beta=0.75, norm_region=P.LRN.WITHIN_CHANNEL)
        if index > 1:
            top = n[f"pool{index}"] = L.Pooling(top, pool=P.Pooling.AVE, kernel_size=3, stride=2)
    n.ip1 = L.InnerProduct(top, num_output=10, weight_filler={"type": "gaussian", "std": 0.01}, param=WEIGHT_ONLY)
    classify(n, n.ip1, label)


ABOUT_SIGMOIDS = """
The full CIFAR-10 net with sigmoids {with_}.

From Caffe's example {name}, which shows that sigmoids alone are hard to train, and that batch normalisation mends it.
{parameters} parameters, 25 MFLOP an image.
"""


def sigmoid_solver(folder: str) -> str:
    return solver(
        f"Trains the net for 120 epochs of 500 batches.\n\n    bpt train --solver prototxt/{folder}/solver.prototxt",
        f"""\
        net: "prototxt/{folder}/train_val.prototxt"

        test_iter: 100        # 100 batches of 100: the whole test set
        test_interval: 1000

        base_lr: 0.001
        lr_policy: "step"
        gamma: 1              # the rate stays as it is, as in Caffe's example
        stepsize: 5000
        momentum: 0.9
        weight_decay: 0.004

        max_iter: 60000
        display: 100
        snapshot: 60000
        snapshot_prefix: "snapshots/{folder}/{folder}"
        solver_mode: CPU
        """,
    )


def sigmoid_network(folder: str, batch_norm: bool, with_: str, parameters: str) -> Network:
    return Network(
        folder, "CIFAR10_full", ABOUT_SIGMOIDS.format(with_=with_, name=folder, parameters=parameters),
        partial(sigmoids, batch_norm=batch_norm), CIFAR10, (100, 100), {"solver.prototxt": sigmoid_solver(folder)},
    )  # fmt: skip


NETWORKS = [
    sigmoid_network("cifar10_full_sigmoid", False, "in place of ReLUs", "89,578"),
    sigmoid_network("cifar10_full_sigmoid_bn", True, "and batch normalisation", "89,450"),
]
