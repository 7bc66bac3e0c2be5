"""Workers on this host."""

import signal
import threading

from voice_app.pipeline.hosts.local import environment
from voice_app.pipeline.worker import on_sigterm


def test_a_worker_gets_its_threads_and_huge_pages():
    made = environment({"PATH": "/bin", "OMP_NUM_THREADS": "8"}, threads=2)
    assert made["PATH"] == "/bin"
    assert made["OMP_NUM_THREADS"] == made["MKL_NUM_THREADS"] == "2"
    assert "glibc.malloc.hugetlb=1" in made["GLIBC_TUNABLES"].split(":")


def test_the_users_own_tunables_of_malloc_stay():
    made = environment({"GLIBC_TUNABLES": "glibc.malloc.check=3"}, threads=1)
    assert made["GLIBC_TUNABLES"] == "glibc.malloc.check=3"


def test_being_told_to_end_waits_for_no_lock_that_the_main_thread_holds():
    lock, ended = threading.Lock(), threading.Event()
    calls = 0

    def stop() -> None:
        nonlocal calls
        calls += 1
        assert lock.acquire(timeout=30.0)
        lock.release()
        ended.set()

    before = signal.getsignal(signal.SIGTERM)
    try:
        on_sigterm(stop)
        with lock:
            signal.raise_signal(signal.SIGTERM)
            signal.raise_signal(signal.SIGTERM)
        assert ended.wait(30.0)
        assert calls == 1
    finally:
        signal.signal(signal.SIGTERM, before)
