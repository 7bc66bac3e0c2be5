"""Stop strings: nothing from the first of them on is shown, and nothing that is safe is held."""

import hypothesis.strategies as st
import pytest
from hypothesis import example, given
from scheduler_toys import EOS, Ask, ToyThinker, Tray, check_turn, long_ask, spelled, turn_id

from voice_app.messages import TextDelta, TextDone, TokenId, TokenVector
from voice_app.schedulers.omni import OmniScheduler
from voice_app.schedulers.stop_strings import StopStrings
from voice_app.schedulers.streaming_detokenize import StreamingDetokenizeScheduler

pieces = st.lists(st.sampled_from(["", "a", "b", "ab", "ba", "é", "aab"]), max_size=14)
stops = st.lists(st.text("abé", min_size=1, max_size=4), min_size=1, max_size=3)


@given(pieces, stops)
@example(["a", "aab"], ["b", "aab"])
def test_shown_is_the_text_before_the_first_stop(pieces: list[str], stops: list[str]) -> None:
    watch = StopStrings(stops, lambda token: pieces[token].encode())
    whole = "".join(pieces)
    shown, held = b"", list[int]()
    for token in range(len(pieces)):
        held.append(token)
        verdict = watch.push(token)
        shown += b"".join(pieces[t].encode() for t in held[: verdict.safe])
        held = held[verdict.safe :]
        text = "".join(pieces[: token + 1])
        found = [text.find(stop) for stop in stops if stop in text]
        assert verdict.finish_reason == ("stop" if found else None)
        if found:
            shown += pieces[held[0]].encode()[: verdict.shown] if verdict.shown else b""
            assert shown.decode() == whole[: min(found)]
            return
        # Held is at most what a stop may begin with, rounded up to whole tokens.
        tail = text.encode()[len(shown) :]
        begins = [n for n in range(len(tail) + 1) if any(s.encode().startswith(tail[n:]) for s in stops)]
        assert not held or min(begins) < len(pieces[held[0]].encode()) or not pieces[held[0]]
    assert shown + "".join(pieces[t] for t in held).encode() == whole.encode()


def read(tray: Tray, number: int) -> tuple[str, str]:
    """The text and finish reason that the decode stage makes of a turn."""

    class Spelling:
        def warm_up(self) -> None:
            pass

        def token_bytes(self, token: int) -> bytes:
            return spelled(token)

    out = Tray()
    scheduler = StreamingDetokenizeScheduler(Spelling(), out)
    for payload in tray.sent[turn_id(number)]:
        if isinstance(payload, TokenId):
            out.deliver(scheduler, turn_id(0), payload)
    out.run(scheduler)
    *deltas, done = out.sent[turn_id(0)]
    assert isinstance(done, TextDone)
    return "".join(d.text for d in deltas if isinstance(d, TextDelta)), done.finish_reason


@pytest.mark.parametrize("stop", ["a", "b", "é", "ab", "aba", "bab", "éa", "aéb", "zz"])
def test_an_answer_ends_before_its_stop_string(stop: str) -> None:
    tray, runner = Tray(), ToyThinker(num_pages=12)
    scheduler = OmniScheduler(runner, tray)
    asks = [long_ask(n, length=9, max_tokens=25) for n in range(4)]
    for number, what in enumerate(asks):
        asked = Ask(what.parts, what.max_tokens, number % 2 == 0, (stop,) if number < 3 else ())
        for payload in asked.payloads():
            tray.deliver(scheduler, turn_id(number), payload, speech=asked.speech)
    tray.run(scheduler)
    for number, what in enumerate(asks):
        whole = b"".join(map(spelled, what.answer())).decode()
        cut = whole.find(stop) if number < 3 else -1
        assert read(tray, number) == ((whole[:cut], "stop") if cut >= 0 else (whole, "length"))
        ids = [p for p in tray.sent[turn_id(number)] if isinstance(p, TokenId)]
        vectors = [p for p in tray.sent[turn_id(number)] if isinstance(p, TokenVector)]
        if number % 2 == 0:
            # A token that is shown in part is not spoken.
            assert [v.id for v in vectors] == [t.id if t.text_bytes is None else None for t in ids]
            assert [v.finish_reason for v in vectors] == [t.finish_reason for t in ids]
    assert tray.finished == {turn_id(n) for n in range(4)}
    assert runner.open_prompts == 0
    assert scheduler.load().pages_used == 0


@pytest.mark.parametrize("max_tokens", [4, 30])
def test_what_is_held_when_the_answer_ends_is_sent(max_tokens: int) -> None:
    """All of it may be the beginning of a stop string that never comes: until an EOS, or the last token."""
    asks = (Ask(((n, n, n),), 30) for n in range(99))
    what = next(a for a in asks if len(a.answer()) > 5 and a.answer()[-1] == EOS)
    said = what.answer()[:max_tokens]
    text = b"".join(map(spelled, [token for token in said if token != EOS])).decode()
    tray, runner = Tray(), ToyThinker()
    scheduler = OmniScheduler(runner, tray)
    asked = Ask(what.parts, max_tokens, True, (text + "z",))
    for payload in asked.payloads():
        tray.deliver(scheduler, turn_id(0), payload)
    tray.run(scheduler)
    check_turn(tray, turn_id(0), asked)
    assert read(tray, 0) == (text, "stop" if said[-1] == EOS else "length")
