"""The thinker's runner: prompts from spans, at most one engine pass a step, and when an answer ends.

A second row costs an engine pass little, so a pass may compute rows **ahead**: of tokens that are known to
come, or are guessed (`draft`). They lie in what is left of an answer's own last page; to the scheduler they
are not computed. Where the next token is the one that a row stands for, the row is taken and no pass is
made for it; else its place is written again. Nothing else sees them, and the tokens are the same without.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

import msgspec
import numpy as np
import torch

from voice_app.errors import InputError
from voice_app.messages import PromptParams, Sampling, Span, ToolCall
from voice_app.models.functions import plan
from voice_app.models.local.draft import GIVE_UP, ROWS, Drafts, Words
from voice_app.models.local.ending import said_enough
from voice_app.models.local.engine import Chunk, Engine
from voice_app.models.local.joined_prompt import JoinedPrompt, UserTurn
from voice_app.models.local.prompt import UNCLEAR, Tokens
from voice_app.models.local.tool_choice import demanded_call
from voice_app.models.local.tool_results import spoken_results
from voice_app.models.local.understanding import SORRY, Likelihood, Remembered
from voice_app.schedulers.base import NoAnswer, Prompt, PromptInputs, SequenceStep, StepOutput
from voice_app.schedulers.sampler import RequestSampler, sample
from voice_app.schedulers.stop_strings import StopStrings

_WARM_ROWS = (1, 8, 32, 256)
"""Rows of the steps that warm up."""
_LEAST_PART = 12
"""A pass costs as much as some 15 rows where a processor multiplies 8-bit numbers in one step (measured on an
Intel Xeon with AMX), and mostly 5 to 8 are new before a question."""
_FEW = 4
"""Answers in a step up to which known ones are computed ahead: beyond, a row costs the same in any step."""


@dataclass(frozen=True, slots=True)
class AnswerStyle:
    """How a brain answers unless the request says otherwise. `max_tokens` also bounds what a request may ask
    for: spoken answers are short. `functions`: the built-in ones that may answer in its place. `doubts`: it
    says so when it finds the question's words unlikely."""

    max_tokens: int
    repetition_penalty: float
    functions: Sequence[str]
    doubts: bool


@dataclass(frozen=True, slots=True)
class _Ahead:
    """Rows that the runner's step number `step` computed ahead: of `tokens`, for the positions from `start`
    on, which lie in `page`. They are good for the step after it alone: no other can have had the page."""

    step: int
    start: int
    page: int
    tokens: Sequence[int]
    rows: np.ndarray


@dataclass(slots=True)
class _Answer:
    """What the runner keeps of one prompt. `forced`: the answer's tokens where a rule gives them.
    `likelihood`: of the question, where it matters. Both are known once the whole prompt is there. `wrong`:
    how many guesses were, since one was right."""

    prompt: JoinedPrompt
    sampler: RequestSampler
    forced: list[int] = field(default_factory=list)
    likelihood: Likelihood | None = None
    ahead: _Ahead | None = None
    drafts: Drafts | None = None
    wrong: int = 0


class Thinker:
    """A `ThinkerRunner` over an engine.

    Its `vector` is the engine's last hidden row for the position that the token was picked at."""

    def __init__(
        self,
        engine: Engine,
        tokens: Tokens,
        ends: frozenset[int],
        style: AnswerStyle,
        opening: tuple[Span, ...] = (),
    ) -> None:
        """`ends`: the tokens that end a turn in the model's chat format. `opening`: what every prompt begins
        with."""
        self.page_size = engine.page_size
        self.num_pages = engine.num_pages
        self.max_positions = engine.max_positions
        self.overlaps = False
        self.grows = True
        self.least_part = _LEAST_PART
        self._engine = engine
        self._tokens = tokens
        self._style = style
        self._opening = opening
        self._remembered = Remembered(2 * engine.num_pages * engine.page_size)
        # A spoken answer has no second line.
        self._ends = ends | {token for token in range(engine.vocab) if b"\n" in tokens.token_bytes(token)}
        self._end_ids = torch.tensor(sorted(self._ends))
        self._words = Words.of(tokens, self._ends) if engine.exact else None
        self._steps = 0

    def assemble(self, inputs: PromptInputs) -> Prompt | NoAnswer:
        prompt = inputs.begun or self._begin(inputs.prompt.request)
        joined, params = _answer(prompt).prompt, prompt.params
        joined.add(inputs.prompt.spans, inputs.media)
        if inputs.prompt.more:
            self._check_length(prompt)
            return prompt
        turns = joined.turns(self._tokens.decode)
        if not params.results:
            if _silent(turns):
                if not params.unsaid:
                    return NoAnswer("silence")
            elif call := _demanded(turns[-1].words, params):
                return NoAnswer("tool_call", call)
        self._check_length(prompt)
        if known := self._known(turns, params):
            _answer(prompt).forced = self._tokens.encode(known)[: prompt.max_tokens]
        elif self._style.doubts:
            _answer(prompt).likelihood = Likelihood(joined.ids, joined.asked, self._remembered)
        return prompt

    def openings(self) -> Sequence[Prompt]:
        if not self._opening:
            return ()
        prompt = self._begin(PromptParams())
        _answer(prompt).prompt.add(self._opening, {})
        return (prompt,)

    def step(self, batch: Sequence[SequenceStep]) -> Sequence[StepOutput]:
        hidden = self._hidden(batch)
        judged = [_judged(step) for step in batch]
        wanted = [
            [*rows, -1] if step.sample and not _answer(step.prompt).forced else rows
            for step, rows in zip(batch, judged, strict=True)
        ]
        logits = self._logits([mine[rows] for mine, rows in zip(hidden, wanted, strict=True)])
        self._judge(batch, judged, logits)
        tokens = self._picked(batch, logits)
        return [
            self._output(step, token, rows[-1])
            for step, token, rows in zip(batch, tokens, hidden, strict=True)
        ]

    def close(self, prompt: Prompt) -> None:
        prompt.state = None

    def warm_up(self) -> None:
        for rows in _WARM_ROWS:
            count = min(rows, self.num_pages * self.page_size, self.max_positions)
            pages = range(-(-count // self.page_size))
            self._engine.forward(self._engine.embed([0] * count), [Chunk(0, count, pages)])
        logits = torch.from_numpy(self._engine.logits(np.zeros((1, self._engine.width), np.float32)))
        sample(logits, [RequestSampler(self._sampling(Sampling(), greedy=True), self._engine.vocab)], [0])
        self._known([UserTurn("What is two plus two?", "", spoke=True)], PromptParams())

    def _begin(self, params: PromptParams) -> Prompt:
        """A prompt without a position yet."""
        sampling = self._sampling(params.sampling, params.greedy)
        joined = JoinedPrompt(self._engine.width)
        return Prompt(
            keys=joined.ids,
            params=params,
            sampling=sampling,
            max_tokens=min(sampling.max_tokens or self._style.max_tokens, self._style.max_tokens),
            eos_ids=self._ends,
            state=_Answer(joined, RequestSampler(sampling, self._engine.vocab)),
            reader=StopStrings(sampling.stop, self._tokens.token_bytes) if sampling.stop else None,
        )

    def _check_length(self, prompt: Prompt) -> None:
        """Of all that has come: what is too long by then need not be computed."""
        most = self.max_positions - prompt.max_tokens
        if len(prompt.keys) > most:
            raise InputError(
                f"the prompt has {len(prompt.keys)} tokens; at most {most} fit: "
                "shorten the instructions, or say or show less at once",
                param="messages",
            )

    def _known(self, turns: Sequence[UserTurn], params: PromptParams) -> str | None:
        """The answer where a rule has it: to what functions gave, to a mere noise, or to a question for a
        built-in one."""
        if params.results:
            return spoken_results(params.results)
        if _silent(turns):
            return params.unsaid
        *earlier, last = turns
        if last.words == UNCLEAR:
            return SORRY
        said = [turn.words for turn in earlier]
        result = plan(last.words, _user_time(params.now), said, last.seen, self._style.functions)
        return result.spoken if result else None

    def _sampling(self, asked: Sampling, greedy: bool) -> Sampling:
        penalty = asked.repetition_penalty
        return msgspec.structs.replace(
            asked,
            temperature=0.0 if greedy else asked.temperature,
            repetition_penalty=self._style.repetition_penalty if penalty is None else penalty,
        )

    def _hidden(self, batch: Sequence[SequenceStep]) -> list[np.ndarray]:
        """The last hidden rows of each step's positions."""
        self._steps += 1
        taken = [self._taken(step) for step in batch]
        left = [step for step, rows in zip(batch, taken, strict=True) if rows is None]
        made = iter(self._passed(left, [self._next(step, len(batch)) for step in left]))
        return [next(made) if rows is None else rows for rows in taken]

    def _taken(self, step: SequenceStep) -> np.ndarray | None:
        """The row of a step whose one position was computed ahead."""
        answer = _answer(step.prompt)
        ahead, answer.ahead = answer.ahead, None
        if ahead is None or ahead.step != self._steps - 1:
            return None
        if (step.start, step.count) != (ahead.start, 1) or self._last_page(step) != ahead.page:
            return None
        if step.outputs[-1] != ahead.tokens[0]:
            answer.wrong += 1
            return None
        answer.wrong = 0
        self._keep(step, ahead.tokens[1:], ahead.rows[1:])
        return ahead.rows[:1]

    def _keep(self, step: SequenceStep, tokens: Sequence[int], rows: np.ndarray) -> None:
        """Remember what was computed ahead of `step`."""
        if tokens:
            end, page = step.start + step.count, self._last_page(step)
            _answer(step.prompt).ahead = _Ahead(self._steps, end, page, tokens, rows)

    def _last_page(self, step: SequenceStep) -> int:
        return step.pages[(step.start + step.count - 1) // self.page_size]

    def _next(self, step: SequenceStep, company: int) -> Sequence[int]:
        """The tokens to compute ahead of `step`, which is one of a batch of `company`."""
        end, answer = step.start + step.count, _answer(step.prompt)
        room = min(-end % self.page_size, self.max_positions - end)
        if self._words is None or not step.sample or room <= 0:
            return ()
        if answer.forced:
            # The row of the last token is nobody's.
            return answer.forced[len(step.outputs) : -1][:room] if company <= _FEW else ()
        if company > 1 or answer.wrong >= GIVE_UP:
            return ()
        if answer.drafts is None:
            answer.drafts = Drafts(answer.prompt.ids, answer.prompt.asked, self._words)
        # A beginning that is right spares the pass in which the tokens after it are guessed.
        return answer.drafts.after(step.outputs, min(ROWS if step.outputs else ROWS + 1, room))

    def _passed(self, steps: Sequence[SequenceStep], ahead: Sequence[Sequence[int]]) -> list[np.ndarray]:
        """The rows of each of `steps`, by one engine pass that computes tokens `ahead` of each."""
        if not steps:
            return []
        x = np.concatenate([self._rows(step, tokens) for step, tokens in zip(steps, ahead, strict=True)])
        counts = [step.count + len(tokens) for step, tokens in zip(steps, ahead, strict=True)]
        chunks = [Chunk(step.start, count, step.pages) for step, count in zip(steps, counts, strict=True)]
        made = np.split(self._engine.forward(x, chunks), np.cumsum(counts)[:-1])
        for step, tokens, rows in zip(steps, ahead, made, strict=True):
            self._keep(step, tokens, rows[step.count :])
        return [rows[: step.count] for step, rows in zip(steps, made, strict=True)]

    def _rows(self, step: SequenceStep, ahead: Sequence[int]) -> np.ndarray:
        """The inputs of a step: prompt positions, after a preemption the answer's too, and `ahead`."""
        length, end = len(step.prompt.keys), step.start + step.count
        said = [*step.outputs[max(0, step.start - length) : max(0, end - length)], *ahead]
        rows = []
        if step.start < length:
            rows.append(_answer(step.prompt).prompt.rows(step.start, min(end, length), self._engine.embed))
        if said:
            rows.append(self._engine.embed(said))
        return np.concatenate(rows)

    def _logits(self, rows: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
        """Of each of `rows`, by one product: most of its time goes into reading the head's matrix."""
        counts = [len(some) for some in rows]
        if not any(counts):
            return [np.empty((0, self._engine.vocab), np.float32)] * len(rows)
        return np.split(self._engine.logits(np.concatenate(rows)), np.cumsum(counts)[:-1])

    def _judge(
        self, batch: Sequence[SequenceStep], judged: Sequence[list[int]], logits: Sequence[np.ndarray]
    ) -> None:
        """Learn how likely the questions in `batch` are, by the rows `judged`, whose logits come first; those
        that make no sense get their answer."""
        for step, rows, mine in zip(batch, judged, logits, strict=True):
            answer = _answer(step.prompt)
            if answer.likelihood and not step.outputs:
                answer.likelihood.add(step.start, rows, mine[: len(rows)])
                if step.sample and answer.likelihood.unlikely:
                    answer.forced = self._tokens.encode(SORRY)[: step.prompt.max_tokens]

    def _picked(self, batch: Sequence[SequenceStep], logits: Sequence[np.ndarray]) -> list[int | None]:
        """The next token of each step that wants one, from the last of its `logits`."""
        tokens: list[int | None] = [None] * len(batch)
        asking = []
        for place, step in enumerate(batch):
            if not step.sample:
                continue
            if forced := _answer(step.prompt).forced:
                tokens[place] = forced[len(step.outputs)]
            else:
                asking.append(place)
        if not asking:
            return tokens
        lasts = torch.from_numpy(np.stack([logits[place][-1] for place in asking]))
        for row, place in enumerate(asking):
            if not batch[place].outputs:
                lasts[row, self._end_ids] = -torch.inf
        samplers = [_answer(batch[place].prompt).sampler for place in asking]
        picked = sample(lasts, samplers, [len(batch[place].outputs) for place in asking])
        for place, token in zip(asking, picked, strict=True):
            tokens[place] = token
        return tokens

    def _output(self, step: SequenceStep, token: int | None, hidden: np.ndarray) -> StepOutput:
        if token is None or token in self._ends:
            return StepOutput(token)
        said = [*step.outputs, token]
        forced = _answer(step.prompt).forced
        done = len(said) == len(forced) if forced else said_enough(self._tokens.decode(said))
        return StepOutput(token, hidden, finish_reason="stop" if done else None)


def _answer(prompt: Prompt) -> _Answer:
    assert isinstance(prompt.state, _Answer)
    return prompt.state


def _judged(step: SequenceStep) -> list[int]:
    """Which of the step's rows tell how likely the question is."""
    likelihood = None if step.outputs else _answer(step.prompt).likelihood
    return likelihood.rows(step.start, step.count) if likelihood else []


def _silent(turns: Sequence[UserTurn]) -> bool:
    """The user's last sound held no words."""
    return not turns or (turns[-1].spoke and not turns[-1].words)


def _demanded(words: str, params: PromptParams) -> ToolCall | None:
    """The call that the request demands; none of a user who was not understood, and is asked again."""
    return None if words == UNCLEAR else demanded_call(words, params.tools, params.tool_choice)


def _user_time(now: str | None) -> datetime:
    """The user's clock, else this machine's. Raises InputError."""
    if now is None:
        return datetime.now().astimezone()
    try:
        return datetime.fromisoformat(now)
    except ValueError as error:
        raise InputError(
            f"now: {now!r} is no ISO 8601 time; give one such as 2026-11-29T21:05+01:00", param="now"
        ) from error
