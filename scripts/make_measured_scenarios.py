#!/usr/bin/env python3
"""Brings measured tables into the form that moe-plan reads (scenarios/measured).

    scripts/make_measured_scenarios.py SOURCE_DIR [scenarios/measured]

SOURCE_DIR holds efficiency.json, collective_fits.json and end_to_end.csv as described in
scenarios/measured/SOURCES.md. Kernel fits with a floor above 60 us are left out: those rows carry
host time of the measuring program. Of the end-to-end rows those without a note are kept. The
step constants are not made here: `moe-plan calibrate` fits them.
"""

import csv
import json
import sys
from pathlib import Path

FORMATS = {"bfloat16": "bf16", "fp8": "fp8", "fp8_block": "fp8-block128", "nvfp4": "nvfp4",
           "int4_wo": "int4-g128", "w4a16_mxfp4": "mxfp4", "w4a8_mxfp4_mxfp8": "mxfp4-a8"}
KERNELS = ("moe", "gemm", "decode_attention", "prefill_attention", "decode_mla", "prefill_mla")
ENGINES = {"trtllm": "trtllm", "vllm": "vllm", "sglang": "sglang"}
MAX_FLOOR_US = 60.0


def digits(value):
    return float(f"{value:.4g}")


def kernels(source, gpus):
    rows = []
    for kind in KERNELS:
        for fit in source[kind]:
            name = fit.get("quant") or fit.get("kv_cache_dtype")
            if fit["engine"] not in ENGINES or name not in FORMATS or fit["gpu"] not in gpus:
                continue
            if fit["t0_us"] > MAX_FLOOR_US:
                continue
            rows.append({"kernel": kind, "gpu": gpus[fit["gpu"]], "engine": ENGINES[fit["engine"]],
                         "format": FORMATS[name], "t0_s": digits(fit["t0_us"] * 1e-6),
                         "bytes_share": digits(fit["eff_bytes"]),
                         "flops_share": digits(fit["eff_flops"]),
                         "held_out_error": digits(fit["held"]["median_abs_err"])})
    return {"schema_version": 1,
            "source": source["source"],
            "meaning": "time = t0 + bytes / (bytes_share * bandwidth) + flops / (flops_share * "
                       "dense peak); held_out_error: median relative error on unseen points",
            "fits": rows}


def collectives(source, gpus):
    best = {}
    for fit in source["fits"]:
        if fit["op"] != "all_reduce" or fit["dtype"] not in ("half", "bfloat16"):
            continue
        if fit["mode"] == "eager" or fit["gpu"] not in gpus:
            continue
        if fit["library"] not in ENGINES and fit["library"] != "nccl":
            continue
        model = fit["sqrt_model"]
        row = {"gpu": gpus[fit["gpu"]], "library": fit["library"], "num_ranks": fit["n"],
               "alpha_s": digits(model["alpha_us"] * 1e-6),
               "bytes_per_s": digits(model["beta_busbw_gbs"] * 1e9),
               "s_per_sqrt_byte": digits(model["gamma_us_per_sqrt_byte"] * 1e-6),
               "held_out_error": digits(model["err_held"][0])}
        key = (row["gpu"], row["library"], row["num_ranks"])
        if key not in best or row["held_out_error"] < best[key]["held_out_error"]:
            best[key] = row
    return {"schema_version": 1,
            "source": source["source"],
            "meaning": "time = alpha + 2 (n-1)/n bytes / bytes_per_s + s_per_sqrt_byte "
                       "sqrt(bytes); bytes: the buffer of one rank; inside CUDA graphs",
            "all_reduce": [best[key] for key in sorted(best)]}


def one_line_rows(document, key):
    """JSON with one entry a line, so that a change is one line."""
    head = {k: v for k, v in document.items() if k != key}
    text = json.dumps(head, indent=2)[:-2] + f',\n  "{key}": [\n'
    return text + ",\n".join("    " + json.dumps(row) for row in document[key]) + "\n  ]\n}\n"


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    source = Path(sys.argv[1])
    target = Path(sys.argv[2] if len(sys.argv) > 2 else "scenarios/measured")
    target.mkdir(parents=True, exist_ok=True)
    efficiency = json.loads((source / "efficiency.json").read_text())
    gpus = {name: peak["hardware_id"] for name, peak in efficiency["peaks"].items()}
    (target / "kernels.json").write_text(one_line_rows(kernels(efficiency, gpus), "fits"))
    fits = json.loads((source / "collective_fits.json").read_text())
    (target / "collectives.json").write_text(one_line_rows(collectives(fits, gpus), "all_reduce"))
    with (source / "end_to_end.csv").open(newline="") as rows, \
            (target / "end_to_end.csv").open("w", newline="") as out:
        reader = csv.DictReader(rows)
        writer = csv.DictWriter(out, reader.fieldnames, lineterminator="\n")
        writer.writeheader()
        writer.writerows(row for row in reader if not row["note"])


if __name__ == "__main__":
    main()
