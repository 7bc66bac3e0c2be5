"""Side by side with what users would pick instead: `make rivals`, `python -m load.rivals`.

    environment     pipecat in an environment of its own, and the weights in its shape
    systems         ours and pipecat's as running processes
    lines           the two wire protocols as one (pure)
    caller          somebody who talks to either
    summary         tables and goals (pure)

`pipecat_server.py` and `llama_server.py` run in pipecat's environment and import nothing of ours.
"""
