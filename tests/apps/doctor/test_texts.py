"""Whether texts that differ, or are wrong, on some ranks are found."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from bpt.apps.doctor.findings import Ranks, Section, Severity
from bpt.apps.doctor.texts import Texts, check_texts
from bpt.base.errors import PrototxtError
from bpt.config.plan.resolve import read_plan
from bpt.config.plan.run_plan import RunPlan
from tests.apps.doctor.nets import net_text, write_run
from tests.apps.doctor.world import on_hosts, only, texts_of


def check(hosts: str, solvers: list[Path]) -> tuple[Section, Exception | None]:
    """The section where rank r reads ``solvers[r]``; the same on all ranks."""

    def reader(path: Path) -> Callable[[], RunPlan]:
        return lambda: read_plan(path)

    def one(ranks: Ranks) -> tuple[Section, Exception | None]:
        return check_texts(ranks, Texts.read(reader(solvers[ranks.world.rank]), ranks.world.rank))

    results = on_hosts(hosts, one)
    assert len({(section, str(wrong)) for section, wrong in results}) == 1
    return results[0]


def test_the_same(tmp_path: Path) -> None:
    section, wrong = check("ab", [write_run(tmp_path / "a"), write_run(tmp_path / "b")])
    assert wrong is None
    assert only(section).text == "solver, training net: read, the same on all ranks"


def test_a_solver_that_differs(tmp_path: Path) -> None:
    first = write_run(tmp_path / "a", "momentum: 0.9")
    second = write_run(tmp_path / "b", "momentum: 0.8")
    section, wrong = check("abb", [first, second, second])
    assert wrong is None
    finding = only(section)
    assert finding.kind is Severity.PROBLEM
    assert finding.text == ('ranks 1-2 on host b: solver differs from rank 0\'s: "momentum: 0.8", not "momentum: 0.9"')
    assert "copy the same file" in finding.remedy


def test_a_net_that_differs(tmp_path: Path) -> None:
    paths = [write_run(tmp_path / name, net=net_text(outputs=outputs)) for name, outputs in (("a", 3), ("b", 5))]
    section, _ = check("ab", paths)
    assert only(section).text == (
        'rank 1 on host b: training net differs from rank 0\'s: "num_output: 5", not "num_output: 3"'
    )


def test_many_lines_that_differ(tmp_path: Path) -> None:
    more = "display: 1 average_loss: 2 iter_size: 3 test_interval: 4"
    section, _ = check("ab", [write_run(tmp_path / "a"), write_run(tmp_path / "b", more)])
    assert only(section).text.endswith('…, not ""') or "…" in only(section).text


def test_a_file_that_is_missing_on_one_rank(tmp_path: Path) -> None:
    good = write_run(tmp_path / "a")
    section, wrong = check("abc", [good, tmp_path / "b/solver.prototxt", good])
    assert wrong is None  # the cluster is wrong, not the text
    finding = only(section)
    assert finding.kind is Severity.PROBLEM
    assert finding.text.startswith(f"rank 1 on host b: {tmp_path}/b/solver.prototxt: no such file")
    net = write_run(tmp_path / "c")
    (tmp_path / "c/net.prototxt").unlink()
    section, _ = check("ab", [good, net])
    assert "net.prototxt: no such file" in only(section).text


def test_a_text_that_is_wrong_everywhere(tmp_path: Path) -> None:
    path = write_run(tmp_path / "a", "max_itre: 3")
    section, wrong = check("ab", [path, path])
    assert isinstance(wrong, PrototxtError)
    assert only(section).text == str(wrong)
    assert 'did you mean "max_iter"' in str(wrong)
    path = write_run(tmp_path / "b", "parallel_param { num_shards: 0 }")
    section, wrong = check("ab", [path, path])
    assert "num_shards is 0" in str(wrong)
    assert len(texts_of(section, Severity.PROBLEM)) == 1


def test_the_outer_layer(tmp_path: Path) -> None:
    section, _ = check("ab", [write_run(tmp_path / "a", "parallel_param { exchange: AGWU balance: IDPA }")] * 2)
    assert only(section).kind is Severity.OK
    section, wrong = check("ab", [write_run(tmp_path / "b", "parallel_param { exchange: AGWU balance: STATIC }")] * 2)
    assert isinstance(wrong, PrototxtError)
    assert "balance: STATIC divides the batches" in only(section).text


def test_only_rank_0_of_the_outer_layer_tests(tmp_path: Path) -> None:
    tests = 'test_net: "test.prototxt" test_iter: 1 test_interval: 1'
    outer = "parallel_param { exchange: AGWU }"
    for name, parallel, said in (("a", outer, Severity.OK), ("b", "", Severity.PROBLEM)):
        text = f"{tests} {parallel}"
        paths = [write_run(tmp_path / f"{name}{rank}", text) for rank in range(2)]
        for path in paths:
            path.write_text(path.read_text().replace("net:", "train_net:", 1))
        (tmp_path / f"{name}0" / "test.prototxt").write_text(net_text())
        section, _ = check("ab", paths)
        assert only(section).kind is said
    paths = [tmp_path / "a1/solver.prototxt"] * 2
    section, _ = check("ab", paths)
    assert only(section).text.startswith("rank 0 on host a: ")
