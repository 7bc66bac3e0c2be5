"""Page pool and prefix cache: what the random machine does not pin down."""

import pytest

from voice_app.schedulers.kv_cache import PagePool, pages_for
from voice_app.schedulers.radix_cache import RadixCache, media_keys


def cached(pool: PagePool, cache: RadixCache, keys: list[int]) -> list[int]:
    """Compute `keys` as a request would, and leave."""
    table = cache.lock(keys)
    table += pool.allocate(len(keys) // 2 - len(table))
    cache.insert(keys, table)
    pool.release(table)
    return table


@pytest.mark.parametrize(("positions", "pages"), [(0, 0), (1, 1), (4, 1), (5, 2)])
def test_pages_for(positions: int, pages: int) -> None:
    assert pages_for(positions, 4) == pages


def test_the_least_recently_used_leaf_goes_first() -> None:
    pool = PagePool(20)
    cache = RadixCache(pool, 2)
    first, second, third = ([n, n, n, n] for n in (1, 2, 3))
    for keys in (first, second, third):
        cached(pool, cache, keys)
    pool.release(cache.lock(first))
    cache.evict(2)
    assert len(cache.lock(second)) == 0
    assert len(cache.lock(third)) == 2
    assert len(cache.lock(first)) == 2


def test_publishing_again_is_a_use() -> None:
    pool = PagePool(20)
    cache = RadixCache(pool, 2)
    for keys in ([1, 1], [2, 2]):
        cached(pool, cache, keys)
    table = pool.allocate(1)
    cache.insert([1, 1], table)
    pool.release(table)
    cache.evict(1)
    assert cache.lock([2, 2]) == []
    assert len(cache.lock([1, 1])) == 1


def test_a_prefix_outlives_what_follows_it() -> None:
    pool = PagePool(20)
    cache = RadixCache(pool, 2)
    cached(pool, cache, [1, 1, 2, 2])
    cached(pool, cache, [1, 1, 3, 3])
    cache.evict(2)
    assert len(cache.lock([1, 1, 2, 2])) == 1


def test_what_is_in_use_is_never_evicted() -> None:
    pool = PagePool(20)
    cache = RadixCache(pool, 2)
    cached(pool, cache, [1, 1, 2, 2])
    held = cache.lock([1, 1])
    cache.evict(10)
    assert cache.pages() == held
    assert pool.idle == 0


def test_mistakes_of_the_owner_are_found() -> None:
    pool = PagePool(2)
    pages = pool.allocate(2)
    with pytest.raises(RuntimeError, match="1 KV pages wanted, 0 free"):
        pool.allocate(1)
    with pytest.raises(RuntimeError, match="has 1 references, 0 holders"):
        pool.check([], [])
    with pytest.raises(RuntimeError, match="not idle"):
        pool.evict(pages[0])
    pool.check([pages], [])
    pool.release(pages)
    with pytest.raises(RuntimeError, match="more often"):
        pool.release(pages[:1])
    pool.check([], [])
    assert pool.stats().free == 2


def test_media_keys_are_the_content_s_own_and_no_token_s() -> None:
    cat, dog = media_keys("cat", 5), media_keys("dog", 5)
    assert len(cat) == 5
    assert max(cat + dog) < 0
    assert not set(cat) & set(dog)
    assert media_keys("cat", 3) == cat[:3]
