"""Reads the numbers out of a log, with the regular expressions of Caffe's own ``parse_log``."""

from __future__ import annotations

import re

NUMBER = r"([-+]?[0-9]*\.?[0-9]+(?:[eE][-+]?[0-9]+)?)"
ITERATION = re.compile(r"Iteration (\d+)")
OUTPUT = re.compile(rf"(Train|Test) net output #(\d+): (\S+) = {NUMBER}")
RATE = re.compile(rf"lr = {NUMBER}")
LOSS = re.compile(rf"Iteration (\d+)(?: \(.*?\))?, loss = {NUMBER}")
BATCH = re.compile(rf"Batch (\d+), (\S+) = {NUMBER}")
TOTAL = re.compile(rf"\] (Loss: |\w+ = ){NUMBER}")

Row = tuple[str, float]


def numbers(log: str) -> list[Row]:
    """What the log says, line by line: a label and a number, in order."""
    rows: list[Row] = []
    iteration = "-"
    for line in log.splitlines():
        if found := ITERATION.search(line):
            iteration = found[1]
        if found := LOSS.search(line):
            rows.append((f"{found[1]} smoothed loss", float(found[2])))
        elif found := OUTPUT.search(line):
            rows.append((f"{iteration} {found[1]} #{found[2]} {found[3]}", float(found[4])))
        elif found := BATCH.search(line):
            rows.append((f"batch {found[1]} {found[2]}", float(found[3])))
        elif "Iteration" in line and (found := RATE.search(line)):
            rows.append((f"{iteration} lr", float(found[1])))
        elif found := TOTAL.search(line):
            rows.append((found[1], float(found[2])))
    return rows
