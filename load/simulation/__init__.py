"""The capacity model: the real schedulers in simulated time. `python -m load.simulate`.

    clock       simulated time (pure)
    costs       how long a stage's model call takes, from measurements or from bytes moved (pure)
    shapes      what a turn consists of: speech, tokens, clauses, frames
    runners     models that compute nothing and note what a call would have cost
    stage       a scheduler with its inbox, driven as the pipeline's runtime drives it
    box         processors, stages, replicas and edges: one machine
    listening   when a server begins the work on a question and lets its answer be heard (pure)
    people      who talks to it, and what they hear
    fleet       from one box to many: GPUs, Redis, bandwidth (pure)

Nothing here waits: a minute of talk of a hundred people takes seconds.
"""
