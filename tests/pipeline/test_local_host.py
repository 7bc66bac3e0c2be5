"""Workers on this host."""

from voice_app.pipeline.hosts.local import environment


def test_a_worker_gets_its_threads_and_huge_pages():
    made = environment({"PATH": "/bin", "OMP_NUM_THREADS": "8"}, threads=2)
    assert made["PATH"] == "/bin"
    assert made["OMP_NUM_THREADS"] == made["MKL_NUM_THREADS"] == "2"
    assert "glibc.malloc.hugetlb=1" in made["GLIBC_TUNABLES"].split(":")


def test_the_users_own_tunables_of_malloc_stay():
    made = environment({"GLIBC_TUNABLES": "glibc.malloc.check=3"}, threads=1)
    assert made["GLIBC_TUNABLES"] == "glibc.malloc.check=3"
