"""The camera in a talk: a turn's item names the very frames that its answer looked at."""

import base64

from fake_pipeline import spoken
from virtual_talk import VirtualTalk
from wire_client import jpeg

from voice_app import messages as m


def pictures(request: m.TurnRequest) -> list[bytes]:
    return [part.data for part in request.messages[-1].parts if isinstance(part, m.ImagePart)]


def answered(talk: VirtualTalk) -> list[m.TurnRequest]:
    """Those that ask for an answer: others only have a frame encoded early."""
    return [request for _, request in talk.requests if request.speech]


def test_a_frame_that_came_after_the_work_began_is_not_said_to_be_seen():
    talk = VirtualTalk(lambda request: spoken("a cat"))
    talk.update(extensions={"camera": True})
    talk.speak(1)
    talk.send("input_image_buffer.append", image=jpeg(1), event_id="while speaking")
    talk.silence(0.3)
    talk.send("input_image_buffer.append", image=jpeg(2), event_id="in the silence")
    talk.silence(3)
    [request] = answered(talk)
    assert pictures(request) == [base64.b64decode(jpeg(1))]
    item = talk.events("conversation.item.done")[0]["item"]
    assert [part.get("frame") for part in item["content"]] == ["while speaking", None]


def test_who_goes_on_speaking_is_seen_on():
    talk = VirtualTalk(lambda request: spoken("a cat"))
    talk.update(extensions={"camera": True})
    talk.speak(1)
    talk.send("input_image_buffer.append", image=jpeg(1), event_id="first")
    talk.silence(0.3)
    talk.send("input_image_buffer.append", image=jpeg(2), event_id="second")
    talk.speak(0.5)
    talk.silence(3)
    assert pictures(answered(talk)[-1]) == [base64.b64decode(jpeg(shade)) for shade in (1, 2)]
    item = talk.events("conversation.item.done")[0]["item"]
    assert [part.get("frame") for part in item["content"]] == ["first", "second", None]
