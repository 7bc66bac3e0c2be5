"""Whole characters only, for any way that bytes are cut into tokens."""

from collections.abc import Sequence
from itertools import pairwise

import hypothesis.strategies as st
import pytest
from hypothesis import example, given
from scheduler_toys import Crash, Tray, turn_id

from voice_app.errors import StageFailed
from voice_app.messages import TextDelta, TextDone, TokenId, TokenVector, Usage
from voice_app.schedulers.streaming_detokenize import StreamingDetokenizeScheduler


class Pieces:
    """Token n is the n-th piece of bytes."""

    def __init__(self, pieces: Sequence[bytes]) -> None:
        self.pieces = pieces

    def warm_up(self) -> None:
        pass

    def token_bytes(self, token: int) -> bytes:
        if token >= len(self.pieces):
            raise Crash
        return self.pieces[token]


def tell(pieces: Sequence[bytes], *, at_once: bool = False) -> list[TextDelta]:
    """What a client reads of an answer of these tokens."""
    tray = Tray()
    scheduler = StreamingDetokenizeScheduler(Pieces(pieces), tray)
    for token in range(len(pieces)):
        tray.deliver(scheduler, turn_id(0), TokenId(token))
        if not at_once:
            tray.run(scheduler)
    tray.deliver(scheduler, turn_id(0), TokenId(None, "stop", Usage(1, 0, len(pieces))))
    tray.run(scheduler)
    *deltas, done = tray.sent[turn_id(0)]
    assert done == TextDone("stop", Usage(1, 0, len(pieces)))
    assert tray.finished == {turn_id(0)}
    assert tray.all_given_back()
    assert scheduler.load().running == 0
    assert all(isinstance(d, TextDelta) for d in deltas)
    return [d for d in deltas if isinstance(d, TextDelta)]


def cut(data: bytes, places: Sequence[int]) -> list[bytes]:
    edges = [0, *sorted(min(p, len(data)) for p in places), len(data)]
    return [data[a:b] for a, b in pairwise(edges)]


places = st.lists(st.integers(0, 40), max_size=12)


@given(st.one_of(st.binary(max_size=40), st.text(max_size=12).map(str.encode)), places, st.booleans())
@example("a👩‍👧b".encode(), list(range(30)), False)
@example("\ufffd".encode(), [1, 2], False)
@example(b"\xf0\x9f", [1], False)
@example(b"ok\xff\xfeok\xe2\x82", [1, 3, 4], False)
def test_any_cut_of_any_bytes_gives_what_decoding_at_once_gives(
    data: bytes, places: list[int], at_once: bool
) -> None:
    pieces = cut(data, places)
    deltas = tell(pieces, at_once=at_once)
    assert "".join(d.text for d in deltas) == data.decode("utf-8", "replace")
    assert [t for d in deltas for t in d.token_ids] == list(range(len(pieces)))
    assert all(d.text for d in deltas[:-1])


@given(st.text(max_size=12), places)
def test_good_text_is_shown_as_soon_as_its_bytes_are_there(text: str, places: list[int]) -> None:
    pieces = cut(text.encode(), places)
    tray = Tray()
    scheduler = StreamingDetokenizeScheduler(Pieces(pieces), tray)
    for token in range(len(pieces)):
        tray.deliver(scheduler, turn_id(0), TokenId(token))
        tray.run(scheduler)
        shown = "".join(d.text for d in tray.sent[turn_id(0)] if isinstance(d, TextDelta))
        assert shown == b"".join(pieces[: token + 1]).decode("utf-8", "ignore")


def test_an_emoji_in_two_tokens_comes_whole() -> None:
    deltas = tell([b"Hi \xf0\x9f", b"\x98\x80!"])
    assert deltas == [TextDelta("Hi ", (0,)), TextDelta("😀!", (1,))]


def test_a_literal_replacement_character_passes_at_once() -> None:
    assert tell(["a\ufffdb".encode(), b"c"])[0] == TextDelta("a\ufffdb", (0,))


def test_an_invalid_tail_is_flushed_at_the_end() -> None:
    assert tell([b"ok", b"\xf0\x9f"])[-1] == TextDelta("\ufffd", (1,))


def test_special_tokens_give_no_text_and_keep_their_ids() -> None:
    assert tell([b"", b"a", b""]) == [TextDelta("a", (0, 1)), TextDelta("", (2,))]


def test_the_last_token_may_carry_text() -> None:
    tray = Tray()
    scheduler = StreamingDetokenizeScheduler(Pieces([b"a"]), tray)
    tray.deliver(scheduler, turn_id(0), TokenId(0, "length"))
    tray.run(scheduler)
    assert tray.sent[turn_id(0)] == [TextDelta("a", (0,)), TextDone("length")]


def test_a_turn_without_room_waits_and_then_gets_one_delta() -> None:
    tray = Tray()
    scheduler = StreamingDetokenizeScheduler(Pieces([b"a", b"b", b"c"]), tray)
    tray.full.add(turn_id(0))
    for token in range(3):
        tray.deliver(scheduler, turn_id(0), TokenId(token))
        tray.deliver(scheduler, turn_id(1), TokenId(token))
    tray.run(scheduler)
    assert not tray.sent[turn_id(0)]
    assert tray.sent[turn_id(1)]
    assert tray.released == 3, "the senders' credit is what holds the thinker back"
    tray.full.clear()
    tray.run(scheduler)
    assert tray.sent[turn_id(0)] == [TextDelta("abc", (0, 1, 2))]


def test_cancel_and_crash_leave_nothing() -> None:
    tray = Tray()
    scheduler = StreamingDetokenizeScheduler(Pieces([b"a", b"\xf0"]), tray)
    tray.deliver(scheduler, turn_id(0), TokenId(1))
    tray.run(scheduler)
    tray.deliver(scheduler, turn_id(0), TokenId(0))
    tray.cancel(scheduler, turn_id(0))
    tray.deliver(scheduler, turn_id(1), TokenId(99))
    tray.deliver(scheduler, turn_id(2), TokenId(0))
    with pytest.raises(Crash):
        scheduler.step()
    assert scheduler.in_flight() == (turn_id(1),)
    tray.cancel(scheduler, turn_id(1))
    tray.run(scheduler)
    assert scheduler.in_flight() == ()
    assert tray.sent[turn_id(2)] == [TextDelta("a", (0,))]
    tray.cancel(scheduler, turn_id(2))
    assert scheduler.load().running == 0
    assert tray.all_given_back()


def test_a_foreign_payload_fails_its_turn() -> None:
    tray = Tray()
    scheduler = StreamingDetokenizeScheduler(Pieces([b"a"]), tray)
    tray.deliver(scheduler, turn_id(0), TokenId(0))
    tray.deliver(scheduler, turn_id(0), TokenVector(0, None))
    assert isinstance(tray.failed[turn_id(0)], StageFailed)
    assert tray.all_given_back()
