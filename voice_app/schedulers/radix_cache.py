"""Prefix cache: a radix tree over prompt keys whose edges are whole pages. Plain Python.

Equal keys mean equal KV: a text position's key is its token id, a media position's key is drawn from
the hash of the content (`media_keys`), so that equal text around different images never shares. A
request that uses a node's page uses the pages of all its ancestors too; so an idle page has only idle
pages below it, and every idle page can be evicted, leaves first.
"""

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b

from voice_app.schedulers.kv_cache import PagePool


def media_keys(content: str, count: int) -> list[int]:
    """Keys of the `count` positions of a media span. `content`: `Media.key`.

    All the same and < 0: where a position lies within its span follows from the keys before it. Two
    contents get the same key only by a collision of 63-bit hashes."""
    digest = blake2b(content.encode(), digest_size=8).digest()
    return [-1 - (int.from_bytes(digest, "big") >> 1)] * count


@dataclass(slots=True, eq=False)
class _Node:
    """One page. `keys`: of its positions; `last_used`: a counter, not a time."""

    keys: tuple[int, ...]
    page: int
    parent: "_Node | None"
    last_used: int = 0
    children: "dict[tuple[int, ...], _Node]" = field(default_factory=dict)


class RadixCache:
    """Keeps pages in `pool` after their requests have ended, until their space is wanted."""

    def __init__(self, pool: PagePool, page_size: int) -> None:
        self._pool = pool
        self._page_size = page_size
        self._root = _Node((), -1, None)
        self._leaves: dict[_Node, None] = {}
        self._uses = 0

    def lock(self, keys: Sequence[int]) -> list[int]:
        """The pages of the longest cached prefix of `keys`, whole pages only, each with a reference
        for the caller, who gives them back with `PagePool.release`."""
        self._uses += 1
        pages: list[int] = []
        node = self._root
        for block in self._blocks(keys):
            child = node.children.get(block)
            if child is None:
                break
            child.last_used = self._uses
            pages.append(child.page)
            node = child
        self._pool.share(pages)
        return pages

    def insert(self, keys: Sequence[int], table: list[int]) -> None:
        """Keep the KV of `keys`, which is in the pages of `table`; a last page that is not full is
        left out. Where the same KV is cached already, the caller's page is exchanged for the cached
        one in `table`: the duplicate's space is free, and the invariant above holds."""
        self._uses += 1
        node = self._root
        for index, block in enumerate(self._blocks(keys)):
            child = node.children.get(block)
            if child is None:
                child = _Node(block, table[index], node)
                self._pool.keep(child.page)
                node.children[block] = child
                self._leaves.pop(node, None)
                self._leaves[child] = None
            elif child.page != table[index]:
                self._pool.share([child.page])
                self._pool.release([table[index]])
                table[index] = child.page
            child.last_used = self._uses
            node = child

    def evict(self, count: int) -> None:
        """Free `count` idle pages (or all, if fewer), the least recently used first."""
        if count <= 0:
            return
        heap = [(leaf.last_used, leaf.page, leaf) for leaf in self._leaves if self._pool.is_idle(leaf.page)]
        heapq.heapify(heap)
        while count > 0 and heap:
            _, _, leaf = heapq.heappop(heap)
            parent = leaf.parent
            assert parent is not None
            del parent.children[leaf.keys]
            del self._leaves[leaf]
            self._pool.evict(leaf.page)
            count -= 1
            if parent is not self._root and not parent.children:
                self._leaves[parent] = None
                if self._pool.is_idle(parent.page):
                    heapq.heappush(heap, (parent.last_used, parent.page, parent))

    def pages(self) -> list[int]:
        """Every cached page."""
        found: list[int] = []
        below = list(self._root.children.values())
        while below:
            node = below.pop()
            found.append(node.page)
            below.extend(node.children.values())
        return found

    def _blocks(self, keys: Sequence[int]) -> Iterator[tuple[int, ...]]:
        size = self._page_size
        for start in range(0, len(keys) - size + 1, size):
            yield tuple(keys[start : start + size])
