#!/usr/bin/env python3
"""Runs a GGUF file in the libllama.so of llama.cpp or ik_llama.cpp, for scripts/compare_peers.py.

    scripts/compare_peers_llama.py LIBRARY_DIR MODEL.gguf THREADS CONTEXT SEQUENCES [--repack]
    scripts/compare_peers_llama.py --quantize LIBRARY_DIR IN.gguf OUT.gguf FTYPE THREADS

Reads one JSON request a line and answers each with one JSON line:

    {"do": "logits", "ids": [...]}            -> {"rows": [[...], ...]}, one row a position
    {"do": "prefill", "ids": [...], "count": bool}
                                              -> {"seconds": s, "experts": mean distinct, or null}
    {"do": "decode", "prompts": [[...], ...], "steps": [[...], ...], "count": bool}
                                              -> {"seconds": [one a step], "experts": mean distinct}

The library is called directly, because its own batched benchmark feeds every sequence the same
token, which sends all of them to the same experts. Experts are counted in a pass of their own
that is not timed, where "count" asks for it. The two projects and their versions differ in names
and in the layout of the structures, which are passed by value: only fields that can be found by
their defaults are set. --repack asks ik_llama.cpp to repack the weights at load, as its -rtr does.
"""

import ctypes
import json
import pathlib
import struct
import sys
import time

# Larger than every version's; callees read no further than their own size.
STRUCT_BYTES = 512
# n_ctx, n_batch, n_ubatch, n_seq_max: neighbours in both projects.
CONTEXT_DEFAULTS = struct.pack("<4I", 512, 2048, 512, 1)
TYPE_F16 = 1


class Opaque(ctypes.Structure):
    _fields_ = [("raw", ctypes.c_ubyte * STRUCT_BYTES)]


class Batch(ctypes.Structure):
    _fields_ = [("n_tokens", ctypes.c_int32), ("token", ctypes.c_void_p),
                ("embd", ctypes.c_void_p), ("pos", ctypes.c_void_p),
                ("n_seq_id", ctypes.c_void_p), ("seq_id", ctypes.c_void_p),
                ("logits", ctypes.c_void_p), ("rest", ctypes.c_ubyte * 64)]


EvalCallback = ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_void_p, ctypes.c_bool, ctypes.c_void_p)
LogCallback = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)


def context_offset(defaults):
    """Where n_ctx stands, or an error: the layout is one that this script does not know."""
    at = defaults.find(CONTEXT_DEFAULTS, 0, 64)
    if at < 0 or at % 4:
        raise RuntimeError("llama_context_default_params: n_ctx was not found by its default")
    return at


def callback_offset(defaults, begin):
    """Where cb_eval stands: two null pointers before the types of the K and V cache."""
    types = struct.pack("<2I", TYPE_F16, TYPE_F16)
    for at in range(begin + 24 + (-begin - 24) % 8, STRUCT_BYTES - 24, 8):
        if defaults[at:at + 16] == bytes(16) and defaults[at + 16:at + 24] == types:
            return at
    return None


def repack_offset(defaults):
    """Where repack_tensors of ik_llama.cpp stands: the fifth of the flags that follow the pointers,
    of which only the second, use_mmap, is true; or an error."""
    flags = bytes((0, 1, 0, 0, 0))
    for at in range(32, STRUCT_BYTES - len(flags), 8):
        if defaults[at - 32:at] == bytes(32) and defaults[at:at + len(flags)] == flags:
            return at + 4
    raise RuntimeError("llama_model_default_params: repack_tensors was not found by its default")


def num_distinct(ids, top_k, num_tokens, stride):
    """Distinct experts among the first top_k of each token's row of `stride` ids."""
    return len({ids[token * stride + k] for token in range(num_tokens) for k in range(top_k)})


class Library:
    def __init__(self, folder):
        for name in ("libggml-base.so", "libggml-cpu.so", "libggml.so"):
            if (folder / name).exists():
                self.ggml = ctypes.CDLL(str(folder / name), ctypes.RTLD_GLOBAL)
        self.folder = folder
        self.llama = ctypes.CDLL(str(folder / "libllama.so"), ctypes.RTLD_GLOBAL)
        self.messages = LogCallback(self.keep)
        self.kept = []

    def keep(self, level, text, data):
        self.kept.append(text or b"")

    def start(self):
        self.function("llama_log_set", None, LogCallback, ctypes.c_void_p)(self.messages, None)
        if hasattr(self.llama, "ggml_backend_load_all_from_path"):
            self.function("ggml_backend_load_all_from_path", None, ctypes.c_char_p)(
                str(self.folder).encode())
        self.function("llama_backend_init", None)()

    def function(self, names, result, *arguments):
        for name in names if isinstance(names, tuple) else (names,):
            if hasattr(self.llama, name):
                found = getattr(self.llama, name)
                found.restype, found.argtypes = result, list(arguments)
                return found
        raise RuntimeError(f"libllama.so has none of {names}")


def quantize(folder, source, out, ftype, threads):
    """Writes the file in another format, as the library's own tool does."""
    lib = Library(folder)
    lib.start()
    params = lib.function("llama_model_quantize_default_params", Opaque)()
    # nthread and ftype are the first two fields in both projects.
    struct.pack_into("<2i", params.raw, 0, threads, ftype)
    return lib.function("llama_model_quantize", ctypes.c_uint32, ctypes.c_char_p, ctypes.c_char_p,
                        ctypes.POINTER(Opaque))(source.encode(), out.encode(),
                                                ctypes.byref(params))


class Engine:
    def __init__(self, folder, model, threads, context_tokens, sequences, repack):
        lib = Library(folder)
        pointer = ctypes.c_void_p
        lib.start()
        params = lib.function("llama_model_default_params", Opaque)()
        if repack:
            params.raw[repack_offset(bytes(params.raw))] = 1
        self.model = lib.function(("llama_model_load_from_file", "llama_load_model_from_file"),
                                  pointer, ctypes.c_char_p, Opaque)(str(model).encode(), params)
        if not self.model:
            raise RuntimeError(f"{model}: the library does not load it")
        repacked = any(b"Repacked" in line for line in lib.kept)
        # It repacks 16-bit weights only where the processor multiplies bf16.
        self.note = "repacked nothing, runs the weights as stored" if repack and not repacked \
            else None
        self.new_context = lib.function(("llama_init_from_model", "llama_new_context_with_model"),
                                        pointer, pointer, Opaque)
        self.free_context = lib.function("llama_free", None, pointer)
        self.default_context = lib.function("llama_context_default_params", Opaque)
        self.set_threads = lib.function("llama_set_n_threads", None, pointer, ctypes.c_int32,
                                        ctypes.c_int32)
        self.decode_batch = lib.function("llama_decode", ctypes.c_int32, pointer, Batch)
        self.logits_of = lib.function("llama_get_logits_ith", ctypes.POINTER(ctypes.c_float),
                                      pointer, ctypes.c_int32)
        self.synchronize = lib.function("llama_synchronize", None, pointer)
        self.name_of = lib.function("ggml_get_name", ctypes.c_char_p, pointer)
        self.bytes_of = lib.function("ggml_nbytes", ctypes.c_size_t, pointer)
        self.count_of = lib.function("ggml_nelements", ctypes.c_int64, pointer)
        self.data_of = lib.function("ggml_get_data", pointer, pointer)
        self.lib, self.threads = lib, threads
        self.num_ctx, self.sequences = context_tokens * sequences, sequences
        self.distinct, self.num_tokens = [], 0
        self.callback = EvalCallback(self.see)
        self.timed = self.make_context(None)
        # Its graph runs node by node: for counting only.
        self.counting = self.make_context(self.callback)

    def make_context(self, callback):
        params = self.default_context()
        defaults = bytes(params.raw)
        at = context_offset(defaults)
        struct.pack_into("<4I", params.raw, at, self.num_ctx, 2048, 512, self.sequences)
        if callback is not None:
            place = callback_offset(defaults, at)
            if place is None:
                return None
            struct.pack_into("<Q", params.raw, place, ctypes.cast(callback, ctypes.c_void_p).value)
        context = self.new_context(self.model, params)
        if not context:
            raise RuntimeError("the library makes no context")
        self.set_threads(context, self.threads, self.threads)
        return context

    def see(self, tensor, ask, _):
        name = self.name_of(tensor) or b""
        if not name.startswith(b"ffn_moe_topk"):
            return not ask
        if ask:
            return True
        # A view on all experts in order of score: a row per token, the first ones are chosen.
        count, size = self.count_of(tensor), self.bytes_of(tensor)
        tokens = max(1, self.rows_in(count))
        top_k = count // tokens
        stride = (size // 4 - top_k) // (tokens - 1) if tokens > 1 else top_k
        ids = (ctypes.c_int32 * (size // 4)).from_address(self.data_of(tensor))
        self.distinct.append((num_distinct(ids, top_k, tokens, stride), tokens))
        return True

    def rows_in(self, count):
        """Tokens of this layer: the last layer of a prefill runs for one of them."""
        return self.num_tokens if count % self.num_tokens == 0 else 1

    def clear(self, context):
        llama = self.lib.llama
        if hasattr(llama, "llama_memory_clear"):
            memory = self.lib.function("llama_get_memory", ctypes.c_void_p, ctypes.c_void_p)
            self.lib.function("llama_memory_clear", None, ctypes.c_void_p, ctypes.c_bool)(
                memory(context), True)
            return
        self.lib.function(("llama_kv_self_clear", "llama_kv_cache_clear"), None,
                          ctypes.c_void_p)(context)

    def feed(self, context, tokens, positions, sequences, wanted):
        n = len(tokens)
        ids = (ctypes.c_int32 * n)(*tokens)
        places = (ctypes.c_int32 * n)(*positions)
        ones = (ctypes.c_int32 * n)(*([1] * n))
        numbers = (ctypes.c_int32 * n)(*sequences)
        width = ctypes.sizeof(ctypes.c_int32)
        rows = (ctypes.c_void_p * (n + 1))(*[ctypes.addressof(numbers) + width * i
                                             for i in range(n)], None)
        flags = (ctypes.c_int8 * n)(*wanted)
        batch = Batch(n, ctypes.addressof(ids), None, ctypes.addressof(places),
                      ctypes.addressof(ones), ctypes.addressof(rows), ctypes.addressof(flags))
        self.num_tokens = n
        begin = time.monotonic()
        status = self.decode_batch(context, batch)
        self.synchronize(context)
        seconds = time.monotonic() - begin
        if status != 0:
            raise RuntimeError(f"llama_decode ended with {status}")
        return seconds

    def logits(self, ids, vocab_size):
        self.clear(self.timed)
        self.feed(self.timed, ids, range(len(ids)), [0] * len(ids), [1] * len(ids))
        return [self.logits_of(self.timed, row)[:vocab_size] for row in range(len(ids))]

    def prefill(self, ids, counts):
        wanted = [0] * (len(ids) - 1) + [1]
        seconds = 0.0
        for context in (self.timed, self.counting if counts else None):
            if context is None:
                continue
            self.clear(context)
            self.distinct = []
            took = self.feed(context, ids, range(len(ids)), [0] * len(ids), wanted)
            seconds = took if context is self.timed else seconds
        return {"seconds": seconds, "experts": self.mean_distinct()}

    def decode(self, prompts, steps, counts):
        times = []
        for context, rounds in ((self.timed, steps), (self.counting, steps[:2] if counts else [])):
            if context is None or not rounds:
                continue
            self.clear(context)
            for number, prompt in enumerate(prompts):
                self.feed(context, prompt, range(len(prompt)), [number] * len(prompt),
                          [0] * (len(prompt) - 1) + [1])
            self.distinct = []
            for step, tokens in enumerate(rounds):
                places = [len(prompt) + step for prompt in prompts]
                took = self.feed(context, tokens, places, range(len(prompts)), [1] * len(tokens))
                if context is self.timed:
                    times.append(took)
        return {"seconds": times, "experts": self.mean_distinct()}

    def mean_distinct(self):
        """Over the layers that ran for every token; null when nothing was counted."""
        whole = max((tokens for _, tokens in self.distinct), default=0)
        counts = [count for count, tokens in self.distinct if tokens == whole]
        return sum(counts) / len(counts) if counts else None


def answer(engine, request):
    if request["do"] == "logits":
        return {"rows": engine.logits(request["ids"], request["vocab_size"])}
    if request["do"] == "prefill":
        return engine.prefill(request["ids"], request["count"])
    return engine.decode(request["prompts"], request["steps"], request["count"])


def main():
    arguments = sys.argv[1:]
    repack = arguments[-1:] == ["--repack"]
    if repack:
        arguments.pop()
    if arguments[:1] == ["--quantize"] and len(arguments) == 6:
        folder, source, out, ftype, threads = arguments[1:]
        status = quantize(pathlib.Path(folder).resolve(), source, out, int(ftype), int(threads))
        if status != 0:
            print(f"llama_model_quantize ended with {status}")
        return 5 if status != 0 else 0
    if len(arguments) != 5:
        print(__doc__.split("\n\n")[1].strip(), file=sys.stderr)
        return 2
    try:
        engine = Engine(pathlib.Path(arguments[0]).resolve(), arguments[1],
                        *map(int, arguments[2:]), repack)
    except (OSError, RuntimeError) as error:
        print(json.dumps({"error": str(error)}), flush=True)
        return 5
    print(json.dumps({"ready": True, "note": engine.note}), flush=True)
    for line in sys.stdin:
        try:
            print(json.dumps(answer(engine, json.loads(line))), flush=True)
        except RuntimeError as error:
            print(json.dumps({"error": str(error)}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
