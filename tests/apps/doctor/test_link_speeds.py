"""What is said of connections that were measured."""

from __future__ import annotations

from bpt.apps.doctor.findings import Ranks, Severity
from bpt.apps.doctor.link_speeds import check_links
from bpt.perf.speeds.ping_pong import MeasuredLink, MeasuredLinks
from bpt.system.comm.serial import SerialCommunicator
from tests.apps.doctor.world import on_hosts, only, same, texts_of


def test_one_rank() -> None:
    ranks = Ranks(SerialCommunicator(), ("a",))
    assert only(check_links(ranks, MeasuredLinks((), 0.0))).kind is Severity.NOTE


def check(*links: MeasuredLink) -> tuple[list[str], tuple[str, ...]]:
    section = same(on_hosts("aab", lambda ranks: check_links(ranks, MeasuredLinks(links, 1e-9))))
    return texts_of(section, Severity.WARNING) + texts_of(section, Severity.NOTE), section.table


def test_good_links() -> None:
    remarks, table = check(
        MeasuredLink(0, 1, 1e-6, 5e9), MeasuredLink(0, 2, 40e-6, 117e6), MeasuredLink(1, 2, 40e-6, 118e6)
    )
    assert remarks == []
    assert table == (
        "from        to          latency  bandwidth",
        "rank 0 (a)  rank 1 (a)   1.0 µs  5000 MB/s",
        "rank 0 (a)  rank 2 (b)  40.0 µs   117 MB/s",
        "rank 1 (a)  rank 2 (b)  40.0 µs   118 MB/s",
    )


def test_bad_links() -> None:
    remarks, _ = check(MeasuredLink(0, 1, 3e-3, 5e9), MeasuredLink(0, 2, 40e-6, 11e6), MeasuredLink(1, 2, 2e-3, 118e6))
    assert remarks == [
        "rank 0 on host a and rank 2 on host b: 11 MB/s is slow: the exchange of gradients will take long",
        "rank 1 on host a and rank 2 on host b: 2000 µs a message is slow: small layers will wait for it",
        "rank 0 on host a and rank 1 there: 3000 µs a message is slow on one host",
    ]


def test_a_link_that_is_much_slower_than_another() -> None:
    remarks, _ = check(MeasuredLink(0, 2, 5e-6, 10e9), MeasuredLink(1, 2, 5e-6, 0.9e9))
    assert remarks == [
        "rank 1 on host a and rank 2 on host b: 900 MB/s is slow: the exchange of gradients will take long"
    ]
