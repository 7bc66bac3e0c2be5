"""The turn machine: who speaks, who has the floor, when a turn begins and ends.

A pure function of (state, event, time). Audio comes as 20 ms frames that are speech or not; times of
audio are in ms since the session's first sample, clock times (`now`) in seconds.

    QUIET ──speech──▶ ONSET ──onset_ms──▶ SPEAKING ──silence_ms──▶ the turn ends ──▶ QUIET
      ▲                 │ too short          │ ▲
      └─────────────────┘       speculate_ms ▼ │ more speech (the speculation is dropped)
                                     work starts early

Work starts sooner, after `early_ms` or when speech is hushed, as long as the rules that are passed in say so;
whoever passes them in knows whether others wait.

While a reply is heard, sound first holds the reply (the client still has some to play) and is judged:
as an interruption once it lasts `interrupt_ms`, or if its words say so; else the reply goes on where it
was held. So a cough, a door or an "mm-hm" costs nothing.
"""

from msgspec.structs import replace

from voice_app.server.session.turn_types import (
    Action,
    AskComplete,
    Cleared,
    Committed,
    Deaf,
    DropSpeculation,
    Event,
    Frame,
    Hold,
    IdleTimeout,
    Interrupt,
    Release,
    ReplyEnded,
    ReplyStarted,
    Rules,
    SoundsComplete,
    Speculate,
    SpeechStarted,
    SpeechStopped,
    State,
    Tick,
    User,
    Words,
)
from voice_app.server.session.vad import FRAME_MS

FALSE_START_MS = 100
"""Silence after which a sound that was too short to be speech is forgotten."""
RESUME_MS = 40
"""Speech that ends a pause: one frame alone may be noise."""
OVERLAP_MS = 600
"""A sound over a reply that was not judged by its words so long after it was one is passed over."""
GAP_S = 0.2
"""Packets that stay away this long count as silence from the last one on."""

Step = tuple[State, list[Action]]


def step(state: State, event: Event, now: float, rules: Rules) -> Step:
    """The state after `event` at `now`, and what is to be done, in this order."""
    match event:
        case Frame(silent_ms, hushed):
            if silent_ms and state.user is User.QUIET:
                return silent(state, 1, now), []
            state = replace(state, heard_ms=state.heard_ms + FRAME_MS, last_frame_at=now)
            if silent_ms:
                return _silence(state, silent_ms, rules)
            return _hush(state, rules) if hushed else _speech(state, rules)
        case Tick():
            return _tick(state, now, rules)
        case Words(back_channel):
            return _words(state, back_channel, rules)
        case SoundsComplete(complete):
            if not (state.asked and state.silence_ms):
                return state, []
            return _after_silence(replace(state, complete=complete), state.silence_ms, rules)
        case ReplyStarted():
            return replace(state, replying=True, idle_since=None), []
        case ReplyEnded():
            return _reply_ended(state, now, rules)
        case Committed():
            return _forget(state, floor_ms=state.heard_ms)
        case Cleared():
            return _cleared(state)
        case Deaf():
            return _forget(state)


def silent(state: State, frames: int, now: float) -> State:
    """The state after `frames` without speech that nobody's turn is waiting for (User.QUIET)."""
    return replace(state, heard_ms=state.heard_ms + frames * FRAME_MS, last_frame_at=now)


def deadline(state: State, rules: Rules) -> float | None:
    """When a `Tick` may next change something, if no frame comes before."""
    due = None
    if state.user is not User.QUIET:
        to_come = [limit for limit in _limits(state, rules) if limit > state.silence_ms]
        if to_come:
            due = state.last_frame_at + max(GAP_S, (min(to_come) - state.silence_ms) / 1000)
    if state.idle_since is not None and rules.idle_ms is not None:
        idle = state.idle_since + rules.idle_ms / 1000
        due = idle if due is None else min(due, idle)
    return due


def _limits(state: State, rules: Rules) -> tuple[int, ...]:
    """Lengths of silence at which something happens."""
    if state.user is User.ONSET or (state.user is User.OVERLAP and not rules.judge_words):
        return (FALSE_START_MS,)
    limits = [_needed(state, rules)]
    begins_ms = _begins(state, rules)
    if begins_ms is not None:
        # Where that was too soon by the rules of before, it is due now.
        limits.append(max(begins_ms, state.silence_ms + 1))
    if _may_ask(state, rules):
        limits.append(rules.ask_ms)
    return tuple(limits)


def _begins(state: State, rules: Rules) -> int | None:
    """How long a silence begins the work on what is heard; None: none does, or it has begun."""
    if state.speculating or rules.speculate_ms is None:
        return None
    early = state.user is User.SPEAKING and rules.early_ms is not None
    return rules.early_ms if early else rules.speculate_ms


def _may_ask(state: State, rules: Rules) -> bool:
    return rules.sure_ms is not None and state.user is User.SPEAKING and not state.asked


def _needed(state: State, rules: Rules) -> int:
    """How long a silence ends what is heard."""
    if state.user is User.OVERLAP:
        return min(rules.silence_ms, OVERLAP_MS)
    return rules.sure_ms if state.complete and rules.sure_ms is not None else rules.silence_ms


def _speech(state: State, rules: Rules) -> Step:
    match state.user:
        case User.QUIET:
            state = replace(
                state,
                user=User.ONSET,
                onset_ms=state.heard_ms - FRAME_MS,
                voiced_ms=FRAME_MS,
                silence_ms=0,
                resumed_ms=0,
            )
            return _begin(state, rules)
        case User.ONSET:
            return _begin(replace(state, voiced_ms=state.voiced_ms + FRAME_MS, silence_ms=0), rules)
        case User.OVERLAP | User.SPEAKING:
            return _resume(state, rules)


def _hush(state: State, rules: Rules) -> Step:
    """Speech by the detector's overhang, or faint: neither silence nor a reason to drop what was begun."""
    too_long = state.heard_ms - state.start_ms >= rules.longest_ms
    if state.user is not User.SPEAKING or state.silence_ms or too_long:
        return _speech(state, rules)
    if state.speculating:
        return replace(state, resumed_ms=0), []
    if rules.early_ms is None or rules.speculate_ms is None:
        return _speech(state, rules)
    return replace(state, speculating=True, resumed_ms=0), [Speculate(state.start_ms, state.heard_ms)]


def _begin(state: State, rules: Rules) -> Step:
    """A sound: it holds the reply at once; it is speech when it is long enough."""
    actions: list[Action] = []
    if state.replying and rules.interrupt and not state.held:
        state = replace(state, held=True)
        actions.append(Hold())
    if state.voiced_ms < rules.onset_ms:
        return state, actions
    start = max(state.floor_ms, state.onset_ms - rules.prefix_ms)
    state = replace(state, user=User.OVERLAP, start_ms=start)
    state, more = _overlap(state, rules) if state.held else _start(state)
    return state, actions + more


def _start(state: State) -> Step:
    return (
        replace(state, user=User.SPEAKING, idle_since=None),
        [SpeechStarted(state.start_ms)],
    )


def _overlap(state: State, rules: Rules) -> Step:
    if state.heard_ms - state.onset_ms < rules.interrupt_ms:
        return state, []
    return _interrupt(state)


def _interrupt(state: State) -> Step:
    state, actions = _start(replace(state, held=False))
    return state, [*actions, Interrupt()]


def _resume(state: State, rules: Rules) -> Step:
    resumed = state.resumed_ms + FRAME_MS
    if (state.silence_ms or state.speculating) and resumed < RESUME_MS:
        return replace(state, resumed_ms=resumed), []
    actions: list[Action] = [DropSpeculation()] if state.speculating else []
    state = replace(state, silence_ms=0, resumed_ms=resumed, speculating=False, asked=False, complete=False)
    if state.user is User.OVERLAP:
        state, more = _overlap(state, rules)
        return state, actions + more
    if state.heard_ms - state.start_ms >= rules.longest_ms:
        state, more = _end(state, 0)
        return state, actions + more
    return state, actions


def _silence(state: State, silent_ms: int, rules: Rules) -> Step:
    state = replace(state, silence_ms=state.silence_ms + silent_ms, resumed_ms=0)
    return _after_silence(state, state.silence_ms, rules)


def _tick(state: State, now: float, rules: Rules) -> Step:
    actions: list[Action] = []
    away = now - state.last_frame_at
    # The same sum as in `deadline`: `away >= GAP_S` may be false at the very moment that it names.
    if state.user is not User.QUIET and now >= state.last_frame_at + GAP_S:
        state, actions = _after_silence(state, state.silence_ms + round(away * 1000), rules)
    if (
        state.idle_since is not None
        and rules.idle_ms is not None
        and (now - state.idle_since) * 1000 >= rules.idle_ms - 1e-3
    ):
        actions.append(IdleTimeout(state.idle_from_ms, state.heard_ms))
        state = replace(state, idle_since=None, floor_ms=state.heard_ms)
    return state, actions


def _after_silence(state: State, silence_ms: int, rules: Rules) -> Step:
    """`silence_ms`: how long nothing was heard, packets that stay away included."""
    actions: list[Action] = []
    if state.user is User.ONSET:
        return _forget(state) if silence_ms >= FALSE_START_MS else (state, [])
    if state.user is User.OVERLAP and not rules.judge_words and silence_ms >= FALSE_START_MS:
        return _forget(state)
    begins_ms = _begins(state, rules)
    if begins_ms is not None and silence_ms >= begins_ms:
        state = replace(state, speculating=True)
        actions.append(Speculate(state.start_ms, state.heard_ms))
    if _may_ask(state, rules) and silence_ms >= rules.ask_ms:
        state = replace(state, asked=True)
        actions.append(AskComplete(state.start_ms, state.heard_ms))
    if silence_ms < _needed(state, rules):
        return state, actions
    state, more = _end(state, silence_ms) if state.user is User.SPEAKING else _forget(state)
    return state, actions + more


def _end(state: State, silence_ms: int) -> Step:
    """The turn is over. A speculation is not dropped: it becomes the reply."""
    ended = replace(
        state,
        user=User.QUIET,
        floor_ms=state.heard_ms,
        speculating=False,
        silence_ms=0,
        asked=False,
        complete=False,
    )
    return ended, [SpeechStopped(state.start_ms, state.heard_ms, silence_ms)]


def _forget(state: State, floor_ms: int | None = None) -> Step:
    """The sound so far is nobody's turn."""
    actions: list[Action] = []
    if state.speculating:
        actions.append(DropSpeculation())
    if state.held:
        actions.append(Release())
    return (
        replace(
            state,
            user=User.QUIET,
            speculating=False,
            held=False,
            silence_ms=0,
            asked=False,
            complete=False,
            floor_ms=state.floor_ms if floor_ms is None else floor_ms,
        ),
        actions,
    )


def _cleared(state: State) -> Step:
    if state.user is not User.SPEAKING:
        return _forget(state, floor_ms=state.heard_ms)
    actions: list[Action] = [DropSpeculation()] if state.speculating else []
    here = state.heard_ms
    return replace(state, speculating=False, onset_ms=here, start_ms=here, floor_ms=here), actions


def _words(state: State, back_channel: bool, rules: Rules) -> Step:
    if state.user is not User.OVERLAP or not state.speculating:
        return state, []
    return _forget(state) if back_channel else _interrupt(state)


def _reply_ended(state: State, now: float, rules: Rules) -> Step:
    ended = replace(state, replying=False, held=False)
    if state.replying and state.user in (User.QUIET, User.ONSET):
        ended = replace(ended, idle_since=now, idle_from_ms=state.heard_ms)
    # What spoke over the reply now speaks alone.
    return _start(ended) if state.user is User.OVERLAP else (ended, [])
