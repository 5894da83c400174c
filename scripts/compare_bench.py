#!/usr/bin/env python3
"""Compares two runs of one Google Benchmark binary: did anything become slower?

    scripts/compare_bench.py BASELINE.json CONTENDER.json [--metric real_time] [--ratio 1.10]
                             [--alpha 0.05]

Make both files on one quiet machine, with repetitions interleaved:

    BINARY --benchmark_repetitions=9 --benchmark_enable_random_interleaving=true \\
           --benchmark_out=FILE.json --benchmark_out_format=json

For each benchmark in both: the ratio of the medians (contender / baseline) and the p-value of
the two-sided Mann-Whitney U test. "slower" needs both a ratio above the limit and p below alpha;
run again to confirm before believing it. Exit status: 0 nothing slower, 1 something slower,
2 usage, 3 unreadable input, 7 nothing comparable (no common benchmark, or fewer than 5 repetitions
of each).
"""

import argparse
import itertools
import json
import math
import statistics
import sys

MIN_REPETITIONS = 5
# Exact distribution up to this many ways to split the samples; the normal law beyond.
MAX_EXACT_SPLITS = 200_000


def ranks_of(values):
    """Ranks from 1, ties share their mean rank."""
    order = sorted(range(len(values)), key=values.__getitem__)
    ranks = [0.0] * len(values)
    begin = 0
    while begin < len(order):
        end = begin
        while end + 1 < len(order) and values[order[end + 1]] == values[order[begin]]:
            end += 1
        for position in range(begin, end + 1):
            ranks[order[position]] = (begin + end) / 2 + 1
        begin = end + 1
    return ranks


def mann_whitney_p(a, b):
    """Two-sided p-value that a and b come from one distribution (Mann and Whitney 1947)."""
    n, m = len(a), len(b)
    ranks = ranks_of(list(a) + list(b))
    mean = n * (n + m + 1) / 2
    deviation = abs(sum(ranks[:n]) - mean)
    if math.comb(n + m, n) <= MAX_EXACT_SPLITS:
        splits = itertools.combinations(ranks, n)
        extreme = sum(abs(sum(split) - mean) >= deviation - 1e-9 for split in splits)
        return extreme / math.comb(n + m, n)
    tie_sizes = [ranks.count(rank) for rank in set(ranks)]
    ties = sum(size**3 - size for size in tie_sizes)
    total = n + m
    variance = n * m / 12 * (total + 1 - ties / (total * (total - 1)))
    if variance == 0:
        return 1.0
    # Continuity correction of one half.
    z = max(0.0, deviation - 0.5) / math.sqrt(variance)
    return math.erfc(z / math.sqrt(2))


def load(path, metric):
    """Benchmark name -> its samples in nanoseconds, aggregates left out."""
    scale = {"ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9}
    with open(path, encoding="utf-8") as file:
        document = json.load(file)
    samples = {}
    for entry in document["benchmarks"]:
        if entry.get("run_type") == "aggregate" or entry.get("error_occurred"):
            continue
        samples.setdefault(entry["run_name"], []).append(
            float(entry[metric]) * scale[entry["time_unit"]])
    return samples


def compare(baseline, contender, max_ratio, alpha):
    """Rows (name, baseline median, contender median, ratio, p, verdict) of what is in both."""
    rows = []
    for name, before in baseline.items():
        after = contender.get(name)
        if not after:
            continue
        medians = statistics.median(before), statistics.median(after)
        ratio = medians[1] / medians[0] if medians[0] > 0 else math.inf
        if min(len(before), len(after)) < MIN_REPETITIONS:
            rows.append((name, *medians, ratio, None, "too few"))
            continue
        p = mann_whitney_p(before, after)
        verdict = "same"
        if p < alpha and ratio > max_ratio:
            verdict = "slower"
        elif p < alpha and ratio < 1 / max_ratio:
            verdict = "faster"
        rows.append((name, *medians, ratio, p, verdict))
    return rows


def print_rows(rows):
    width = max([9] + [len(row[0]) for row in rows])
    print(f"{'benchmark':<{width}}  {'baseline':>12}  {'contender':>12}  {'ratio':>6}  {'p':>7}  "
          "verdict")
    for name, before, after, ratio, p, verdict in rows:
        shown_p = "-" if p is None else f"{p:.4f}"
        print(f"{name:<{width}}  {before / 1e3:>9.2f} us  {after / 1e3:>9.2f} us  {ratio:>6.3f}  "
              f"{shown_p:>7}  {verdict}")


def main():
    parser = argparse.ArgumentParser(description="see the head of this file")
    parser.add_argument("baseline")
    parser.add_argument("contender")
    parser.add_argument("--metric", default="real_time", choices=("real_time", "cpu_time"))
    parser.add_argument("--ratio", type=float, default=1.10)
    parser.add_argument("--alpha", type=float, default=0.05)
    options = parser.parse_args()
    try:
        baseline = load(options.baseline, options.metric)
        contender = load(options.contender, options.metric)
    except (OSError, ValueError, KeyError, TypeError) as error:
        print(f"not a Google Benchmark JSON file: {error!r}", file=sys.stderr)
        return 3
    rows = compare(baseline, contender, options.ratio, options.alpha)
    print_rows(rows)
    if not any(row[5] != "too few" for row in rows):
        print(f"nothing comparable: at least {MIN_REPETITIONS} repetitions of a common benchmark "
              "are needed", file=sys.stderr)
        return 7
    return 1 if any(row[5] == "slower" for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
