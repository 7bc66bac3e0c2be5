"""The page pool of a paged KV cache: who holds which page, without a tensor.

A request's block table is a plain list of page numbers: page `table[p // page_size]` holds the KV of
position p. Pages are counted references: a prefix that several requests read is one page in several
tables. `RadixCache` keeps pages of past requests; such a page is *idle* while no table has it, and
only idle pages may be evicted.
"""

from collections import Counter
from collections.abc import Iterable, Sequence

from voice_app.schedulers.base import PageStats


class PagePool:
    """Page numbers 0 … num_pages - 1. Every call is O(pages given)."""

    def __init__(self, num_pages: int) -> None:
        self._free = list(range(num_pages - 1, -1, -1))
        self._references = [0] * num_pages
        self._cached = bytearray(num_pages)
        self._idle = 0

    @property
    def total(self) -> int:
        return len(self._references)

    @property
    def free(self) -> int:
        return len(self._free)

    @property
    def idle(self) -> int:
        """Pages that only the cache holds."""
        return self._idle

    def stats(self) -> PageStats:
        return PageStats(self.total, self.free, self._idle)

    def allocate(self, count: int) -> list[int]:
        """`count` fresh pages with one reference each. The caller has made sure of `free`."""
        if count > len(self._free):
            raise RuntimeError(f"{count} KV pages wanted, {len(self._free)} free")
        pages = [self._free.pop() for _ in range(count)]
        for page in pages:
            self._references[page] = 1
        return pages

    def share(self, pages: Iterable[int]) -> None:
        """One more reference to each of `pages`, which are in use or cached."""
        for page in pages:
            self._idle -= self._cached[page] and self._references[page] == 1
            self._references[page] += 1

    def release(self, pages: Iterable[int]) -> None:
        """One reference less; a page without any is free."""
        for page in pages:
            if self._references[page] <= 0:
                raise RuntimeError(f"KV page {page} was released more often than it was taken")
            self._references[page] -= 1
            if self._references[page] == 0:
                self._free.append(page)
            elif self._cached[page] and self._references[page] == 1:
                self._idle += 1

    def keep(self, page: int) -> None:
        """The cache takes a reference of its own to a page that a request holds."""
        self._cached[page] = 1
        self._references[page] += 1

    def is_idle(self, page: int) -> bool:
        return bool(self._cached[page]) and self._references[page] == 1

    def evict(self, page: int) -> None:
        """The cache gives up an idle page."""
        if not self.is_idle(page):
            raise RuntimeError(f"KV page {page} is not idle and cannot be evicted")
        self._cached[page] = 0
        self._idle -= 1
        self.release([page])

    def check(self, tables: Iterable[Sequence[int]], cached: Sequence[int]) -> None:
        """Raise RuntimeError unless the counts are exactly those of these block tables and cache."""
        held = Counter(cached)
        for table in tables:
            held.update(table)
        for page, references in enumerate(self._references):
            if held[page] != references:
                raise RuntimeError(f"KV page {page} has {references} references, {held[page]} holders")
        if sorted(self._free) != [page for page, count in enumerate(self._references) if count == 0]:
            raise RuntimeError("the list of free KV pages is not the list of unreferenced ones")
        if self._idle != sum(map(self.is_idle, range(self.total))):
            raise RuntimeError("the count of idle KV pages is wrong")


def pages_for(positions: int, page_size: int) -> int:
    """Pages that hold the KV of `positions` positions."""
    return -(-positions // page_size)
