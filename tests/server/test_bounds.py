"""What would grow with a talk's length, or with what a client sends, has a bound."""

import base64
import io
from typing import Any

import numpy as np
import pytest
from fake_pipeline import spoken, written
from PIL import Image
from virtual_talk import VirtualTalk

from voice_app import messages as m
from voice_app.errors import StageFailed
from voice_app.server.session import camera
from voice_app.server.session.conversation import Conversation, MessageItem, Picture, Recording, Text
from voice_app.server.settings import TalkSettings
from voice_app.server.store.records import EVENTS_KEPT, Changes

SECOND = np.zeros(16_000, np.int16)


def answer(request: m.TurnRequest):
    return spoken("It is fine.", heard=None) if request.speech else written("It is fine.")


def encoded(form: str, size: tuple[int, int] = (64, 48)) -> bytes:
    """A grey picture."""
    out = io.BytesIO()
    Image.new("L", size, 128).save(out, form)
    return out.getvalue()


def base64_of(data: bytes) -> str:
    return base64.b64encode(data).decode()


def message(number: int, *content: Any) -> MessageItem:
    return MessageItem(f"item_{number}", "user", list(content))


# ------------------------------------------------------------------------------------------------ memory


def test_an_hour_of_speech_and_pictures_keeps_the_newest_minutes_and_bytes():
    talk = Conversation(audio_s=30.0, picture_bytes=10_000)
    for number in range(400):
        talk.add(message(number, Picture(bytes(1_000), "image/jpeg"), Recording(SECOND)))
    parts = [part for item in talk if isinstance(item, MessageItem) for part in item.content]
    pictures = [len(part.data) for part in parts if isinstance(part, Picture)]
    sound = [part.samples is not None for part in parts if isinstance(part, Recording)]
    assert pictures == [0] * 390 + [1_000] * 10
    assert sound == [False] * 370 + [True] * 30


def test_what_is_deleted_frees_its_share():
    talk = Conversation(audio_s=3.0)
    for number in range(100):
        talk.add(message(number, Recording(SECOND)))
        talk.delete(f"item_{number}")
    kept = [message(number, Recording(SECOND)) for number in range(100, 103)]
    for item in kept:
        talk.add(item)
    assert all(isinstance(part, Recording) and part.samples is not None for i in kept for part in i.content)


def test_a_talk_forgets_its_oldest_items():
    talk = Conversation()
    for number in range(2_100):
        talk.add(message(number, Text("x")))
    assert len(talk) == 2_000
    assert talk.get("item_99") is None


def test_events_that_wait_for_redis_are_the_newest():
    waiting = Changes()
    for number in range(3 * EVENTS_KEPT):
        waiting.add(Changes(events={f"event_{number}": b"{}"}))
    assert list(waiting.events) == [f"event_{n}" for n in range(2 * EVENTS_KEPT, 3 * EVENTS_KEPT)]


def test_a_recording_that_is_never_committed_is_refused_at_ten_minutes():
    t = VirtualTalk(answer)
    t.update(audio={"input": {"turn_detection": None}})
    minute = base64_of(bytes(48_000 * 60))
    for _ in range(11):
        t.send("input_audio_buffer.append", audio=minute)
    assert "error" not in t.kinds
    t.send("input_audio_buffer.append", audio=minute)
    assert "commit or clear" in t.last("error")["error"]["message"]
    t.send("input_audio_buffer.clear")
    t.send("input_audio_buffer.append", audio=minute)
    assert t.kinds.count("error") == 1


# ------------------------------------------------------------------------------------------------ prompts


def words(t: VirtualTalk) -> list[str]:
    """What of the conversation is in a prompt made now."""
    t.send("response.create", response={"output_modalities": ["text"]})
    t.wait(1)
    return [text for role, text in t.history() if role == "user"]


def test_the_oldest_leave_many_at_once():
    """So that the prompts of neighbouring turns begin alike."""
    t = VirtualTalk(answer)
    sizes: list[int] = []
    first: set[str] = set()
    for number in range(120):
        t.say(f"question {number}")
        asked = words(t)
        assert asked[-1] == f"question {number}"
        sizes.append(len(t.requests[-1][1].messages))
        first.add(asked[0])
    assert max(sizes) <= 128
    assert min(sizes[70:]) == 102, "0.8 of them"
    assert len(first) <= 6


@pytest.mark.parametrize(("ratio", "kept"), [(0.5, 4), (1.0, 8), (0.0, 1)])
def test_retention_ratio_with_a_token_limit(ratio: float, kept: int):
    """Eight messages of about 106 tokens are within 900; of the ninth on, `ratio` of that is left."""
    t = VirtualTalk(answer)
    limits = {"post_instructions": 900}
    t.update(truncation={"type": "retention_ratio", "retention_ratio": ratio, "token_limits": limits})
    for number in range(8):
        t.say(f"{number}" + "x" * 299)
    asked = words(t)
    assert len(asked) == 8
    t.session.conversation.delete(t.session.conversation.last_id or "")  # The answer.
    t.say("8" + "x" * 299)
    assert [text[0] for text in words(t)] == [str(n) for n in range(9 - kept, 9)]


def test_truncation_disabled_keeps_all():
    t = VirtualTalk(answer)
    t.update(truncation="disabled")
    for number in range(300):
        t.say(f"{number}")
    assert len(words(t)) == 300


def test_the_newest_pictures_stay_in_the_prompt():
    t = VirtualTalk(answer)
    for shade in range(7):
        out = io.BytesIO()
        Image.new("L", (8, 8), shade * 30).save(out, "PNG")
        url = "data:image/png;base64," + base64_of(out.getvalue())
        content = [{"type": "input_image", "image_url": url}, {"type": "input_text", "text": str(shade)}]
        t.send("conversation.item.create", item={"type": "message", "role": "user", "content": content})
    words(t)
    shown = [
        [type(part) for part in message.parts]
        for message in t.requests[-1][1].messages
        if message.role == "user"
    ]
    assert shown == [[m.TextPart]] * 3 + [[m.ImagePart, m.TextPart]] * 4


# ------------------------------------------------------------------------------------------------ pictures


@pytest.mark.parametrize("form", ["JPEG", "PNG", "WEBP"])
def test_three_kinds_of_picture(form: str):
    t = VirtualTalk(answer)
    t.update(extensions={"camera": True})
    t.send("input_image_buffer.append", image=base64_of(encoded(form)))
    url = f"data:image/{form.lower()};base64,{base64_of(encoded(form))}"
    content = [{"type": "input_image", "image_url": url}]
    t.send("conversation.item.create", item={"type": "message", "role": "user", "content": content})
    assert "error" not in t.kinds


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (encoded("GIF"), "not a JPEG, PNG or WebP"),
        (encoded("JPEG")[:100], "not a JPEG, PNG or WebP"),
        (encoded("PNG") + bytes(camera.MAX_FRAME_BYTES), "larger than"),
        (encoded("JPEG", (5_000, 4_000)), "more than"),
        (encoded("PNG", (2_000, 1_100)), "more than"),
        (encoded("WEBP", (2_000, 1_100)), "more than"),
    ],
)
def test_what_is_too_large_or_no_picture_is_refused(data: bytes, why: str):
    t = VirtualTalk(answer)
    t.update(extensions={"camera": True})
    t.send("input_image_buffer.append", image=base64_of(data))
    assert why in t.last("error")["error"]["message"]


def test_pictures_a_minute_count_by_every_way_in():
    """As frames, as items, and in the input of a response."""
    picture = encoded("JPEG")
    t = VirtualTalk(answer, TalkSettings(image_bytes_per_minute=3 * len(picture)))
    t.update(extensions={"camera": True})
    item = {
        "type": "message",
        "role": "user",
        "content": [{"type": "input_image", "image_url": f"data:image/jpeg;base64,{base64_of(picture)}"}],
    }
    t.send("input_image_buffer.append", image=base64_of(picture))
    t.send("conversation.item.create", item=item)
    t.send("response.create", response={"input": [item], "conversation": "none"})
    assert "error" not in t.kinds
    t.send("conversation.item.create", item=item)
    assert t.last("error")["error"]["code"] == "rate_limit_exceeded"
    t.wait(60)
    t.send("conversation.item.create", item=item)
    assert t.kinds[-1] == "conversation.item.done"


def test_pictures_a_second():
    t = VirtualTalk(answer)
    t.update(extensions={"camera": True})
    for _ in range(camera.PICTURES_BURST + 10):
        t.send("input_image_buffer.append", image=base64_of(encoded("JPEG")))
    refused = [event["error"]["code"] for event in t.events("error")]
    assert refused == ["rate_limit_exceeded"] * 10


# ------------------------------------------------------------------------------------------ encoded early


def shaded(shade: int) -> str:
    """A picture that looks different for each `shade`, base64."""
    field = np.roll(np.linspace(0, 255, 64, dtype=np.uint8)[None].repeat(48, 0), shade * 8, axis=1)
    out = io.BytesIO()
    Image.fromarray(field).save(out, "PNG")
    return base64_of(out.getvalue())


def seen(request: m.TurnRequest) -> list[str]:
    """The pictures at its end."""
    return [base64_of(p.data) for p in request.messages[-1].parts if isinstance(p, m.ImagePart)]


def camera_talk(**session: Any) -> VirtualTalk:
    t = VirtualTalk(answer, first_s=0.1)
    t.update(extensions={"camera": True}, **session)
    return t


def test_frames_are_encoded_while_the_user_speaks():
    t = camera_talk()
    t.send("input_image_buffer.append", image=shaded(0))
    t.silence(0.5)
    assert not t.requests, "nobody speaks"
    t.speak(0.5)
    [(_, look)] = t.requests
    assert (look.speech, look.sampling.max_tokens, seen(look)) == (False, 1, [shaded(0)])
    t.send("input_image_buffer.append", image=shaded(1))
    t.send("input_image_buffer.append", image=shaded(1))
    t.send("input_image_buffer.append", image=shaded(2))
    assert [seen(request) for _, request in t.requests[1:]] == [[shaded(0), shaded(1)]], "one at a time"
    t.speak(0.5)
    assert [seen(request) for _, request in t.requests[2:]] == [[shaded(0), shaded(1), shaded(2)]]
    t.silence(3)
    assert len(t.requests) == 4
    turn = t.requests[3][1]
    assert (turn.speech, seen(turn)) == (True, [shaded(0), shaded(1), shaded(2)])
    assert t.kinds.count("response.created") == 1, "the client hears nothing of the looks"
    t.checker.finish()


def test_frames_of_a_push_to_talk_are_encoded_early_too():
    t = camera_talk(audio={"input": {"turn_detection": None}})
    t.send("input_image_buffer.append", image=shaded(0))
    assert not t.requests
    t.speak(0.2)
    t.send("input_image_buffer.append", image=shaded(1))
    assert [seen(request) for _, request in t.requests] == [[shaded(0), shaded(1)]]


def test_a_look_that_fails_costs_nothing():
    t = VirtualTalk(lambda r: answer(r) if r.speech else [StageFailed("it broke")])
    t.update(extensions={"camera": True})
    t.send("input_image_buffer.append", image=shaded(0))
    t.speak(1)
    t.silence(3)
    assert [e["response"]["status"] for e in t.events("response.done")] == ["completed"]
    assert not t.session.in_pipeline
