"""llama.cpp's OpenAI-compatible server over a GGUF file, in the rival's environment.

Usage: python llama_server.py PORT MODEL.gguf SLOTS THREADS: serves until it is ended. `SLOTS`: requests
answered at once; `THREADS` 0: llama.cpp's own choice, one a physical core.
"""
# pyright: reportMissingImports=false

import signal
import sys

import xllamacpp

CONTEXT = 2048
"""Positions of one slot: what the model was made for."""


def serve(port: int, model: str, slots: int, threads: int) -> None:
    """Blocks until SIGTERM."""
    params = xllamacpp.CommonParams()
    params.model.path = model
    params.hostnames = ["127.0.0.1"]
    params.port = port
    params.n_parallel = slots
    params.n_ctx = CONTEXT * slots
    if threads:
        params.cpuparams.n_threads = threads
        params.cpuparams_batch.n_threads = threads
    server = xllamacpp.Server(params)
    print(server.listening_address, flush=True)
    signal.sigwait({signal.SIGTERM, signal.SIGINT})


if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
    serve(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
