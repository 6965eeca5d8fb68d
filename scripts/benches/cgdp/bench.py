"""CGDP with each chunk size, TREE (the paper's OrigDP) and ALLREDUCE: same net, same batch, in turn, on this machine.

The networks are those of ``prototxt/`` with small generated images (nets.py); ranks compute with one thread.
In every round a new job trains in all ways in turn, in one order and then in the other, and another one trains one
process with a rank's batch: so efficiency is that of weak scaling. "No exchange" are the same ranks, each training for
itself at the same time. The memory layout is the one that one process chooses, for all ways.

``search`` and ``model`` first find their chunks in jobs of their own, which Fig. 8 shows, and then take part like fixed
sizes. Memory is measured in jobs of one way each. A chunk size that gives the chunks of a smaller one is left out.

Then the best chunks, TREE and ALLREDUCE train on each number of ranks of --scaling (Fig. 6), with a batch each. At last
LeNet learns the digits, on one rank and on --ranks by CGDP and TREE: accuracy by time and by iteration (Fig. 7).
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from bpt.parallel.cgdp.chunks import chunks
from scripts.benches.cgdp import figures, results
from scripts.benches.cgdp.jobs import Done, Turn, Way, Work, run_job
from scripts.benches.cgdp.nets import NETS, PAPER, SMALL, trained
from scripts.benches.cgdp.results import (
    ALLREDUCE,
    ALONE,
    APART,
    MODEL,
    ORIGINAL,
    SEARCH,
    Outcome,
    Search,
    best_size,
    fixed,
    fixed_sizes,
)
from scripts.benches.cgdp.scaling import SCALING, Scaling, cores_left, scaling_rows, scaling_table
from scripts.benches.harness.arguments import add_nets, add_output, at_least, explain
from scripts.benches.harness.curve import Point, train, write_solver
from scripts.benches.harness.launch import ROOT, JobError, call
from scripts.benches.harness.panels import check_matplotlib
from scripts.benches.harness.tables import Tables

HELP = "CGDP with each chunk size against TREE (OrigDP) and ALLREDUCE, on CPU cores"
SIZES = "1,2,5,10,20,50,search,model"
FEW_SIZES = ["1", "2", "search"]  # with --quick
CHOSEN = {"search": SEARCH, "model": MODEL}
AFTER = 50  # iterations that Fig. 8 shows after a search


def sizes(text: str) -> list[str]:
    """Chunk sizes, "search" and "model", separated by commas, for argparse; each once."""
    words = list(dict.fromkeys(word for word in text.split(",") if word))
    for word in words:
        if word not in CHOSEN and not (word.isdecimal() and int(word)):
            raise argparse.ArgumentTypeError(f'takes chunk sizes of at least 1, search and model, found "{word}"')
    return words


def add_arguments(parser: argparse.ArgumentParser) -> None:
    explain(parser, __doc__)
    add_nets(parser, PAPER, NETS)
    parser.add_argument("--ranks", type=at_least(2), default=2, help="processes that train (default %(default)s)")
    parser.add_argument("--sizes", type=sizes, default=SIZES, help="chunk sizes of CGDP (default %(default)s)")
    parser.add_argument(
        "--rounds", type=at_least(1), default=4, help="jobs, with two turns of each way each (default %(default)s)"
    )
    parser.add_argument(
        "--iterations", type=at_least(1), default=10, help="of a turn; the figures want tens (default %(default)s)"
    )
    parser.add_argument(
        "--scaling",
        type=rank_numbers,
        default="1,2,4",
        help="numbers of ranks for Fig. 6; '': none (default %(default)s)",
    )
    parser.add_argument(
        "--learn", type=int, default=300, help="iterations of LeNet for Fig. 7; 0: none (default %(default)s)"
    )
    parser.add_argument("--step", type=at_least(1), default=None, help="of the search (Fig. 8; default: bpt's)")
    parser.add_argument("--range", type=at_least(1), default=None, help="of the search (Fig. 8; default: bpt's)")
    parser.add_argument("--quick", action="store_true", help="LeNet and few sizes, a minute or two")
    add_output(parser, ROOT / "bench" / "cgdp", "CSV and PNG files")


def rank_numbers(text: str) -> list[int]:
    """Numbers of ranks, by commas, for argparse; maybe none."""
    return sorted({at_least(1)(word) for word in text.split(",") if word})


def made_quick(arguments: argparse.Namespace) -> None:
    """Smaller sizes, of what was asked for."""
    arguments.nets, arguments.rounds, arguments.iterations = ["lenet"], 1, 5
    arguments.sizes = [size for size in arguments.sizes if size in FEW_SIZES] or FEW_SIZES
    arguments.learn = min(arguments.learn, 20)
    arguments.scaling = [ranks for ranks in arguments.scaling if ranks <= 2 or cores_left(ranks) >= 0]


def cgdp(param: str) -> str:
    """The ``parallel_param`` of CGDP."""
    return f"parallel_param {{ exchange: CGDP cgdp_param {{ {param} }} }}"


EXCHANGES = (
    Way(APART, apart=True),
    Way(ORIGINAL, "parallel_param { exchange: TREE }"),
    Way(ALLREDUCE, "parallel_param { exchange: ALLREDUCE }"),
)
SEARCHING = {SEARCH: Way(SEARCH, cgdp("chunk_size: 0")), MODEL: Way(MODEL, cgdp("chunking: MODEL"))}


def search_fields(arguments: argparse.Namespace) -> str:
    """Return the fields of ``cgdp_param`` that --step and --range set."""
    given = ((name, getattr(arguments, name)) for name in ("step", "range"))
    return " ".join(f"{name}: {value}" for name, value in given if value is not None)


FIXED = cgdp("chunk_size: 1")  # the chunks of a Way have the last word
ALONE_WAY = Way(ALONE, apart=True)


def fixed_ways(layers: int, words: Sequence[str]) -> list[Way]:
    """CGDP with each chunk size of ``words``, but for those that give the same chunks as one before."""
    by_lengths: dict[tuple[int, ...], Way] = {}
    for size in sorted(int(word) for word in words if word.isdecimal()):
        lengths = chunks(layers, size)
        by_lengths.setdefault(lengths, Way(fixed(size), FIXED, lengths=lengths))
    return list(by_lengths.values())


@dataclass
class Comparison:
    """All ways to train one network.

    Args:
        base: what is common to all jobs.
        words: chunk sizes, "search", "model".
        run: does a job.
        note: tells what happens.
        search: fields of ``cgdp_param`` for the search.

    Attributes:
        failed: what could not be done → why.
    """

    base: Work
    words: Sequence[str]
    run: Callable[[Work], Done]
    note: Callable[[str], None] = print
    search: str = ""
    failed: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._turns: dict[str, list[Turn]] = {}
        self._peaks: dict[str, int] = {}
        self._searches: dict[str, Search] = {}
        self._ways = [*EXCHANGES, *fixed_ways(trained(self.base.net, self.base.size), self.words)]

    def prepare(self) -> None:
        """Choose the memory layout; measure memory; search.

        Raises:
            JobError: one process cannot train the network.
        """
        self.note(f"{self.base.net}: memory layout")
        alone = replace(self.base, ranks=1, ways=(ALONE_WAY,), iterations=1, warm_up=0)
        self.base = replace(self.base, engine=self.run(alone).engine)
        measured = [way for way in self._ways if not way.apart and way.parallel != FIXED]
        measured += [way for way in self._ways if way.parallel == FIXED][:1]
        for way in measured:
            self._attempt(f"memory of {way.name}", replace(self.base, ways=(way,), iterations=2))
        searching = {**SEARCHING, SEARCH: Way(SEARCH, cgdp(f"chunk_size: 0 {self.search}".strip()))}
        for way in (searching[CHOSEN[word]] for word in self.words if word in CHOSEN):
            done = self._attempt(way.name, replace(self.base, ways=(way,), warm_up=0, iterations=AFTER))
            if done:
                self._ways.append(replace(way, parallel=FIXED, lengths=done.lengths[way.name]))
                after = done.turns[way.name][0].seconds
                self._searches[way.name] = Search(done.settling[way.name], after, done.trials[way.name])

    def _attempt(self, what: str, work: Work) -> Done | None:
        """Do a job; if it fails, say so."""
        self.note(f"{work.net}: {what}")
        try:
            done = self.run(work)
        except JobError as error:
            self.failed[what] = str(error)
            self.note(f"{work.net}: {what}: FAILED: {error}")
            return None
        if len(work.ways) == 1:
            self._peaks[work.ways[0].name] = max(done.peak)
        return done

    def round(self, number: int) -> None:
        """Two turns of each way; every second round begins with another one."""
        order = 1 if number % 2 == 0 else -1
        ways = [way for way in self._ways if self._twin(way) == way.name]
        jobs = [
            replace(self.base, ranks=1, ways=(ALONE_WAY,), turns=2),
            replace(self.base, ways=tuple(ways[::order]), turns=2),
        ]
        for work in jobs[::order]:
            what = "one process" if work.ranks == 1 else "all ways in turn"
            done = self._attempt(f"round {number + 1}, {what}", work)
            for way, turns in done.turns.items() if done else ():
                self._turns.setdefault(way, []).extend(turns)

    @property
    def outcomes(self) -> dict[str, Outcome]:
        """Of all ways that have had a turn, in their order."""
        return {
            way.name: Outcome(
                tuple(self._turns[self._twin(way)]),
                way.lengths,
                self._peaks.get(way.name, 0),
                self._searches.get(way.name),
            )
            for way in (ALONE_WAY, *self._ways)
            if self._twin(way) in self._turns
        }

    def _twin(self, way: Way) -> str:
        """The first way with the same chunks, whose turns are this one's, too; itself if there is none."""
        return next((other.name for other in self._ways if way.lengths and other.lengths == way.lengths), way.name)


def report(work: Work, outcomes: results.Outcomes) -> Iterator[str]:
    """The lines about one network."""
    yield f"{work.net}: {work.ranks} ranks, each {work.batch} images of {work.size}x{work.size}, {work.engine}"
    yield from (f"  {line}" for line in results.table(outcomes))
    yield from (f"  {line}" for line in (*results.verdicts(outcomes), results.memory_on_cpu(outcomes)) if line)


def measure(name: str, arguments: argparse.Namespace, tables: Tables) -> bool:
    """Everything about one network; whether nothing has failed."""
    images = SMALL[name]
    work = Work(name, images.size, images.batch, arguments.ranks, iterations=arguments.iterations)
    with tempfile.TemporaryDirectory() as folder:
        comparison = Comparison(
            work, arguments.sizes, lambda work: run_job(work, Path(folder)), _note, search_fields(arguments)
        )
        try:
            comparison.prepare()
        except JobError as error:
            comparison.failed["one process"] = str(error)
        else:
            for number in range(arguments.rounds):
                comparison.round(number)
    work, outcomes, out = comparison.base, comparison.outcomes, arguments.out
    for line in report(work, outcomes) if outcomes else ():
        print(line, flush=True)
    for what, why in comparison.failed.items():
        print(f"  {name}: {what}: FAILED: {why}", flush=True)
    facts = (name, work.ranks, work.size, work.batch, work.engine)
    tables.add("summary", results.SUMMARY, results.summary_rows(facts, outcomes))
    tables.add("iterations", results.ITERATIONS, results.iteration_rows(name, outcomes))
    tables.add("trials", results.TRIALS, results.trial_rows(name, outcomes))
    if outcomes:
        title = f"{name}, {work.ranks} ranks, batch {work.batch} each"
        figures.draw_sizes(out / f"{name}_sizes.png", title, outcomes)
        if any(outcome.search for outcome in outcomes.values()):
            figures.draw_search(out / f"{name}_search.png", title, outcomes)
        failed = scale(comparison, arguments, tables)
    return not (comparison.failed or (outcomes and failed))


def scale(comparison: Comparison, arguments: argparse.Namespace, tables: Tables) -> dict[str, str]:
    """Fig. 6; returns what has failed, and why."""
    work, outcomes = comparison.base, comparison.outcomes
    if not arguments.scaling:
        return {}
    size = best_size(outcomes)
    chosen = [*EXCHANGES[1:], *([Way(fixed(size), FIXED, lengths=outcomes[fixed(size)].lengths)] if size else [])]
    # What the comparison has measured on one and on its own number of ranks.
    known = {1: {ALONE: outcomes[ALONE]}} if ALONE in outcomes and 1 in arguments.scaling else {}
    if work.ranks in arguments.scaling:
        known[work.ranks] = {way.name: outcomes[way.name] for way in chosen if way.name in outcomes}
        if size:  # memory was measured with the first of the sizes, on which it does not depend
            peak = max(outcomes[fixed(each)].peak for each in fixed_sizes(outcomes))
            known[work.ranks][fixed(size)] = replace(outcomes[fixed(size)], peak=peak)
    with tempfile.TemporaryDirectory() as folder:
        scaling = Scaling(work, ALONE_WAY, chosen, lambda work: run_job(work, Path(folder)), note=_note)
        scaled = scaling.measure(arguments.scaling, arguments.rounds, known)
    for line in scaling_table(scaled):
        print(f"  {line}", flush=True)
    for what, why in scaling.failed.items():
        print(f"  {work.net}: {what}: FAILED: {why}", flush=True)
    tables.add("scaling", SCALING, scaling_rows(work.net, work.batch, scaled))
    figures.draw_scaling(arguments.out / f"{work.net}_scaling.png", f"{work.net}, batch {work.batch} each", scaled)
    return scaling.failed


LEARNED = ("way", "ranks", "iteration", "seconds", "accuracy")
DIGITS = 360  # images of the test


def learn(arguments: argparse.Namespace, tables: Tables) -> bool:
    """Fig. 7: LeNet learns the digits, whole batches of the same samples in all ways; whether nothing has failed."""
    ways = [(ALONE, "", 1), (ORIGINAL, EXCHANGES[1].parallel, arguments.ranks), (SEARCH, cgdp(""), arguments.ranks)]
    curves: dict[str, list[Point]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        folder, solver = Path(scratch), Path(scratch) / "solver.prototxt"
        try:
            call([sys.executable, str(ROOT / "scripts" / "make_digits.py"), str(folder / "digits")])
            for way, parallel, ranks in ways:
                _note(f"lenet learns: {way}")
                write_solver("lenet", [parallel], folder / "digits", 64, DIGITS, solver)
                curves[way] = train(solver, arguments.learn, ranks, folder)
                iteration, seconds, accuracy = curves[way][-1]
                tables.add("accuracy", LEARNED, [(way, ranks, *point) for point in curves[way]])
                print(f"lenet, {way}: {accuracy:.1%} after {iteration} iterations, {seconds:.1f} s", flush=True)
        except JobError as error:
            print(f"lenet learns: FAILED: {error}", flush=True)
            return False
    figures.draw_learning(arguments.out / "lenet_accuracy.png", f"LeNet, {arguments.ranks} ranks", curves)
    return True


def run(arguments: argparse.Namespace) -> None:
    check_matplotlib()
    if arguments.quick:
        made_quick(arguments)
    arguments.out.mkdir(parents=True, exist_ok=True)
    print(results.LEGEND)
    tables = Tables(arguments.out)
    good = [measure(name, arguments, tables) for name in arguments.nets]
    good += [learn(arguments, tables)] if arguments.learn > 0 else []
    print(f"numbers and figures: {arguments.out}")
    if not all(good):
        sys.exit(1)


def _note(line: str) -> None:
    """How far it is goes to stderr: the tables stay readable."""
    print(line, file=sys.stderr, flush=True)
