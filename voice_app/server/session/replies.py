"""Turns under way in the pipeline: the speculation, the reply that is heard, and those on the side."""

from collections.abc import Iterable

from voice_app import messages as m
from voice_app.errors import VoiceAppError
from voice_app.server.protocol import server_events as events
from voice_app.server.session import prompt
from voice_app.server.session.actions import Cancel, Count, DropAudio, HoldAudio, ReleaseAudio, Submit, Tally
from voice_app.server.session.context import Context
from voice_app.server.session.conversation import Item
from voice_app.server.session.job import Job
from voice_app.server.session.response import Response, ResponseSpec

ALMOST_OVER_S = 2.0
"""With so little of a reply left to hear, "yes" may answer what it asked."""


class Replies:
    """Time is passed in."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._jobs: dict[m.TurnId, Job] = {}
        self._speculation: Job | None = None
        self._speculated: m.TurnId | None = None
        self._playing: Job | None = None
        """The spoken reply of the conversation that has the listener's ear, made or still being made."""
        self._held = False
        """It is held."""

    # ---------------------------------------------------------------------------------------- what is

    def __len__(self) -> int:
        return len(self._jobs)

    @property
    def turns(self) -> set[m.TurnId]:
        """What is in the pipeline."""
        return set(self._jobs)

    @property
    def active(self) -> Response | None:
        """The response in progress that belongs to the conversation."""
        job = self._active_job()
        return job.response if job else None

    def _active_job(self) -> Job | None:
        return next((j for j in self._jobs.values() if j.response and j.spec.in_conversation), None)

    @property
    def floor_taken(self) -> bool:
        """A reply is being made or heard."""
        return self._playing is not None or self.active is not None

    def almost_over(self, now: float) -> bool:
        """The reply's words are all there and the listener has nearly heard them."""
        job = self._playing
        if job is None or job.voice is None:
            return True
        return job.made and job.voice.queued_s + job.voice.clock.ahead_s(now) < ALMOST_OVER_S

    def is_speculation(self, turn: m.TurnId) -> bool:
        """Whether the client knows nothing of `turn` yet."""
        return self._speculation is not None and self._speculation.turn == turn

    def room(self, turn: m.TurnId) -> bool:
        """Whether another event of `turn` may be taken from the pipeline."""
        job = self._jobs.get(turn)
        return job is None or job.room

    def by_id(self, response_id: str) -> Response | None:
        """The response in progress of that id."""
        responses = (job.response for job in self._jobs.values())
        return next((found for found in responses if found and found.id == response_id), None)

    def deadline(self, now: float) -> float | None:
        """When `pump` should be called."""
        times: list[float] = []
        if self._jobs and not self._context.congested:
            voices = (job.voice for job in self._jobs.values())
            times = [at for voice in voices if voice and (at := voice.next_at(now)) is not None]
        playing = self._playing
        if playing is not None and playing.turn not in self._jobs:
            voice = playing.voice
            times += [voice.clock.ends_at()] if voice is not None and not voice.held else []
        return min(times, default=None)

    # ----------------------------------------------------------------------------------- what is begun

    def speculate(self, items: Iterable[Item], spec: ResponseSpec, turn: str, unsaid: str = "") -> None:
        """Start the work on the turn named `turn`, which may not be over; each time that this is done again
        raises its generation. `unsaid`: the rest of the answer that the turn cut off."""
        self.drop_speculation()
        before = self._speculated
        generation = before.generation + 1 if before is not None and before.turn == turn else 0
        self._speculated = m.TurnId(self._context.session_id, turn, generation)
        self._speculation = self._submit(items, spec, self._speculated, unsaid)

    def drop_speculation(self) -> None:
        """Forget it, if there is one."""
        job, self._speculation = self._speculation, None
        if job is not None:
            self._stop(job)
            self._context.act(Count(Tally.SPECULATION, "dropped"))

    def promote(self, heard_item: str, now: float, spoke_until: float | None) -> Job | None:
        """The speculation on the turn named `heard_item` becomes the reply to it; None if there is none."""
        job = self._speculation
        if job is None or job.turn.turn != heard_item:
            return None
        self._speculation = None
        self._context.act(Count(Tally.SPECULATION, "used"))
        return self._begin(job, heard_item, now, spoke_until)

    def reply(
        self,
        items: Iterable[Item],
        spec: ResponseSpec,
        heard_item: str | None,
        now: float,
        spoke_until: float | None = None,
        unsaid: str = "",
    ) -> Job:
        """Answer `items`; `heard_item`: the last of them, whose words the pipeline may tell. `spoke_until`:
        when the user's speech ended, None where the client asks. `unsaid`: as in `speculate`."""
        turn = m.TurnId(self._context.session_id, self._context.new_id("turn"))
        return self._begin(self._submit(items, spec, turn, unsaid), heard_item, now, spoke_until)

    def _submit(self, items: Iterable[Item], spec: ResponseSpec, turn: m.TurnId, unsaid: str) -> Job:
        job = self._jobs[turn] = Job(turn, spec, self._context, unsaid)
        self._context.act(Submit(prompt.request(turn, items, spec, self._context.settings, unsaid)))
        return job

    def _begin(self, job: Job, heard_item: str | None, now: float, spoke_until: float | None) -> Job:
        if job.spec.in_conversation:
            # An earlier reply that still plays is now history.
            self._let_go()
            self._playing = job if job.spec.spoken else None
        job.begin(heard_item, now, spoke_until)
        self._tell_allowance()
        self.pump(now)
        return job

    def _tell_allowance(self) -> None:
        """How many more responses there may be, where they are limited."""
        allowance, limit = self._context.allowance, self._context.settings.responses_per_minute
        if allowance is not None and limit is not None:
            missing = limit - allowance.left
            self._context.send([events.rate_limits(limit, allowance.left, missing * 60 / limit)])

    # ------------------------------------------------------------------------- what the pipeline says

    def event(self, turn: m.TurnId, event: m.TurnEvent, now: float) -> None:
        """The pipeline made something; of a turn that is gone it is dropped."""
        job = self._jobs.get(turn)
        if job is not None:
            job.take(event, now)
            self.pump(now)

    def failed(self, turn: m.TurnId, error: VoiceAppError) -> None:
        """The pipeline lost the turn."""
        job = self._jobs.pop(turn, None)
        if job is None:
            return
        if job is self._speculation:
            self._speculation = None
        job.fail(error)

    def pump(self, now: float) -> None:
        """Send what is due; end the responses that are all sent, and the reply that has been heard."""
        for job in list(self._jobs.values()):
            job.pump(now)
            if job.response is not None and job.all_sent:
                del self._jobs[job.turn]
                job.complete(now)
        playing = self._playing
        if playing is not None and playing.turn not in self._jobs and not playing.sounds(now):
            self._playing = None

    # --------------------------------------------------------------------------- what is stopped or held

    def hold(self) -> None:
        """Send no more audio for now."""
        job = self._playing
        if job is not None and job.voice is not None and job.response is not None:
            job.voice.held = self._held = True
            self._context.act(HoldAudio(job.response.id))

    def release(self, now: float) -> None:
        """Go on where it was held."""
        if self._playing is not None and self._playing.voice is not None:
            self._playing.voice.held = False
        self._let_go()
        self.pump(now)

    def _let_go(self) -> None:
        """Nothing is held any more."""
        if self._held:
            self._held = False
            self._context.act(ReleaseAudio())

    def interrupt(self, now: float) -> Job | None:
        """The user took the floor: the reply's work and audio end here. Gives the reply."""
        job = self._playing or self._active_job()
        if job is None:
            return None
        self._stop(job)
        job.interrupt(now)
        return job

    def cancel(self, response: Response) -> None:
        """The client wants no more of it."""
        job = next((job for job in self._jobs.values() if job.response is response), None)
        if job is not None:
            self._stop(job)
            job.cancel()

    def truncated(self, item_id: str, now: float) -> None:
        """The client plays no more of this item."""
        job = self._playing
        if job is None or job.turn in self._jobs or job.response is None or job.response.message is None:
            return
        if job.response.message.id == item_id and job.voice is not None:
            job.voice.stop(now)
            self._context.act(DropAudio(job.response.id))
            self._let_go()
            self._playing = None

    def stop_all(self, now: float) -> None:
        """The connection is gone: no work goes on for nobody; the reply's item keeps what was heard."""
        self.drop_speculation()
        self.interrupt(now)
        for job in list(self._jobs.values()):
            self._stop(job)
            job.cancel()

    def _stop(self, job: Job) -> None:
        if job is self._playing:
            self._let_go()
            self._playing = None
        running = self._jobs.pop(job.turn, None)
        if running is not None and not job.made:
            self._context.act(Cancel(job.turn))
