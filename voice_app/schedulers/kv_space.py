"""Gives requests their KV pages and takes them back: page pool and prefix cache as one budget."""

from collections.abc import Iterable

from voice_app.schedulers.base import PageStats
from voice_app.schedulers.kv_cache import PagePool, pages_for
from voice_app.schedulers.radix_cache import RadixCache
from voice_app.schedulers.request import Request


class KvSpace:
    """`num_pages` pages of `page_size` positions. Who gets them when is the scheduler's policy."""

    def __init__(self, num_pages: int, page_size: int) -> None:
        self.page_size = page_size
        self._pool = PagePool(num_pages)
        self._cache = RadixCache(self._pool, page_size)

    @property
    def positions(self) -> int:
        """Positions that fit if one request has all the pages."""
        return self._pool.total * self.page_size

    def admit(self, request: Request, reserve: int) -> bool:
        """Give a waiting request pages for all its positions, from the prefix cache as far as that
        reaches: always at least its last position is left to compute. False (and nothing changed)
        if that would leave fewer than `reserve` pages."""
        table = self._cache.lock(request.keys(request.length - 1))
        hit = len(table)
        missing = pages_for(request.length, self.page_size) - hit
        if missing + reserve > self._pool.free + self._pool.idle:
            self._pool.release(table)
            return False
        request.table = table + self._take(missing)
        request.computed = hit * self.page_size
        request.admitted = True
        if request.cached_tokens is None:
            request.cached_tokens = request.computed
        return True

    def extend(self, request: Request) -> None:
        """Take over what the cache holds, beyond what is computed, of a prompt that has grown, none of whose
        steps is under way."""
        table = self._cache.lock(request.keys(request.length - 1))
        known = len(table) * self.page_size
        if known <= request.computed:
            self._pool.release(table)
            return
        self._pool.release(request.table[: len(table)])
        request.table[: len(table)] = table
        request.computed = known

    def grow(self, request: Request) -> bool:
        """Make sure that the request's positions all have pages; False if there is none to give."""
        missing = pages_for(request.length, self.page_size) - len(request.table)
        if missing > self._pool.free + self._pool.idle:
            return False
        if missing > 0:
            request.table += self._take(missing)
        return True

    def publish(self, request: Request) -> None:
        """Let others find what is computed of this request."""
        self._cache.insert(request.keys(request.computed), request.table)

    def retire(self, request: Request) -> None:
        """Take all its pages back; what is computed stays cached until its space is wanted."""
        self.publish(request)
        self._pool.release(request.table)
        request.table = []
        request.computed = 0
        request.under_way = 0
        request.lives += 1
        request.admitted = False

    def stats(self) -> PageStats:
        return self._pool.stats()

    def check(self, running: Iterable[Request]) -> None:
        """Raise RuntimeError unless every page is accounted for."""
        self._pool.check((request.table for request in running), self._cache.pages())

    def _take(self, count: int) -> list[int]:
        self._cache.evict(count - self._pool.free)
        return self._pool.allocate(count)
