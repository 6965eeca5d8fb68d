"""When doctor says that a codec pays: at 100 Mbit/s and 1 Gbit/s, and not at 10 Gbit/s."""

from __future__ import annotations

import pytest

from bpt.apps.doctor.codec_advice import codec_advice
from bpt.apps.doctor.findings import Finding, Severity
from bpt.config.plan.run_plan import CompressionSpec
from bpt.config.proto import bpt_pb2 as pb
from bpt.perf.speeds.ping_pong import MeasuredLink

ALEXNET = 61_000_000 * 4  # bytes
BF16 = CompressionSpec(codec=pb.CompressionParameter.BF16)


def said(bits: float, compression: CompressionSpec, nbytes: int = ALEXNET, hosts: str = "aab") -> list[Finding]:
    """Of two hosts with a link of so many bits a second; on a host messages are quick."""
    links = [MeasuredLink(0, 1, 1e-6, 5e9), MeasuredLink(0, 2, 40e-6, bits / 8), MeasuredLink(1, 2, 40e-6, bits / 8)]
    return list(codec_advice(compression, nbytes, hosts, links))


@pytest.mark.parametrize(
    ("bits", "compression", "kind", "text", "remedy"),
    [
        (
            100e6,
            CompressionSpec(),
            Severity.NOTE,
            "at 12.5 MB/s between hosts gradients take about 20 s",
            "TOPK or POWERSGD",
        ),
        (
            1e9,
            CompressionSpec(),
            Severity.NOTE,
            "at 125 MB/s between hosts gradients take about 2 s",
            "codec: BF16 } halves",
        ),
        (
            10e9,
            CompressionSpec(),
            Severity.OK,
            "at 1.25e+03 MB/s between hosts gradients travel in 2e+02 ms: codec: NONE",
            "",
        ),
        (1e9, BF16, Severity.OK, "codec: BF16 for 125 MB/s between hosts", ""),
        (10e9, BF16, Severity.NOTE, "codec: BF16 takes longer than it saves", "codec: NONE"),
    ],
)
def test_by_link(bits: float, compression: CompressionSpec, kind: Severity, text: str, remedy: str) -> None:
    (finding,) = said(bits, compression)
    assert finding.kind is kind and text in finding.text and remedy in finding.remedy


def test_small_gradients_and_one_host() -> None:
    """40 kB at 100 Mbit/s take 3 ms, which is mostly latency. On one host there is nothing to say."""
    (finding,) = said(100e6, CompressionSpec(), 40_000)
    assert finding.kind is Severity.OK
    assert said(100e6, BF16, hosts="aaa") == []
