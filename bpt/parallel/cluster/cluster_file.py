"""Reads and writes a cluster: a ClusterParameter in text format, as ``bpt simulate`` and ``bpt plan`` take it."""

from __future__ import annotations

import math
import random
from collections import Counter

from google.protobuf.message import Message

from bpt.base.errors import PrototxtError
from bpt.config.proto import bpt_pb2 as pb
from bpt.config.proto.parse import ParsedText
from bpt.config.proto.text import read_text, to_text
from bpt.parallel.cluster.cluster import (
    NEVER,
    WITHOUT_LIMIT,
    Cluster,
    IntraNodeLink,
    Node,
    NodeLink,
    ServerNode,
    equal_nodes,
)

_MBIT = 1e6 / 8  # bytes
_MB = 1e6
_MIB = 2**20
_SPEEDS = ("samples_per_second", "gflops")
_SECONDS = ("latency", "overhead", "update", "warm_up", "border", "border_overhead", "interference")
_SAME = (*_SECONDS, "noise", "ranks", "cores")  # fields of a Node with the name and the unit of the text
_LEAST, _MOST = 1e-9, 1e15  # samples a second
_MOST_NODES = 10**6
_SPREAD = 10  # standard deviation of ln speed: already from one hundred-thousandth to a hundred thousand times
_Path = tuple[str | int, ...]


class ClusterSource:
    """A cluster as read from the file at ``path``, and checked.

    Raises:
        PrototxtError: the text is wrong; it says where.
    """

    def __init__(self, path: str) -> None:
        self._parsed: ParsedText[pb.ClusterParameter] = read_text(path, pb.ClusterParameter)
        self.param = self._parsed.message
        if not self.param.node:
            raise self._error("a cluster has at least one node { samples_per_second: … }")
        for index in range(len(self.param.node)):
            self._check_node(index)
        nodes = sum(node.count for node in self.param.node)
        if nodes > _MOST_NODES:
            raise self._error(f"{nodes} nodes are more than can be simulated, {_MOST_NODES}", "node")
        for field in ("latency", "bandwidth", "update_rate"):
            self._check_number(("server", field), self.param.server, field)
        for field in ("latency", "bandwidth"):
            self._check_number(("within", field), self.param.within, field)
        for field in ("shared_bandwidth", "waking", "busy_waking"):
            self._check_number((field,), self.param, field)
        for field in ("allreduce_efficiency", "busy_efficiency"):
            self._check_number((field,), self.param, field, above_zero=True)
        if self.param.busy_efficiency > 1:
            message = f"busy_efficiency is {self.param.busy_efficiency:g}; it must be at most 1: a part of a bandwidth"
            raise self._error(message, "busy_efficiency")
        self._check_links()

    @property
    def path(self) -> str:
        """The path of the file."""
        return self._parsed.path

    def cluster(self, flops: float, seed: int, colocated: bool = False) -> Cluster:
        """Return the cluster for a net whose samples cost ``flops`` each in training.

        Args:
            seed: of how nodes of one kind differ.
            colocated: worker 0 is in the server's process.

        Raises:
            PrototxtError: a node computes in gflops, but the net has no operations to count.
        """
        nodes: list[Node] = []
        for index, param in enumerate(self.param.node):
            if param.HasField("gflops") and not flops:
                raise self._error(
                    "gflops: the net has no operations to count; give samples_per_second", "node", index, "gflops"
                )
            speed = param.gflops * 1e9 / flops if param.HasField("gflops") else param.samples_per_second
            # All speeds that a spread can bring about are finite and above 0.
            if not _LEAST < speed < _MOST:
                raise self._error(
                    f"a speed of {speed:g} samples a second; it must be above {_LEAST:g} and below {_MOST:g}",
                    "node", index, "gflops" if param.HasField("gflops") else "samples_per_second",
                )  # fmt: skip
            node = Node(
                name=param.name or f"kind{index}",
                speed=speed,
                frequency=param.frequency if param.HasField("frequency") else None,
                bandwidth=param.bandwidth * _MBIT or WITHOUT_LIMIT,
                changes=tuple(sorted((change.at, change.factor) for change in param.change)),
                fails=param.fails if param.HasField("fails") else NEVER,
                memory=param.memory * _MIB or WITHOUT_LIMIT,
                capacity=param.capacity or WITHOUT_LIMIT,
                coding=tuple((coding.codec, coding.seconds) for coding in param.coding),
                **{name: getattr(param, name) for name in _SAME},
            )
            nodes += equal_nodes(node, param.count, param.spread, random.Random(f"{seed}/kind/{index}"))
        server = self.param.server
        return Cluster(
            tuple(nodes),
            ServerNode(
                latency=server.latency,
                bandwidth=server.bandwidth * _MBIT or WITHOUT_LIMIT,
                update_rate=server.update_rate * _MB or WITHOUT_LIMIT,
            ),
            colocated,
            IntraNodeLink(self.param.within.latency, self.param.within.bandwidth * _MBIT or WITHOUT_LIMIT),
            tuple(
                NodeLink(link.one, link.other, link.latency, link.bandwidth * _MBIT or WITHOUT_LIMIT)
                for link in self.param.link
            ),
            self.param.shared_bandwidth * _MBIT or WITHOUT_LIMIT,
            self.param.waking,
            self.param.allreduce_efficiency,
            self.param.busy_waking,
            self.param.busy_efficiency,
        )

    def _check_node(self, index: int) -> None:
        param = self.param.node[index]
        given = [field for field in _SPEEDS if param.HasField(field)]
        if len(given) != 1:
            found = "neither is set" if not given else "both are set"
            message = f"a node has either samples_per_second or gflops; {found}"
            raise self._error(message, "node", index, *given[-1:])
        for field, least in (("count", 1), ("ranks", 1), ("cores", 0)):
            if (number := getattr(param, field)) < least:
                raise self._error(f"{field} is {number}; it must be at least {least}", "node", index, field)
        if param.spread > _SPREAD:
            raise self._error(f"spread is {param.spread:g}; it must be at most {_SPREAD}", "node", index, "spread")
        positive = [*given, *(field for field in ("frequency",) if param.HasField(field))]
        for field in (*positive, "spread", "noise", "bandwidth", "memory", "capacity", "fails", *_SECONDS):
            self._check_number(("node", index, field), param, field, above_zero=field in positive)
        for number, change in enumerate(param.change):
            where: _Path = ("node", index, "change", number)
            if not change.HasField("at"):
                raise self._error("a change needs at: the seconds after the start at which the speed changes", *where)
            self._check_number((*where, "at"), change, "at")
            self._check_number((*where, "factor"), change, "factor", above_zero=True)
        for number, coding in enumerate(param.coding):
            where = ("node", index, "coding", number)
            if not coding.codec:
                raise self._error("coding needs codec: BF16, FP16, TOPK or POWERSGD", *where)
            self._check_number((*where, "seconds"), coding, "seconds", above_zero=True)

    def _check_links(self) -> None:
        nodes: Counter[str] = Counter()
        for param in self.param.node:
            nodes[param.name] += param.count
        seen = set()
        for index, link in enumerate(self.param.link):
            for field, name in (("one", link.one), ("other", link.other)):
                if not name or name not in nodes:
                    message = (
                        f'{field}: no node has the name "{name}"' if name else f"a link needs {field}: a node's name"
                    )
                    raise self._error(message, "link", index, *([field] if name else []))
            pair = frozenset((link.one, link.other))
            if pair in seen:
                raise self._error(f'the link between "{link.one}" and "{link.other}" is given twice', "link", index)
            if len(pair) == 1 and nodes[link.one] == 1:
                message = f'there is one node "{link.one}"; what lies between its ranks is within {{ }}'
                raise self._error(message, "link", index)
            seen.add(pair)
            for field in ("latency", "bandwidth"):
                self._check_number(("link", index, field), link, field)

    def _check_number(
        self,
        where: _Path,
        param: Message,
        field: str,
        above_zero: bool = False,
    ) -> None:
        value: float = getattr(param, field)
        if not math.isfinite(value) or value < 0 or (above_zero and not value):
            least = "above 0" if above_zero else "at least 0"
            raise self._error(f"{field} is {value:g}; it must be finite and {least}", *where)

    def _error(self, message: str, *where: str | int) -> PrototxtError:
        return PrototxtError(message, self._parsed.origin(*where))


def cluster_text(cluster: Cluster) -> str:
    """Return the nodes and their links as text that ``ClusterSource`` reads, to 4 digits."""
    param = pb.ClusterParameter()
    for node in cluster.nodes:
        of_node = param.node.add(name=node.name, samples_per_second=_rounded(node.speed), ranks=node.ranks)
        _set(of_node, cores=node.cores, overhead=node.overhead, update=node.update, memory=node.memory / _MIB)
        _set(of_node, latency=node.latency, bandwidth=node.bandwidth / _MBIT, border=node.border)
        _set(of_node, border_overhead=node.border_overhead, noise=node.noise, interference=node.interference)
        for codec, seconds in node.coding:
            of_node.coding.add(codec=codec, seconds=_rounded(seconds))
    for link in cluster.links:
        of_link = param.link.add(one=link.one, other=link.other)
        _set(of_link, latency=link.latency, bandwidth=link.bandwidth / _MBIT)
    _set(param.within, latency=cluster.within.latency, bandwidth=cluster.within.bandwidth / _MBIT)
    _set(param, shared_bandwidth=cluster.shared / _MBIT, waking=cluster.waking, busy_waking=cluster.busy_waking)
    if cluster.efficiency != 1:
        _set(param, allreduce_efficiency=cluster.efficiency)
    if cluster.busy_efficiency != 1:
        _set(param, busy_efficiency=cluster.busy_efficiency)
    return to_text(param)


def _set(param: Message, **values: float) -> None:
    """Set the fields of ``param`` whose values are finite and not 0."""
    for field, value in values.items():
        if value and math.isfinite(value):
            setattr(param, field, value if isinstance(value, int) else _rounded(value))


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")
