"""Shared by all tests."""

import os

# Before torch, OpenMP or BLAS load: two cores carry the tests beside worker processes.
for _name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(_name, "1")
