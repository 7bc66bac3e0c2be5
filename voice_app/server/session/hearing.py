"""The turn machine, fed from the microphone and told who has the floor."""

import dataclasses
from collections.abc import Callable, Iterator

import numpy as np
from msgspec.structs import replace

from voice_app.server.protocol.config import AudioInput
from voice_app.server.protocol.errors import ProtocolError
from voice_app.server.session import turns
from voice_app.server.session.microphone import Microphone

MIN_COMMIT_MS = 100
LONGEST_PACKET_S = 0.5
"""Packets are awaited in their own rhythm up to this; one that holds more is a recording, not a stream."""
MAX_TURN_MS = 600_000
"""Longest sound of one turn that waits to be committed."""


class Hearing:
    """Methods that move the machine yield its actions one by one; the caller carries each out before it
    asks for the next, because an action (a reply that starts) may change how the next frame is taken.

    `idle`: whether nobody has to wait at that time for work that is begun in vain."""

    def __init__(self, microphone: Microphone, rules: turns.Rules, idle: Callable[[float], bool]) -> None:
        self._microphone = microphone
        self._idle = idle
        self._set_rules(rules)
        self._state = turns.State()

    def _set_rules(self, rules: turns.Rules) -> None:
        self._rules = rules
        self._busy_rules = dataclasses.replace(rules, early_ms=None)

    def _rules_at(self, now: float) -> turns.Rules:
        return self._rules if self._idle(now) else self._busy_rules

    @property
    def quiet(self) -> bool:
        """The user says nothing."""
        return self._state.user is turns.User.QUIET

    @property
    def in_turn(self) -> bool:
        """The user is speaking or, where turns are not told apart, has sound that waits for a commit."""
        if not self._microphone.listening:
            return self._waiting_ms() > 0
        return self._state.user is turns.User.SPEAKING

    def configure(self, config: AudioInput, rules: turns.Rules, now: float) -> Iterator[turns.Action]:
        """The session's configuration changed."""
        listened = self._microphone.listening
        self._microphone.configure(config)
        self._set_rules(rules)
        if not self._microphone.listening:
            yield from self._step(turns.Deaf(), now)
        elif not listened:
            self._state = replace(self._state, heard_ms=self._microphone.position_ms)

    def append(self, data: bytes, now: float) -> Iterator[turns.Action]:
        """More sound in the client's format. Raises ProtocolError when too much waits to be committed."""
        if not self._microphone.listening and self._waiting_ms() > MAX_TURN_MS:
            raise ProtocolError(
                "invalid_value",
                f"The input audio buffer holds {MAX_TURN_MS // 60_000} minutes: commit or clear it.",
                param="audio",
            )
        before = self._microphone.position_ms
        passed, rules = 0, self._rules_at(now)
        for frame in self._microphone.hear(data):
            if frame.silent_ms and self._state.user is turns.User.QUIET:
                passed += 1  # Most frames of a talk: taken together.
                continue
            self._state = turns.silent(self._state, passed, now) if passed else self._state
            passed = 0
            self._state, actions = turns.step(self._state, frame, now, rules)
            if actions:
                yield from actions
        # A client that sends every 200 ms is not silent in between.
        packet_s = min((self._microphone.position_ms - before) / 1000, LONGEST_PACKET_S)
        self._state = turns.silent(self._state, passed, now + packet_s)
        self._microphone.forget_before(self._needed_from_ms())

    def _waiting_ms(self) -> int:
        return self._microphone.position_ms - self._state.floor_ms

    def _needed_from_ms(self) -> int:
        """No turn, present or to come, begins earlier."""
        if not self._microphone.listening:
            return self._state.floor_ms
        begin = self._state.heard_ms if self.quiet else self._state.onset_ms
        return max(self._state.floor_ms, begin - self._rules.prefix_ms)

    def tick(self, now: float) -> Iterator[turns.Action]:
        """Time has passed."""
        yield from self._step(turns.Tick(), now)

    def deadline(self, now: float) -> float | None:
        """When `tick` should be called."""
        return turns.deadline(self._state, self._rules_at(now)) if self._microphone.listening else None

    def words(self, *, back_channel: bool, now: float) -> Iterator[turns.Action]:
        """What the sound over the reply turned out to be."""
        yield from self._step(turns.Words(back_channel), now)

    def sounds_complete(self, *, complete: bool, now: float) -> Iterator[turns.Action]:
        """Whether the turn sounds complete, in the pause in which that was asked."""
        yield from self._step(turns.SoundsComplete(complete), now)

    def reply_started(self, now: float) -> Iterator[turns.Action]:
        yield from self._step(turns.ReplyStarted(), now)

    def reply_ended(self, now: float) -> Iterator[turns.Action]:
        """A reply was heard to its end, or stopped."""
        yield from self._step(turns.ReplyEnded(), now)

    def _step(self, event: turns.Event, now: float) -> Iterator[turns.Action]:
        self._state, actions = turns.step(self._state, event, now, self._rules_at(now))
        yield from actions

    def cut(self, start_ms: int, end_ms: int) -> np.ndarray:
        """[n] int16 at 16 kHz: the sound between two positions, as far as it is kept."""
        return self._microphone.cut(start_ms, end_ms)

    def commit(self, now: float) -> tuple[np.ndarray, list[turns.Action]]:
        """The client says that the turn is over: its sound, and what that changes. Raises ProtocolError if
        there is less than 100 ms of it."""
        self._microphone.flush()
        speaking = self._state.user is turns.User.SPEAKING
        start = self._state.start_ms if speaking else self._state.floor_ms
        end = self._microphone.position_ms
        kept_ms = end - max(start, self._microphone.kept_from_ms)
        if kept_ms < MIN_COMMIT_MS:
            raise ProtocolError(
                "input_audio_buffer_commit_empty",
                "Error committing input audio buffer: buffer too small. Expected at least "
                f"{MIN_COMMIT_MS}ms of audio, but buffer only has {kept_ms:.2f}ms of audio.",
            )
        samples = self.cut(start, end)
        return samples, self._take(turns.Committed(), now)

    def clear(self, now: float) -> list[turns.Action]:
        """Forget the sound so far."""
        return self._take(turns.Cleared(), now)

    def _take(self, event: turns.Event, now: float) -> list[turns.Action]:
        self._microphone.skip()
        self._state = replace(self._state, heard_ms=self._microphone.position_ms)
        actions = list(self._step(event, now))
        self._microphone.forget_before(self._needed_from_ms())
        return actions
