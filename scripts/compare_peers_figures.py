"""Figures of scripts/compare_peers.py: shapes, order of a round, checks, samples and the table."""

import json
import pathlib
import statistics
import struct

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


def mixtral_config(sizes, layers, vocab_size, context):
    return {"architectures": ["MixtralForCausalLM"], "model_type": "mixtral", "hidden_act": "silu",
            "vocab_size": vocab_size, "max_position_embeddings": context, "rms_norm_eps": 1e-5,
            "rope_theta": 1e6, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
            "bos_token_id": 1, "eos_token_id": 2, "sliding_window": None,
            "num_hidden_layers": layers} | sizes


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


def token_times(report):
    """When each token of the only repetition came, since its start: the raw samples, because a
    report states no median below 7 of them."""
    return [row["time_s"]
            for row in sorted(rows_of(report, "samples"), key=lambda row: row["token"])]


def figures_of(report, kind):
    """Seconds and mean distinct experts of a report of moe-bench run with one point."""
    times = token_times(report)
    if kind == "decode":
        gaps = [after - before for before, after in zip(times, times[1:])]
        return statistics.median(gaps), report["metrics"]["decode_distinct_experts"]["value"]
    reached = {}
    for row in rows_of(report, "routing_expert_load"):
        reached[row["layer"]] = reached.get(row["layer"], 0) + (row["prefill_tokens"] > 0)
    # A prefill's last layer may have run for one row only.
    return times[0], max(reached.values())


def write_golden(path, ids, rows):
    """The two tensors that `moe-bench verify` needs, as safetensors."""
    blobs = {"input_ids": ("I32", [len(ids)], struct.pack(f"<{len(ids)}i", *ids)),
             "logits": ("F32", [len(rows), len(rows[0])],
                        b"".join(struct.pack(f"<{len(row)}f", *row) for row in rows))}
    header, offset = {}, 0
    for name, (dtype, shape, raw) in blobs.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, offset + len(raw)]}
        offset += len(raw)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(b[2] for b in blobs.values()))


def logit_error(report, rows):
    """Largest difference of a logit over their standard deviation, from a report of verify."""
    worst = next(row["max_error"] for row in rows_of(report, "verify_stages")
                 if row["stage"] == "logits")
    return worst / statistics.pstdev([value for row in rows for value in row])


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


def table_of(samples, keep_contended):
    """samples: (model, cell, engine) -> list. Rows with ratio = time of the peer over ours."""
    rows = []
    for (model, cell, engine), taken in samples.items():
        kept = [one for one in taken if keep_contended or is_kept(one)]
        row = {"model": model, "cell": cell, "engine": engine, "dropped": len(taken) - len(kept)}
        row |= summarise(kept)
        counts = [one["experts"] for one in taken if one.get("experts") is not None]
        row["experts"] = statistics.mean(counts) if counts else None
        rows.append(row)
    ours = {(row["model"], row["cell"]): row for row in rows if row["engine"] == "moe-bench"}
    for row in rows:
        own = ours.get((row["model"], row["cell"]), {}).get("median_s")
        enough = own is not None and row["median_s"] is not None
        row["ratio"] = row["median_s"] / own if enough else None
    return rows


def print_table(rows, out):
    def cell(value, form):
        return "-" if value is None else format(value, form)
    print(f"{'model':26}{'cell':18}{'engine':11}{'median ms':>11}{'spread':>8}{'kept':>6}"
          f"{'dropped':>9}{'experts':>9}{'ratio':>8}", file=out)
    for row in rows:
        milliseconds = None if row["median_s"] is None else row["median_s"] * 1e3
        spread = None if row["spread"] is None else row["spread"] * 100
        print(f"{row['model']:26}{row['cell']:18}{row['engine']:11}{cell(milliseconds, '.2f'):>11}"
              f"{cell(spread, '.1f') + '%':>8}{row['samples']:>6}{row['dropped']:>9}"
              f"{cell(row['experts'], '.1f'):>9}{cell(row['ratio'], '.2f'):>8}", file=out)
    print("ratio: time of the engine over that of moe-bench, above 1 is slower; spread: half the "
          "distance of the quartiles over the median", file=out)


def generated_ids(report):
    return rows_of(report, "generated")[0]["token_ids"]
