"""Figures of scripts/compare_peers.py: shapes, order of a round, checks, samples and the table."""

import array
import json
import math
import pathlib
import statistics
import struct
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
MAX_WAIT_SHARE = 0.03
# Distinct experts against the other engines' median on as many random tokens.
MAX_EXPERT_DIFFERENCE = 0.25


class PeerError(Exception):
    """An engine or a model that cannot be had: one line."""


def expand(name):
    """NAME or NAME/N -> (label, sizes) from scenarios/models."""
    base, _, divisor = name.partition("/")
    path = ROOT / "scenarios" / "models" / f"{base}.json"
    if not path.exists() or (divisor and not divisor.isdigit()) or divisor == "0":
        raise PeerError(f"{name}: no such config in scenarios/models")
    return name.replace("/", "-over-"), sizes_of(json.loads(path.read_text()), int(divisor or 1))


def sizes_of(config, divisor):
    heads = config["num_attention_heads"]
    return {
        "hidden_size": config["hidden_size"] // divisor,
        "intermediate_size": config.get("moe_intermediate_size",
                                        config["intermediate_size"]) // divisor,
        "num_attention_heads": max(1, heads // divisor),
        "num_key_value_heads": max(1, config["num_key_value_heads"] // divisor),
        "head_dim": config.get("head_dim") or config["hidden_size"] // heads,
        "num_local_experts": config.get("num_local_experts") or config["num_experts"],
        "num_experts_per_tok": config["num_experts_per_tok"],
    }


def layer_sizes(sizes):
    """The same MoE block beside the least attention."""
    return sizes | {"num_attention_heads": 1, "num_key_value_heads": 1, "head_dim": 64}


def cells_of(prefills, batches):
    return [("prefill", n) for n in prefills] + [("decode", b) for b in batches]


def round_order(rng, cells, engines):
    """(cell, engine) of one round: cells in turn, engines of each in random order."""
    order = []
    for cell in cells:
        turn = list(engines)
        rng.shuffle(turn)
        order += [(cell, engine) for engine in turn]
    return order


def expected_experts(experts, top_k, tokens):
    """Distinct experts of so many tokens when routing is uniform."""
    return experts * (1 - (1 - top_k / experts) ** tokens)


def wait_share(before, after):
    """Share of the time they asked for that the threads stood waiting."""
    ran, waited = after[0] - before[0], after[1] - before[1]
    return waited / (ran + waited) if ran + waited > 0 else 0.0


def rows_of(report, table):
    """Rows of a table of a report, each by the names of its columns."""
    names = [column["name"] for column in report["tables"][table]["columns"]]
    return [dict(zip(names, row)) for row in report["tables"][table]["rows"]]


def token_times(report, batch, prompt_tokens):
    """When each token of a point's only repetition came, since its start: the raw samples, because
    a report states no median below 7 of them."""
    rows = [row for row in rows_of(report, "samples")
            if (row["batch"], row["prompt_tokens"]) == (batch, prompt_tokens)]
    return [row["time_s"] for row in sorted(rows, key=lambda row: row["token"])]


def decode_experts(report, batch):
    """Mean distinct experts of a step, from a report of one batch or of several."""
    name = "decode_distinct_experts"
    for key, metric in report["metrics"].items():
        if key.startswith(f"{name}.batch_{batch}."):
            return metric["value"]
    return report["metrics"][name]["value"]


def prefill_experts(report):
    """Distinct experts of the layer that reached most: a prefill's last layer may have run for one
    row only. The table holds all points together."""
    reached = {}
    for row in rows_of(report, "routing_expert_load"):
        reached[row["layer"]] = reached.get(row["layer"], 0) + (row["prefill_tokens"] > 0)
    return max(reached.values())


def figures_of(report, kind, sizes):
    """(seconds, distinct experts or None) of each size, from a report of moe-bench run."""
    if kind == "prefill":
        experts = prefill_experts(report) if len(sizes) == 1 else None
        return [(token_times(report, 1, size)[0], experts) for size in sizes]
    (prompt,) = {row["prompt_tokens"] for row in rows_of(report, "samples")}
    figures = []
    for size in sizes:
        times = token_times(report, size, prompt)
        gaps = [after - before for before, after in zip(times, times[1:])]
        figures.append((statistics.median(gaps), decode_experts(report, size)))
    return figures


def read_logits(raw, num_tokens, vocab_size):
    """The rows of "logits" in a safetensors file."""
    (length,) = struct.unpack_from("<Q", raw)
    entry = json.loads(raw[8:8 + length])["logits"]
    if entry["dtype"] != "F32" or entry["shape"] != [num_tokens, vocab_size]:
        raise PeerError(f"logits: expected F32 of {num_tokens} x {vocab_size}, found "
                        f"{entry['dtype']} of {entry['shape']}")
    begin, end = (8 + length + offset for offset in entry["data_offsets"])
    values = array.array("f", raw[begin:end])
    if sys.byteorder == "big":
        values.byteswap()
    return [values[row * vocab_size:(row + 1) * vocab_size] for row in range(num_tokens)]


def logit_error(rows, truth):
    """Root mean square of the difference over the spread of the true logits: the median over
    positions, because a token whose experts are a tie may take others."""
    errors = []
    for row, true in zip(rows, truth, strict=True):
        square = sum((a - b) ** 2 for a, b in zip(row, true, strict=True)) / len(true)
        # A value that is not finite is no order to sort by.
        error = math.sqrt(square) / statistics.pstdev(true)
        errors.append(error if math.isfinite(error) else math.inf)
    return statistics.median(errors)


def expert_faults(counted, experts, top_k, tokens):
    """Engines whose distinct experts are far from the others', or from what can be."""
    known = {name: count for name, count in counted.items() if count is not None}
    middle = statistics.median(known.values()) if known else 0
    most = min(experts, top_k * tokens)
    return [name for name, count in known.items()
            if not top_k <= count <= most + 1e-9
            or abs(count - middle) > MAX_EXPERT_DIFFERENCE * middle]


def is_kept(sample):
    return sample["wait_share"] <= MAX_WAIT_SHARE and sample["disk_faults"] == 0


def summarise(samples):
    """Median, spread (half the distance of the quartiles over the median), and how many count.

    No median where the difference that a layer is drowns in the noise of the two it comes from.
    """
    seconds = sorted(sample["seconds"] for sample in samples)
    if not seconds:
        return {"median_s": None, "spread": None, "samples": 0}
    middle = statistics.median(seconds)
    if middle <= 0:
        return {"median_s": None, "spread": None, "samples": len(seconds)}
    spread = 0.0
    if len(seconds) > 1:
        low, _, high = statistics.quantiles(seconds, n=4, method="inclusive")
        spread = (high - low) / 2 / middle
    return {"median_s": middle, "spread": spread, "samples": len(seconds)}


def difference_samples(two, one):
    """Layer samples: a model of 2 layers minus one of 1, paired by round."""
    return [a | {"seconds": a["seconds"] - b["seconds"],
                 "wait_share": max(a["wait_share"], b["wait_share"]),
                 "disk_faults": a["disk_faults"] + b["disk_faults"]} for a, b in zip(two, one)]


def table_of(samples, experts, errors, keep_contended):
    """samples: (model, cell, engine) -> list; experts: the same -> number; errors: (model, engine)
    -> number. Rows with ratio = time of the peer over ours."""
    rows = []
    for (model, cell, engine), taken in samples.items():
        kept = [one for one in taken if keep_contended or is_kept(one)]
        row = {"model": model, "cell": cell, "engine": engine, "dropped": len(taken) - len(kept)}
        row |= summarise(kept)
        row["experts"] = experts.get((model, cell, engine))
        row["logit_error"] = errors.get((model, engine))
        rows.append(row)
    ours = {(row["model"], row["cell"]): row for row in rows if row["engine"] == "moe-bench"}
    for row in rows:
        own = ours.get((row["model"], row["cell"]), {}).get("median_s")
        enough = own is not None and row["median_s"] is not None
        row["ratio"] = row["median_s"] / own if enough else None
    # Models and cells as they came, in each cell ours first.
    models = list(dict.fromkeys(row["model"] for row in rows))
    cells = list(dict.fromkeys(row["cell"] for row in rows))
    return sorted(rows, key=lambda row: (models.index(row["model"]), cells.index(row["cell"]),
                                         not row["engine"].startswith("moe-bench"), row["engine"]))


def print_table(rows, out):
    def cell(value, form):
        return "-" if value is None else format(value, form)
    print(f"{'model':32}{'cell':19}{'engine':17}{'median ms':>11}{'spread':>8}{'kept':>6}"
          f"{'dropped':>9}{'experts':>9}{'error':>9}{'ratio':>8}", file=out)
    for row in rows:
        milliseconds = None if row["median_s"] is None else row["median_s"] * 1e3
        spread = None if row["spread"] is None else row["spread"] * 100
        print(f"{row['model']:32}{row['cell']:19}{row['engine']:17}{cell(milliseconds, '.2f'):>11}"
              f"{cell(spread, '.1f') + '%':>8}{row['samples']:>6}{row['dropped']:>9}"
              f"{cell(row['experts'], '.1f'):>9}{cell(row['logit_error'], '.4f'):>9}"
              f"{cell(row['ratio'], '.2f'):>8}", file=out)
    print("ratio: time of the engine over that of moe-bench on the same file, above 1 is slower; "
          "error: of the logits against float32 on the weights before rounding, over their spread; "
          "spread: half the distance of the quartiles over the median", file=out)
