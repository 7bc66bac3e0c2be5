"""What leaves the thinker of an answer: each token on its edges, in order, and one end."""

from voice_app.messages import TokenId, TokenVector, TurnId, Usage
from voice_app.schedulers.answer_reader import Reading
from voice_app.schedulers.base import NoAnswer, Outbox, StepOutput
from voice_app.schedulers.request import Request

_NOTHING = StepOutput()
_NONE, _SAFE = Reading(), Reading(safe=1)
_NOT_OVER = Usage()


class Answers:
    """Keeps no state: tokens of which it is not known yet whether they are text are in `Request.held`."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox

    def none(self, turn: TurnId, answer: NoAnswer, *, speech: bool) -> None:
        """The turn needs none of the model's."""
        if answer.call is not None:
            self._outbox.emit(turn, TokenId(None, call=answer.call))
        self._send(turn, speech, _NOTHING, answer.finish_reason, _NOT_OVER)

    def take(self, request: Request, output: StepOutput) -> bool:
        """Add the token of `output` to the answer and send what may go out; True: that was the last."""
        token = output.token
        if token is None:
            raise RuntimeError("the thinker's runner gave no token where one was wanted")
        reader = request.prompt.reader
        if token in request.prompt.eos_ids:
            rest = reader.end() if reader else _NONE
            self._send_held(request, rest.safe)
            called = reader is not None and reader.called
            self._end(request, "tool_call" if called else output.finish_reason or "stop", rest.shown)
            return True
        request.outputs.append(token)
        request.held.append(output)
        reading = reader.push(token) if reader else _SAFE
        reason = output.finish_reason
        if reason is None and len(request.outputs) >= request.max_outputs:
            reason = "length"
        if reader is not None and reader.called:
            self._call(request, reading)
            if reading.finish_reason or reason:
                self._end(request, "tool_call")
        elif reading.finish_reason:
            self._send_held(request, reading.safe)
            self._end(request, reading.finish_reason, reading.shown)
        elif reason:
            rest = reader.end() if reader else _NONE
            whole = reading.safe + rest.safe == len(request.held)
            self._send_held(request, reading.safe + rest.safe, reason if whole else None)
            if not whole:
                self._end(request, reason, rest.shown)
        else:
            self._send_held(request, reading.safe)
        return bool(reading.finish_reason or reason)

    def _call(self, request: Request, reading: Reading) -> None:
        """What has become of the held tokens, now that a function was called."""
        self._send_held(request, reading.safe)
        partly = request.held[0].token if reading.shown else None
        for _ in range(reading.dropped):
            request.held.popleft()
        if reading.call is not None:
            shown = reading.shown or None
            self._outbox.emit(request.turn, TokenId(partly, text_bytes=shown, call=reading.call))

    def _send_held(self, request: Request, count: int, finish_reason: str | None = None) -> None:
        """The `count` oldest held tokens; the last of them ends the answer if there is a reason."""
        for left in range(count - 1, -1, -1):
            output = request.held.popleft()
            reason = None if left else finish_reason
            usage = request.usage() if reason else _NOT_OVER
            self._send(request.turn, request.speech, output, reason, usage)

    def _end(self, request: Request, finish_reason: str, shown: int = 0) -> None:
        """An end that is no token's own. Of the next held token `shown` bytes are still text; it is not
        spoken, for its vector stands for the whole of it."""
        output = request.held.popleft() if shown else _NOTHING
        usage = request.usage()
        self._send(request.turn, request.speech, output, finish_reason, usage, shown or None)

    def _send(
        self,
        turn: TurnId,
        speech: bool,
        output: StepOutput,
        finish_reason: str | None,
        usage: Usage,
        shown: int | None = None,
    ) -> None:
        self._outbox.emit(turn, TokenId(output.token, finish_reason, usage, shown))
        if not speech:
            return
        for payload in output.before:
            self._outbox.emit(turn, payload)
        if shown is None:
            self._outbox.emit(turn, TokenVector(output.token, output.vector, finish_reason))
        else:
            self._outbox.emit(turn, TokenVector(None, None, finish_reason))
