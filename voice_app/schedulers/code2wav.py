"""Frames to sound, streamed: exact for any chunking, early at first, in growing windows, batched."""

import time
from collections.abc import Sequence

import numpy as np

from voice_app.errors import StageFailed
from voice_app.messages import AudioChunk, AudioDone, CodeFrames, Stage, TurnId
from voice_app.schedulers.base import Code2WavRunner, Outbox, SchedulerLoad, StageInput
from voice_app.schedulers.turns import Clock, ModelCalls, refuse, stale
from voice_app.schedulers.wave_turn import WaveTurn, check_frames
from voice_app.schedulers.wave_window import LOW_LEAD_S, next_window


class Code2WavScheduler:
    """One decoder call takes the windows that are ready, the turn nearest to running dry first."""

    def __init__(
        self,
        runner: Code2WavRunner,
        outbox: Outbox,
        max_batch: int = 32,
        clock: Clock = time.perf_counter,
    ) -> None:
        self._runner = runner
        self._spec = runner.spec
        self._outbox = outbox
        self._max_batch = max_batch
        self._clock = clock
        self._calls = ModelCalls(outbox, clock)
        self._waves: dict[TurnId, WaveTurn] = {}

    def receive(self, item: StageInput) -> None:
        if not isinstance(item.payload, CodeFrames):
            self.cancel(item.turn)
            refuse(self._outbox, Stage.CODE2WAV, item)
            return
        wrong = check_frames(item.payload.frames, self._spec)
        if wrong is not None:
            self.cancel(item.turn)
            item.release()
            self._outbox.fail(item.turn, StageFailed(f"{Stage.CODE2WAV}: {wrong}", param="frames"))
            return
        if item.turn not in self._waves:
            self._waves[item.turn] = WaveTurn(self._spec)
        self._waves[item.turn].add(item.payload, item.release)

    def cancel(self, turn: TurnId) -> None:
        for over in stale(self._waves, turn):
            wave = self._waves.pop(over)
            wave.release_all()
            if wave.opened:
                self._runner.close(wave.state)

    def step(self) -> bool:
        self._calls.clear()
        batch = self._choose(self._clock())
        if batch:
            self._decode(batch)
        self._finish_those_over()
        return bool(batch)

    def wake_after(self) -> float | None:
        """When the first turn that lets its window fill comes near to running dry."""
        now = self._clock()
        waits = [
            wave.lead.seconds(now) - LOW_LEAD_S
            for turn, wave in self._waves.items()
            if wave.previous_window and wave.ready and self._outbox.has_room(turn)
        ]
        return max(0.0, min(waits)) if waits else None

    def in_flight(self) -> Sequence[TurnId]:
        return self._calls.turns

    def load(self) -> SchedulerLoad:
        running = sum(1 for wave in self._waves.values() if wave.opened)
        return SchedulerLoad(waiting=len(self._waves) - running, running=running)

    def _choose(self, now: float) -> list[tuple[TurnId, WaveTurn, int]]:
        batch: list[tuple[TurnId, WaveTurn, int]] = []
        for turn, wave in sorted(self._waves.items(), key=lambda entry: entry[1].lead.seconds(now)):
            if len(batch) == self._max_batch:
                break
            lead = wave.lead.seconds(now)
            new = next_window(self._spec, wave.previous_window, wave.ready, wave.closed, lead)
            if new and self._outbox.has_room(turn):
                batch.append((turn, wave, new))
        return batch

    def _decode(self, batch: list[tuple[TurnId, WaveTurn, int]]) -> None:
        with self._calls.of(turn for turn, _, _ in batch):
            for _, wave, _ in batch:
                if not wave.opened:
                    wave.state = self._runner.open()
                    wave.opened = True
            windows = [wave.window(new) for _, wave, new in batch]
            sounds = self._runner.decode(windows)
        now = self._clock()
        for (turn, wave, new), window, samples in zip(batch, windows, sounds, strict=True):
            wave.advance(new, len(samples))
            wave.lead.sent(len(samples) / self._spec.sample_rate, now)
            codes = None if self._spec.codebook is None else window.frames[window.left : window.left + new]
            self._emit(turn, wave, samples, codes)

    def _emit(
        self, turn: TurnId, wave: WaveTurn, samples: np.ndarray, codes: np.ndarray | None = None
    ) -> None:
        marks = wave.take_marks()
        if len(samples) or marks:
            start = wave.samples - len(samples)
            self._outbox.emit(turn, AudioChunk(samples, self._spec.sample_rate, start, marks, codes))

    def _finish_those_over(self) -> None:
        for turn, wave in list(self._waves.items()):
            if wave.over and self._outbox.has_room(turn):
                # Marks that came after their frames were decoded have no chunk to go with.
                self._emit(turn, wave, np.empty(0, np.float32))
                self.cancel(turn)
                self._outbox.emit(turn, AudioDone(wave.samples))
                self._outbox.finish(turn)
