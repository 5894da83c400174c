#!/usr/bin/env python3
"""Serve a GGUF file with llama.cpp's server, as the PyPI package xllamacpp carries it.

    scripts/llama_server.py MODEL.gguf PORT SLOTS CONTEXT_TOKENS_PER_SLOT
"""

import signal
import sys

import xllamacpp


def main():
    if len(sys.argv) != 5:
        print(__doc__.split("\n\n")[1].strip(), file=sys.stderr)
        return 2
    params = xllamacpp.CommonParams()
    params.model.path = sys.argv[1]
    params.port = int(sys.argv[2])
    params.n_parallel = int(sys.argv[3])
    params.n_ctx = int(sys.argv[3]) * int(sys.argv[4])
    params.cpuparams.n_threads = 2
    params.endpoint_metrics = True
    server = xllamacpp.Server(params)
    print("listening on", server.listening_address, file=sys.stderr, flush=True)
    signal.pause()
    return 0


if __name__ == "__main__":
    sys.exit(main())
