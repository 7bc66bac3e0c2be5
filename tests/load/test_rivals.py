"""The comparison with pipecat: the tokenizer made for it, our line, and the summary."""

import json
from typing import Any

import pytest
from tokenizers.pre_tokenizers import ByteLevel

from load.rivals.caller import Interruption, Missed, Turn
from load.rivals.lines import Kind, Realtime, Said
from load.rivals.summary import HEADER, Crowd, goals, interruption_row
from load.rivals.whisper_tokenizer import SPECIAL, split, tokenizer

BYTES = sorted(ByteLevel.alphabet())


def test_merges_come_from_the_order_of_the_vocabulary():
    words = [*BYTES, "th", "in", "the", "thin", SPECIAL, "<|startoftranscript|>"]
    ranks = {word: rank for rank, word in enumerate(words)}
    assert split("thin", ranks) == ("th", "in")
    made = tokenizer(words)
    assert made.encode("thinthe").tokens == ["thin", "the"]
    assert made.decode(made.encode("the inn, thin").ids) == "the inn, thin"
    assert made.token_to_id("<|startoftranscript|>") == len(words) - 1


def test_a_token_that_no_merges_make_is_refused():
    with pytest.raises(ValueError, match="'thin'"):
        split("thin", {word: rank for rank, word in enumerate([*BYTES, "hi", "thin"])})


@pytest.mark.parametrize(
    ("event", "said"),
    [
        # 480 bytes in base64: 240 samples at 24 kHz
        ({"type": "response.output_audio.delta", "delta": "A" * 640}, Said(Kind.SOUND, 0.01)),
        ({"type": "input_audio_buffer.speech_started"}, Said(Kind.FLUSH)),
        ({"type": "response.done", "response": {"status": "completed"}}, Said(Kind.COMPLETE)),
        (
            {
                "type": "response.done",
                "response": {"status": "failed", "status_details": {"error": {"message": "a worker died"}}},
            },
            Said(Kind.COMPLETE, detail="failed: a worker died"),
        ),
        (
            {
                "type": "response.done",
                "response": {"status": "cancelled", "status_details": {"reason": "turn_detected"}},
            },
            Said(Kind.COMPLETE, detail="cancelled: turn_detected"),
        ),
        ({"type": "response.created"}, None),
    ],
)
def test_what_a_message_means_to_a_listener(event: dict[str, Any], said: Said | None):
    assert Realtime().read(json.dumps(event)) == said


def test_goals_are_held_against_the_tuned_rival():
    ours = Crowd("ours", 8, [Turn(0.2, 0.4), Turn(0.2, 0.5, gaps=[0.1])], cpu_s=1.0)
    rival = Crowd("tuned", 8, [Turn(0.3, 2.0), Turn(0.3, 1.8)], cpu_s=4.0)
    tried = [Interruption(0.01, 0.3), Missed.OVER]
    audio, cpu, unanswered, gaps, worked, quiet = goals([ours], [rival], tried)
    assert (audio.value, audio.limit, audio.met) == (450.0, 475.0, True)
    assert (cpu.value, cpu.limit, cpu.met) == (0.5, 1.0, True)
    assert unanswered.met
    assert not gaps.met
    assert (worked.value, worked.limit, worked.met) == (1, 2, False)
    assert quiet.met


def test_turns_without_an_answer_are_seen():
    ours = Crowd("ours", 1, [Turn(0.2, 0.4), Turn(), Turn(0.3)], cpu_s=1.0)
    rival = Crowd("tuned", 1, [Turn(0.3, 2.0)], cpu_s=4.0)
    found = {goal.name: goal for goal in goals([ours], [rival], [])}
    unanswered = found["turns without an answer, 1 talk"]
    assert (unanswered.value, unanswered.met) == (2, False)
    assert dict(zip(HEADER, ours.row(), strict=True))["no answer"] == 2


def test_interruptions_that_did_not_work_are_seen_with_their_reason():
    row = interruption_row("ours", [Interruption(0.01, 0.3), Missed.OVER, Missed.OVER, Missed.WENT_ON])
    assert row[:4] == ("ours", 4, 1, "10 ms")
    assert row[-1] == "2 × the reply was over before, 1 × the reply went on"
    assert interruption_row("ours", [Missed.NO_REPLY])[2:6] == (0, "–", "–", "–")
