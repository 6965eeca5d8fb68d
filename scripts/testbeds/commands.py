"""A cluster of unlike hosts on one Linux machine, as root. docs/testbed.md explains it.

  scripts/testbed up --hosts 'a:1.0,b:0.25' --bandwidth 1gbit    a host with one core, one with a quarter of a core
  scripts/testbed run -- bpt train --solver S                    mpirun over all hosts, a rank a slot
  scripts/testbed run --slots a:2,b:1 -- bpt train --solver S    two ranks on a, one on b
  scripts/testbed run --on b -- hostname                         a command on one host, without mpirun
  scripts/testbed status                                         the hosts, and what runs on them
  scripts/testbed down                                           end all that runs there, and remove it

Exit status: run passes on that of the command; else 0 done, 1 failed, 2 the command line is wrong.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from bpt.base.errors import BptError, UsageError
from scripts.testbeds import bed, cgroups, job, mpirun
from scripts.testbeds.hosts import find_host, parse_hosts, parse_slots
from scripts.testbeds.link import Link, parse_bandwidth, parse_latency


class Parser(argparse.ArgumentParser):
    """One line for a mistake, as bpt has it."""

    def error(self, message: str) -> None:  # type: ignore[override]
        raise UsageError(f"{message}; see {self.prog} --help")


def make_parser() -> Parser:
    parser = Parser(prog="scripts/testbed", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", metavar="<command>", required=True)
    up = commands.add_parser("up", help="make the test bed", allow_abbrev=False)
    up.add_argument(
        "--hosts",
        required=True,
        metavar="NAME:SHARE[:SLOTS],...",
        help="names, shares of the processor in cores, and ranks (default: one a whole core, at least one)",
    )
    up.add_argument("--bandwidth", metavar="RATE", help="of each host's link, such as 1gbit (default: no limit)")
    up.add_argument("--latency", metavar="TIME", help="from host to host, one way, such as 1ms (default: none added)")
    run = commands.add_parser(
        "run",
        help="run a command on the test bed",
        usage="scripts/testbed run [-n N] [--slots a:2,b:1] [options of mpirun] -- COMMAND...\n"
        "       scripts/testbed run --on HOST -- COMMAND...",
        allow_abbrev=False,
    )
    run.add_argument("-n", "-np", "--np", dest="ranks", type=int, metavar="N", help="ranks (default: one a slot)")
    run.add_argument("--slots", metavar="NAME:SLOTS,...", help="the hosts that take part, and their ranks")
    run.add_argument("--on", metavar="HOST", help="run it on this host only, without mpirun")
    commands.add_parser("status", help="show the hosts, and what runs on them")
    commands.add_parser("down", help="end all that runs on the test bed, and remove it")
    return parser


def up(arguments: argparse.Namespace) -> int:
    link = Link(
        parse_bandwidth(arguments.bandwidth) if arguments.bandwidth else None,
        parse_latency(arguments.latency) if arguments.latency else 0.0,
    )
    made = bed.TestBed(parse_hosts(arguments.hosts), link)
    bed.up(made)
    wanted, cores = sum(host.share for host in made.hosts), len(os.sched_getaffinity(0))
    if wanted > cores:
        print(
            f"warning: the hosts' shares come to {wanted:g} cores and this machine has {cores}: busy hosts will slow "
            "each other",
            file=sys.stderr,
        )
    print(f"up: {made}")
    return 0


def run(arguments: argparse.Namespace, options: Sequence[str], command: Sequence[str]) -> int:
    if not command:
        raise UsageError("run: no command; it stands behind --, as in: scripts/testbed run -n 2 -- bpt train ...")
    present = bed.require_bed()
    if arguments.on is not None:
        if options or arguments.slots or arguments.ranks is not None:
            raise UsageError("run: --on runs the command without mpirun: no -n, --slots or options of mpirun with it")
        first, words = find_host(arguments.on, present.hosts, "--on").name, [*command]
    else:
        slots = {host.name: host.slots for host in present.hosts}
        if arguments.slots:
            slots = parse_slots(arguments.slots, present.hosts)
        # As on a cluster, mpirun itself runs on the first of the hosts that it starts ranks on.
        first = next(iter(slots))
        words = [*mpirun.words(slots, arguments.ranks, options), *command]
    print(f"test bed, up since {bed.since()}: {present}", file=sys.stderr)
    with job.make_job(present) as made:
        return made.run(first, words, mpirun.environment(made.enter, os.environ))


def status() -> int:
    present = bed.load()
    if present is None:
        found = bed.remains()
        print(f"no test bed is up; remains of one: {', '.join(found)}" if found else "no test bed is up")
        return 0
    print(present.link)
    print(f"{'host':<12} {'address':<12} {'share':>6} {'slots':>6}  processes")
    for host in present.hosts:
        group = cgroups.find().host(host.name)
        running = ", ".join(f"{pid} {cgroups.program(pid)}" for pid in cgroups.processes(group)) or "none"
        print(f"{host.name:<12} {host.address:<12} {host.share:>6g} {host.slots:>6}  {running}")
    return 0


def down() -> int:
    found = bed.down()
    print(f"removed: {', '.join(found)}" if found else "there was no test bed")
    return 0


def dispatch(argv: Sequence[str]) -> int:
    # All behind the first -- is the command's, whatever it looks like.
    end = argv.index("--") if "--" in argv else len(argv)
    parser = make_parser()
    arguments, options = parser.parse_known_args(argv[:end])
    if arguments.command == "run":
        return run(arguments, options, argv[end + 1 :])
    if options or end < len(argv):
        raise UsageError(f"{arguments.command}: unknown: {' '.join([*options, *argv[end:]])}")
    return {"up": lambda: up(arguments), "status": status, "down": down}[arguments.command]()


def main() -> int:
    """Run one command and return its exit status."""
    try:
        return dispatch(sys.argv[1:])
    except BptError as error:
        return _tell(error, error.exit_status)
    except OSError as error:
        return _tell(error)
    except KeyboardInterrupt:
        return _tell("interrupted")


def _tell(error: object, status: int = 1) -> int:
    print(f"error: {error}", file=sys.stderr)
    return status
