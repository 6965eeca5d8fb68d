"""ServerSession: rank 0's part of a run of the outer layer."""

from __future__ import annotations

import hashlib
import logging
import math
import os
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from fractions import Fraction

import torch

from bpt.base.errors import UserError
from bpt.base.log import log_lines
from bpt.base.signals import SignalActions
from bpt.config.plan.run_plan import RunPlan
from bpt.config.proto import bpt_pb2 as pb
from bpt.data.shipped import RecordStream
from bpt.graph.net_digest import net_digest
from bpt.nn.layers.base import batch_of
from bpt.nn.layers.data import record_stream_of
from bpt.parallel.balance.divisible_batches import samples_together
from bpt.parallel.outer.base import OuterSchedule
from bpt.parallel.outer.exchanges import make_schedule, passes_of
from bpt.parallel.outer.replay import Replay
from bpt.system.comm.base import Buffer, Communicator
from bpt.system.events.bus import EventBus
from bpt.train.outer.assignment import Assignment
from bpt.train.outer.background_evaluator import BackgroundEvaluator
from bpt.train.outer.coded_submissions import Coded
from bpt.train.outer.colocated import Colocated
from bpt.train.outer.data_set import samples_of
from bpt.train.outer.flat_weights import FlatWeights
from bpt.train.outer.global_weights import GlobalWeights, names_used, workers_of
from bpt.train.outer.messages import write_head
from bpt.train.outer.monitor import Monitor
from bpt.train.outer.node_solvers import node_lines, server_solver
from bpt.train.outer.parameter_server import ShardedWeightsClient, parts_of
from bpt.train.outer.remote import RemoteWorker
from bpt.train.outer.replay_log import RecordedRun, RunFacts, check_replay, remarks, writing
from bpt.train.outer.report import RunRecord, ServerRow, draw, summary_lines, write_csv
from bpt.train.outer.roles import SERVER, NodeFacts, Roles
from bpt.train.outer.server import MainServer
from bpt.train.outer.server_update import ServerUpdate
from bpt.train.outer.trainer import Trainer
from bpt.train.outer.worker import Worker
from bpt.train.outer.worker_links import ToServer, ToWorker
from bpt.train.outer.worker_ranks import WorkerRanks
from bpt.train.rules.violations import ignored_settings
from bpt.train.runtime.runtime import Runtime
from bpt.train.solver.milestones import Listener, Milestone
from bpt.train.solver.solver import RunOutcome
from bpt.train.state.exchange_memory import SERVER_MEMORY

LOG = logging.getLogger("bpt")

_Exchange, _Balance = pb.ParallelParameter.Exchange, pb.ParallelParameter.Balance


class ServerSession:
    """The server's part of a run, built before the workers know of the run.

    Args:
        resume: as in Solver.
        recorded: the run to repeat.
        events: the events of this rank.
        listeners: the listeners of the solver.

    Attributes:
        solver: the solver that tests and writes.
        assignment: the data for the workers.

    Raises:
        UserError: the texts are wrong, or do not fit the data or the number of workers.
    """

    def __init__(
        self,
        plan: RunPlan,
        roles: Roles,
        device: torch.device,
        resume: str,
        recorded: RecordedRun | None,
        events: EventBus | None = None,
        listeners: Sequence[Listener] = (),
    ) -> None:
        self._plan = plan
        parallel = plan.parallel_param
        self._roles = roles
        self._recorded = recorded
        seed = recorded.facts.seed if recorded else None
        self.solver = server_solver(plan, device, resume, seed, events, listeners)
        net = self.solver.net
        self._samples = samples_of(net, parallel.exchange)
        self._flat = FlatWeights(net)
        self._facts = self._facts_now()
        if recorded:
            check_replay(recorded, self._facts)
        first = self.solver.iter
        left = plan.max_iter - first
        asgd = parallel.exchange == pb.ParallelParameter.ASGD
        self.assignment = Assignment(self.solver.runtime.seed, first, max(left, 0), Fraction(1), asgd)
        if left < 1:
            LOG.warning("Iteration %d is reached already, max_iter is %d: nothing to train", first, plan.max_iter)
            return
        passes = passes_of(left, batch_of(net.graph) * plan.optim.iter_size, self._samples)
        divided = self._fewer_batches(plan, passes) if first else plan
        self._schedule = make_schedule(divided, self._samples, len(roles.workers), passes, samples_together(net.graph))
        self._shipments = self._ship() if parallel.ship_data else {}
        self.assignment = replace(
            self.assignment,
            total=self._schedule.total,
            batches=self._schedule.idpa.batches,
            elements=self._flat.size,
            trained=self._flat.trained,
            dtype=self._flat.dtype.str,
            weigh=parallel.agwu_param.weigh_by_accuracy,
            after=parallel.agwu_param.accuracy == pb.AgwuParameter.AFTER_EPOCH,
            engines=recorded.engines if recorded else {},
            headers={name: shipment.header for name, shipment in self._shipments.items()},
        )
        self._server_update = ServerUpdate(self.solver.runtime) if asgd else None
        LOG.info("Parallel: %s, balance %s; %s", *self._names, roles)
        log_lines(LOG, node_lines(plan, net.graph))
        LOG.info(
            "max_iter %d with batches of %d are %.4g passes over %d samples; each worker makes %.4g over its own",
            plan.max_iter, batch_of(net.graph) * plan.optim.iter_size, passes, self._samples, self._schedule.total,
        )  # fmt: skip
        if asgd and plan.optim.momentum and len(roles.workers) > 1:
            LOG.warning(
                "ASGD: gradients of %d workers are stale, which momentum %g amplifies; if the loss grows, lower "
                "momentum or base_lr", len(roles.workers), plan.optim.momentum,
            )  # fmt: skip
        log_lines(LOG, ignored_settings(plan), logging.WARNING)
        if (
            plan.given("parallel_param", "server")
            and parallel.server == pb.ParallelParameter.DEDICATED
            and roles.worker == SERVER
        ):
            LOG.warning("parallel_param: server: DEDICATED has no effect with one process, which serves and computes")

    @staticmethod
    def _fewer_batches(plan: RunPlan, passes: Fraction) -> RunPlan:
        """Limit the number of IDPA's batches to the passes that are left in a resumed run."""
        parallel = plan.parallel_param
        wanted, most = parallel.balance_param.num_batches, max(1, int(passes))
        if parallel.balance != pb.ParallelParameter.IDPA or wanted <= most:
            return plan
        LOG.info("The samples are handed out in %d batches, not %d: %.4g passes are left", most, wanted, passes)
        return plan.with_parallel(balance_param=replace(parallel.balance_param, num_batches=most))

    def _ship(self) -> dict[str, RecordStream]:
        """Return the records of each data layer."""
        return {name: record_stream_of(layer) for name, layer in self.solver.net.data_layers().items()}

    @property
    def _names(self) -> tuple[str, str]:
        parallel = self._plan.parallel_param
        return _Exchange.Name(parallel.exchange), _Balance.Name(parallel.balance)

    @property
    def _folder(self) -> str:
        """The folder of the reports."""
        return f"{self._plan.snapshot_prefix}_run"

    def run(
        self,
        nodes: Sequence[NodeFacts],
        comm: Communicator,
        runtime: Runtime | None,
        trainer: Trainer | None,
        signals: SignalActions | None,
        hosts: Sequence[str],
        coded: Coded,
    ) -> RunOutcome:
        """Serve until training ends, and return the outcome.

        Args:
            nodes: the facts of the workers.
            comm: all ranks.
            runtime, trainer: those of the worker in this process, if there is one.
            hosts: the host of each rank.
            coded: the codec of submissions.
        """
        weights = self._flat.pack()
        facts = replace(self._facts, threads=tuple(node.threads for node in nodes))
        schedule: OuterSchedule | Replay = self._schedule
        if self._recorded:
            for remark in remarks(self._recorded, facts.threads):
                LOG.warning("Replay: %s", remark)
            schedule = Replay(self._recorded.instructions, len(nodes), self.assignment.total)
            LOG.info("Replay: the updates of %s, in their order", self._recorded.path)
        for node, fact in enumerate(nodes):
            if fact.frequency is None:
                LOG.warning(
                    "%s: its frequency cannot be read; the mean of the others is taken", self._name(node, nodes)
                )
        self._warn_of_one_host(hosts)
        links, colocated = self._links(comm, coded)
        record = self._record(weights)
        threads = torch.get_num_threads()
        evaluator = BackgroundEvaluator(self.solver, threads, apart=self._server_update is None)
        names = [self._name(node, nodes) for node in range(len(nodes))]
        silent = self._server_update is not None
        monitor = Monitor(
            self._plan, names, [n.host for n in nodes], self._roles.workers, record, self.assignment.first, silent,
            self._notify,
        )  # fmt: skip
        with ExitStack() as stack:
            stack.enter_context(self.solver)
            for shipment in self._shipments.values():
                stack.callback(shipment.close)
            if runtime:
                stack.enter_context(runtime)
            log = None
            if not self._recorded:
                log = stack.enter_context(writing(os.path.join(self._folder, "replay.jsonl")))
                log.begin(facts)
            global_weights = self._hold(weights, comm)
            if memory := self._memory(len(nodes)):
                global_weights.remember(memory)
                self._schedule.remember(*workers_of(memory))
            server = MainServer(
                self._plan,
                schedule,
                global_weights,
                links,
                self.assignment,
                monitor,
                evaluator,
                self._server_update,
                log,
                signals,
                comm.events,
            )
            if signals:
                stack.enter_context(signals)
            if colocated and trainer:
                colocated.start(lambda link: self._work(trainer, link, threads))
            server.run([node.frequency for node in nodes])
            if server.stopped:
                record.iterations = 0  # Eq. 11 uses the number of submissions
            record.servers += [
                ServerRow(part.rank, hosts[part.rank], part.size, *report.tolist())
                for part, report in global_weights.reports()
            ]
            self._report(record)
            outcome = server.end()  # after all writing, since a worker that SIGTERM ends leaves the others one second
            global_weights.finish(write_head(outcome))
            if colocated:
                colocated.join()
        return outcome

    def _notify(self, milestone: Milestone) -> None:
        for listener in self.solver.listeners:
            listener(milestone)

    def _memory(self, workers: int) -> dict[str, Buffer]:
        """Return what a snapshot has of the server's memory, as far as this run uses it."""
        memory = self.solver.runtime.run_state.resumed.get(SERVER_MEMORY, {})
        used = names_used(self._plan.parallel_param, workers)
        return {name: memory[name].numpy() for name in used if name in memory}

    def _hold(self, weights: Buffer, comm: Communicator) -> GlobalWeights | ShardedWeightsClient:
        """Return the global weights, which are here or on parameter servers."""
        if not self._roles.servers:
            return GlobalWeights(weights, self._flat.trained)
        return ShardedWeightsClient(comm, parts_of(self._flat.size, self._roles.holders), weights, self._roles.workers)

    def _work(self, trainer: Trainer, link: ToServer, threads: int) -> None:
        """Run the worker in its thread."""
        torch.set_num_threads(threads)  # torch's setting is per thread
        number = self._roles.worker
        assert number is not None
        signals = trainer if isinstance(trainer, WorkerRanks) else None  # signals to its other ranks
        Worker(number, trainer, link, self.assignment, signals).run()

    def _links(self, comm: Communicator, coded: Coded) -> tuple[list[ToWorker], Colocated | None]:
        links: list[ToWorker] = []
        colocated = None
        shipments, holders = tuple(self._shipments.values()), self._roles.holders
        size, dtype = self._flat.size, self._flat.dtype
        for worker, rank in enumerate(self._roles.workers):
            if rank == SERVER:
                colocated = Colocated()
                links.append(colocated)
            else:
                links.append(RemoteWorker(comm, rank, worker, size, dtype, shipments, holders, coded))
        return links, colocated

    def _warn_of_one_host(self, hosts: Sequence[str]) -> None:
        param = self._plan.parallel_param.compression_param
        if param.name and param.links == pb.CompressionParameter.BETWEEN_HOSTS and len(set(hosts)) == 1:
            LOG.warning(
                "parallel_param: compression_param has no effect, since all workers are on the server's host; links: "
                "ALL is for what travels there, too"
            )

    def _name(self, worker: int, nodes: Sequence[NodeFacts]) -> str:
        return f"worker {worker} ({self._roles.place(worker)}, host {nodes[worker].host})"

    def _facts_now(self) -> RunFacts:
        """Return the facts that must equal those of a run to repeat, before the workers are known."""
        return RunFacts(
            self._plan.shared_text,
            net_digest(self.solver.net.graph),
            hashlib.blake2b(self._flat.pack().tobytes(), digest_size=8).hexdigest(),
            self._samples,
            len(self._roles.workers),
            self.solver.runtime.seed,
        )

    def _record(self, weights: Buffer) -> RunRecord:
        exchange, balance = self._names
        title = f"{self.solver.net.graph.name}, {exchange} + {balance}, {self._roles.nodes}"
        outer = self._plan.parallel_param.agwu_param
        submissions = 0 if self._server_update or outer.local_epochs > 1 else math.ceil(self.assignment.total)
        record = RunRecord(title=title, weights=weights.nbytes, iterations=submissions)
        record.facts.update({"exchange": exchange, "balance": balance})
        if self._roles.ranks > 1:
            record.facts["node"] = f"a {self._roles.node}"
        return record

    def _report(self, record: RunRecord) -> None:
        log_lines(LOG, summary_lines(record))
        write_csv(record, self._folder)
        try:
            draw(record, self._folder)
        except UserError as error:
            LOG.info("No figures: %s", error)
        LOG.info("Report: %s", self._folder)
