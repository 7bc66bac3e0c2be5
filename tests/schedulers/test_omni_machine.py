"""Random lives of OmniScheduler, page pool and prefix cache, checked against plain models."""

from collections import deque
from itertools import chain

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from scheduler_toys import Ask, AtOnce, ToyThinker, Tray, check_turn, said, turn_id

from voice_app.messages import Embeddings, PromptIds, TurnId
from voice_app.schedulers.kv_cache import PagePool
from voice_app.schedulers.omni import OmniScheduler
from voice_app.schedulers.omni_overlapped import OverlappedOmniScheduler
from voice_app.schedulers.radix_cache import RadixCache

FAST = settings(max_examples=150, stateful_step_count=50, deadline=None)

texts = st.sampled_from(
    [
        (1, 2, 3, 4),
        (1, 2, 3, 4, 5, 6, 7, 8),
        (1, 2, 9),
        (5,),
        tuple(range(20, 31)),
        (1, 2, 3, 4, 5, 6, 9, 9, 9),
    ]
)
images = st.sampled_from([("a", (50, 51, 52)), ("b", (53, 54, 55)), ("c", (50, 51, 52, 53, 54, 55, 56))])
cuts = st.lists(st.integers(0, 30), max_size=4)
asks = st.builds(
    Ask,
    st.lists(st.one_of(texts, images), min_size=1, max_size=3).map(tuple),
    max_tokens=st.integers(1, 20),
    speech=st.booleans(),
)


class OmniMachine(RuleBasedStateMachine):
    """Requests join, their inputs come late and in parts, they are cancelled, lose and regain room, a step
    crashes; whatever is left at the end says what each would have said alone."""

    @initialize(
        pages=st.integers(6, 40), size=st.sampled_from([1, 2, 4]), tokens=st.sampled_from([1, 3, 8, 64])
    )
    def build(self, pages: int, size: int, tokens: int) -> None:
        self.tray = Tray()
        self.runner = ToyThinker(page_size=size, num_pages=pages * 8 // size)
        self.scheduler = self.make(tokens)
        self.asks: dict[TurnId, Ask] = {}
        self.late: dict[tuple[TurnId, type], deque[PromptIds | Embeddings]] = {}
        """What is still to come, by edge: each keeps its order."""

    def make(self, tokens: int) -> OmniScheduler:
        return OmniScheduler(self.runner, self.tray, max_running=6, step_tokens=tokens)

    @rule(ask=asks, generation=st.integers(0, 1), cuts=cuts, data=st.data())
    def join(self, ask: Ask, generation: int, cuts: list[int], data: st.DataObject) -> None:
        turn = turn_id(len(self.asks), generation)
        self.asks[turn] = ask
        for payload in chain.from_iterable(ask.cut(cut for cut in cuts if cut <= len(ask.content))):
            self.late.setdefault((turn, type(payload)), deque()).append(payload)
        for _ in range(data.draw(st.integers(0, 6))):
            if edges := [edge for edge in self.late if edge[0] == turn]:
                self._arrive(data.draw(st.sampled_from(edges)))

    @precondition(lambda self: self.late)
    @rule(data=st.data())
    def arrive(self, data: st.DataObject) -> None:
        self._arrive(data.draw(st.sampled_from(list(self.late))))

    def _arrive(self, edge: tuple[TurnId, type]) -> None:
        turn, _ = edge
        payload = self.late[edge].popleft()
        if not self.late[edge]:
            del self.late[edge]
        self.tray.deliver(self.scheduler, turn, payload, speech=self.asks[turn].speech)

    @rule(steps=st.integers(1, 8))
    def step(self, steps: int) -> None:
        for _ in range(steps):
            self.tray.step(self.scheduler)

    @precondition(lambda self: self.asks)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        self.tray.cancel(self.scheduler, data.draw(st.sampled_from(list(self.asks))))

    @precondition(lambda self: self.asks)
    @rule(data=st.data())
    def fill(self, data: st.DataObject) -> None:
        self.tray.full.add(data.draw(st.sampled_from(list(self.asks))))

    @rule()
    def drain(self) -> None:
        self.tray.full.clear()

    @rule()
    def crash(self) -> None:
        self.runner.crash = lambda batch: True
        self.tray.step(self.scheduler)
        self.runner.crash = lambda batch: False

    @invariant()
    def what_was_said_is_right_so_far(self) -> None:
        if self.__dict__.get("asks"):
            for turn, ask in self.asks.items():
                tokens = said(self.tray, turn)
                assert tokens == ask.answer()[: len(tokens)]

    def teardown(self) -> None:
        if "tray" not in self.__dict__:
            return
        self.tray.full.clear()
        while self.late:
            self._arrive(next(iter(self.late)))
        self.tray.run(self.scheduler)  # Its last step checks every page's holders.
        for turn, ask in self.asks.items():
            assert self.tray.over(turn)
            if turn in self.tray.finished:
                check_turn(self.tray, turn, ask)
        assert self.tray.all_given_back()
        assert self.runner.open_prompts == 0
        load = self.scheduler.load()
        assert (load.waiting, load.running, load.pages_used) == (0, 0, 0)


class OverlappedMachine(OmniMachine):
    """The same lives, each step chosen while the one before is under way."""

    def make(self, tokens: int) -> OmniScheduler:
        return OverlappedOmniScheduler(
            self.runner, self.tray, max_running=6, step_tokens=tokens, model=AtOnce()
        )


class CacheMachine(RuleBasedStateMachine):
    """Page pool and prefix cache against a dictionary of prefixes."""

    keys = st.lists(st.integers(0, 1), max_size=14)

    @initialize(size=st.integers(1, 3), pages=st.integers(8, 30))
    def build(self, size: int, pages: int) -> None:
        self.size = size
        self.pool = PagePool(pages)
        self.cache = RadixCache(self.pool, size)
        self.known: dict[tuple[int, ...], int] = {}
        """Whole-page prefix → the page of its last block."""
        self.tables: list[list[int]] = []

    @rule(keys=keys)
    def use(self, keys: list[int]) -> None:
        """What a request does: lock what is known, take fresh pages for the rest, publish."""
        prefixes = [tuple(keys[:end]) for end in range(self.size, len(keys) + 1, self.size)]
        hit = [self.known[p] for p in prefixes if p in self.known]
        table = self.cache.lock(keys)
        assert table == hit
        missing = -(-len(keys) // self.size) - len(table)
        short = missing - self.pool.free
        if short > self.pool.idle:
            self.pool.release(table)
            return
        self.evict(max(0, short))
        table += self.pool.allocate(missing)
        self.cache.insert(keys, table)
        self.known.update(zip(prefixes, table, strict=False))
        self.tables.append(table)

    @rule(keys=keys)
    def publish_a_duplicate(self, keys: list[int]) -> None:
        """A request that computed what meanwhile another has published gets the other's pages."""
        count = -(-len(keys) // self.size)
        if count > self.pool.free:
            return
        table = self.pool.allocate(count)
        prefixes = [tuple(keys[:end]) for end in range(self.size, len(keys) + 1, self.size)]
        self.cache.insert(keys, table)
        assert [p for q, p in zip(prefixes, table, strict=False) if q in self.known] == [
            self.known[q] for q in prefixes if q in self.known
        ]
        self.known.update(zip(prefixes, table, strict=False))
        self.tables.append(table)

    @precondition(lambda self: self.tables)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        self.pool.release(self.tables.pop(data.draw(st.integers(0, len(self.tables) - 1))))

    @rule(count=st.integers(0, 5))
    def evict(self, count: int) -> None:
        idle, free = self.pool.idle, self.pool.free
        self.cache.evict(count)
        assert self.pool.free - free == idle - self.pool.idle == min(count, idle)
        left = set(self.cache.pages())
        self.known = {prefix: page for prefix, page in self.known.items() if page in left}

    @invariant()
    def counts_agree(self) -> None:
        if "pool" not in self.__dict__:
            return
        self.pool.check(self.tables, self.cache.pages())
        assert sorted(self.cache.pages()) == sorted(self.known.values())
        for prefix in self.known:
            assert len(prefix) == self.size or prefix[: -self.size] in self.known
        used = {page for table in self.tables for page in table}
        assert self.pool.idle == len(set(self.known.values()) - used)


TestOmniMachine = OmniMachine.TestCase
TestOmniMachine.settings = FAST
TestOverlappedMachine = OverlappedMachine.TestCase
TestOverlappedMachine.settings = FAST
TestCacheMachine = CacheMachine.TestCase
TestCacheMachine.settings = FAST
