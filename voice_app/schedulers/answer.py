"""What leaves the thinker of an answer: each token on its edges, in order, and one end."""

from voice_app.messages import TokenId, TokenVector, TurnId, Usage
from voice_app.schedulers.base import Outbox, StepOutput
from voice_app.schedulers.request import Request
from voice_app.schedulers.stop_strings import StopVerdict

_NOTHING = StepOutput()
_NOT_OVER = Usage()


class Answers:
    """Keeps no state: tokens that a stop string may begin with are held in `Request.held`."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox

    def none(self, turn: TurnId, finish_reason: str, *, speech: bool) -> None:
        """The turn needs no answer."""
        self._send(turn, speech, _NOTHING, finish_reason, _NOT_OVER)

    def take(self, request: Request, output: StepOutput) -> bool:
        """Add the token of `output` to the answer and send what may go out; True: that was the last."""
        token = output.token
        if token is None:
            raise RuntimeError("the thinker's runner gave no token where one was wanted")
        if token in request.prompt.eos_ids:
            self._send_held(request, len(request.held))
            self._end(request, output.finish_reason or "stop")
            return True
        request.outputs.append(token)
        request.held.append(output)
        stops = request.prompt.stops
        verdict = stops.push(token) if stops else StopVerdict(safe=1)
        if verdict.stopped:
            self._send_held(request, verdict.safe)
            self._end(request, "stop", verdict.shown)
            return True
        reason = output.finish_reason
        if reason is None and len(request.outputs) >= request.max_outputs:
            reason = "length"
        self._send_held(request, len(request.held) if reason else verdict.safe, reason)
        return reason is not None

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
