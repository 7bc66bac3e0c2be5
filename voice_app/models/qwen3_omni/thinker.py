"""The thinker's runner: prompts from ids and embeddings, one packed forward pass a step, sampling."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from msgspec import structs
from torch import nn

from voice_app.errors import InputError
from voice_app.messages import Embeddings, PromptHidden, PromptParams, Sampling
from voice_app.models.paged_attention import Chunk, KVPool, PackedBatch, pack, zeros
from voice_app.models.qwen3_omni.adapter import Decoder
from voice_app.models.qwen3_omni.arrays import to_array, to_tensor
from voice_app.models.qwen3_omni.facts import ThinkerFacts
from voice_app.models.qwen3_omni.graphs import SIZES, DecodeInputs, Graph, Lane, size_for
from voice_app.models.qwen3_omni.positions import Run, rope_positions
from voice_app.models.qwen3_omni.tool_calls import ToolCalls, demanded
from voice_app.schedulers.answer_reader import AnswerReader
from voice_app.schedulers.base import Prompt, PromptInputs, SequenceStep, StepOutput
from voice_app.schedulers.radix_cache import media_keys
from voice_app.schedulers.sampler import RequestSampler, sample
from voice_app.schedulers.stop_strings import StopStrings


@dataclass(slots=True)
class _Media:
    """Encoder output at prompt positions [start, start + len(rows))."""

    start: int
    rows: torch.Tensor
    deepstack: torch.Tensor | None
    """[layers, n, hidden], for pictures."""


@dataclass(slots=True)
class _State:
    """What the runner keeps of one prompt. A step may read it while a further part of the prompt is put
    behind: what is there already stays as it is."""

    sampler: RequestSampler
    ids: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    """[n] int64; 0 where media stand."""
    positions: np.ndarray = field(default_factory=lambda: np.empty((3, 0), np.int64))
    """[3, n] rope positions."""
    next_position: int = 0
    media: list[_Media] = field(default_factory=list)
    heard_sent: bool = False


@dataclass(slots=True)
class _Overlay:
    """What replaces or joins the token embeddings of one step's rows."""

    rows: list[np.ndarray] = field(default_factory=list)
    values: list[torch.Tensor] = field(default_factory=list)
    deep_rows: list[np.ndarray] = field(default_factory=list)
    deep_values: list[torch.Tensor] = field(default_factory=list)


class Thinker:
    """A `ThinkerRunner`. Beside each position's KV it keeps the accept layer's hidden state, in the same
    pages, so that the talker gets them for prompts that come out of the prefix cache too."""

    def __init__(
        self,
        decoder: Decoder,
        head: nn.Linear,
        facts: ThinkerFacts,
        pool: KVPool,
        token_bytes: Callable[[int], bytes],
    ) -> None:
        self.page_size = pool.page_size
        self.num_pages = pool.pages
        self.max_positions = facts.decoder.max_positions
        self.overlaps = pool.device.type == "cuda"
        self.grows = True
        self.least_part = 1
        self._decoder = decoder
        self._head = head
        self._facts = facts
        self._pool = pool
        self._token_bytes = token_bytes
        weight = decoder.embed.weight
        self._dtype, self._device = weight.dtype, weight.device
        self._lane = Lane(pool.device)
        self._graphs: dict[int, DecodeGraph] = {}
        shape = (pool.pages * pool.page_size, facts.decoder.hidden)
        self._heard = zeros(shape, self._dtype, self._device)

    @staticmethod
    def page_bytes(facts: ThinkerFacts, page_size: int, dtype: torch.dtype) -> int:
        """Bytes of one page: KV of all layers and the accepted hidden states."""
        shape = facts.decoder
        kv = KVPool.page_bytes(shape.layers, page_size, shape.kv_heads, shape.head_dim, dtype)
        return kv + page_size * shape.hidden * dtype.itemsize

    # ----------------------------------------------------------------------------------------- prompts

    def openings(self) -> Sequence[Prompt]:
        return ()

    @torch.inference_mode()
    def assemble(self, inputs: PromptInputs) -> Prompt:
        with self._lane():
            return self._assemble(inputs)

    def _assemble(self, inputs: PromptInputs) -> Prompt:
        prompt = inputs.begun or self._begin(inputs.prompt.request)
        state = _state(prompt)
        first = len(prompt.keys)
        ids: list[int] = []
        keys: list[int] = []
        runs: list[Run] = []
        media: list[_Media] = []
        for span in inputs.prompt.spans:
            start = first + len(ids)
            if span.media is None:
                ids += span.ids
                keys += span.ids
                runs.append(Run(len(span.ids)))
                continue
            found = inputs.media[span.media.key]
            media.append(self._take(start, found))
            runs.append(run_of(found, self._facts.merge))
            ids += [0] * len(found.rows)
            keys += media_keys(span.media.key, len(found.rows))
        self._check_length(first + len(keys))
        positions, state.next_position = rope_positions(runs, state.next_position)
        state.positions = np.concatenate([state.positions, positions], axis=1)
        state.ids = np.concatenate([state.ids, np.array(ids, np.int64)])
        state.media += media
        state.sampler.count_prompt(self._seen(inputs))
        prompt.keys += keys
        return prompt

    def _begin(self, params: PromptParams) -> Prompt:
        """A prompt without a position yet."""
        sampling = _filled(params, self._facts.sampling)
        return Prompt(
            keys=[],
            params=params,
            sampling=sampling,
            max_tokens=sampling.max_tokens or self._facts.max_tokens,
            eos_ids=self._facts.eos,
            state=_State(RequestSampler(sampling, self._head.out_features, device=self._device)),
            reader=self._reader(params, sampling),
        )

    def _reader(self, params: PromptParams, sampling: Sampling) -> AnswerReader | None:
        names = [tool.name for tool in params.tools]
        if names and params.tool_choice != "none":
            offered = demanded(names, params.tool_choice) or names
            return ToolCalls(set(offered), sampling.stop, self._token_bytes)
        return StopStrings(sampling.stop, self._token_bytes) if sampling.stop else None

    def close(self, prompt: Prompt) -> None:
        prompt.state = None

    def _take(self, start: int, found: Embeddings) -> _Media:
        deepstack = None
        if found.deepstack is not None:
            deepstack = to_tensor(found.deepstack, self._dtype, self._device)
        return _Media(start, to_tensor(found.rows, self._dtype, self._device), deepstack)

    def _check_length(self, count: int) -> None:
        most = min(self.max_positions, self.num_pages * self.page_size) - 1
        if count > most:
            raise InputError(
                f"the prompt is {count} tokens long; at most {most} fit: shorten it or the history",
                param="messages",
            )

    def _seen(self, inputs: PromptInputs) -> list[int]:
        """Token ids that a repetition penalty counts: the prompt's, media by their place holders."""
        tokens = self._facts.tokens
        seen: set[int] = set()
        for span in inputs.prompt.spans:
            if span.media is None:
                seen.update(span.ids)
            else:
                seen.add(tokens.audio if span.media.kind == "audio" else tokens.image)
        return sorted(seen)

    # -------------------------------------------------------------------------------------------- step

    @torch.inference_mode()
    def step(self, batch: Sequence[SequenceStep]) -> Sequence[StepOutput]:
        with self._lane():
            graph = self._graphs.get(size_for(len(batch)) or 0)
            if graph is not None and all(map(_is_decode, batch)):
                logits = graph.run_on(batch)
                return self._outputs(batch, range(len(batch)), logits)
            return self._eager(batch)

    def _eager(self, batch: Sequence[SequenceStep]) -> list[StepOutput]:
        # Single rows first: the attention takes them as one padded call.
        order = sorted(range(len(batch)), key=lambda i: batch[i].count > 1)
        steps = [batch[i] for i in order]
        packed = pack(self._pool, [Chunk(s.pages, s.start, s.count) for s in steps])
        hidden = self._forward(steps, packed)
        wanted = [place for place, step in enumerate(steps) if step.sample]
        if not wanted:
            return [StepOutput() for _ in batch]
        logits = self._head(hidden[packed.last_rows[wanted]])
        return self._outputs(batch, [order[place] for place in wanted], logits)

    def _outputs(
        self, batch: Sequence[SequenceStep], wanted: Sequence[int], logits: torch.Tensor
    ) -> list[StepOutput]:
        """Give the next token of the sequences at `wanted`, whose `logits` [wanted, vocab] these are."""
        steps = [batch[place] for place in wanted]
        tokens = _picked(steps, logits)
        vectors = to_array(self._decoder.embed(torch.tensor(tokens, device=self._device)))
        outputs = [StepOutput() for _ in batch]
        for place, step, token, vector in zip(wanted, steps, tokens, vectors, strict=True):
            outputs[place] = StepOutput(token, vector, self._before(step))
        return outputs

    @torch.inference_mode()
    def capture(self) -> None:
        """From now on run decodes of every size in `SIZES` at fixed addresses, captured if there is CUDA."""
        with self._lane():
            for size in SIZES:
                self._graphs[size] = DecodeGraph(
                    self._decoder, self._head, self._pool, self._lane, size, self.max_positions
                )

    def warm_up(self) -> None:
        """Capture, if the attention kernel can be; else a prefill and decodes, in pages nobody has yet."""
        if self._pool.use_varlen:
            self.capture()
        for rows in (1, 2, 4, 8, 16, 32):
            self._blank(1, rows)
        for count in (16, 256):
            self._blank(count, 1)

    def _blank(self, count: int, sequences: int) -> None:
        count = min(count, self.page_size * self.num_pages)
        pages = list(range(-(-count // self.page_size)))
        sampler = RequestSampler(Sampling(), self._head.out_features, device=self._device)
        state = _State(sampler, np.zeros(count, np.int64), np.zeros((3, count), np.int64), count)
        prompt = Prompt([0] * count, PromptParams(), Sampling(), 1, frozenset(), state)
        self.step([SequenceStep(prompt, [], 0, count, pages, sample=True) for _ in range(sequences)])

    def _forward(self, steps: Sequence[SequenceStep], packed: PackedBatch) -> torch.Tensor:
        ids, positions = zip(*(_inputs(step) for step in steps), strict=True)
        rows = self._decoder.embed(torch.from_numpy(np.concatenate(ids)).to(self._device))
        places = torch.from_numpy(np.concatenate(positions, axis=1)).to(self._device)
        overlay = _overlay(steps)
        if not overlay.rows:
            return self._decoder.forward(rows, places, packed)[0]
        heard = self._index(overlay.rows)
        rows[heard] = torch.cat(overlay.values)
        deepstack = None
        if overlay.deep_rows:
            deepstack = (self._index(overlay.deep_rows), torch.cat(overlay.deep_values, dim=1))
        hidden, accepted = self._decoder.forward(
            rows, places, packed, accept_layer=self._facts.accept_layer, deepstack=deepstack
        )
        assert accepted is not None
        self._heard[packed.slots[heard]] = accepted[heard]
        return hidden

    def _index(self, rows: Sequence[np.ndarray]) -> torch.Tensor:
        return torch.from_numpy(np.concatenate(rows)).to(self._device)

    def _before(self, step: SequenceStep) -> tuple[PromptHidden, ...]:
        """The hidden states at media, once, with the first token."""
        state = _state(step.prompt)
        if state.heard_sent or not state.media:
            return ()
        state.heard_sent = True
        places = np.concatenate([np.arange(m.start, m.start + len(m.rows)) for m in state.media])
        pages = np.array(step.pages, np.int64)
        slots = pages[places // self.page_size] * self.page_size + places % self.page_size
        rows = self._heard[torch.from_numpy(slots).to(self._device)]
        return (PromptHidden(to_array(rows), places),)


class DecodeGraph:
    """The thinker's decode for up to `size` sequences."""

    def __init__(
        self, decoder: Decoder, head: nn.Linear, pool: KVPool, lane: Lane, size: int, positions: int
    ) -> None:
        self._inputs = DecodeInputs(pool, size, positions)
        self._ids = torch.zeros(size, dtype=torch.int64, device=pool.device)

        def call() -> torch.Tensor:
            rows = decoder.embed(self._ids)
            return head(decoder.forward(rows, self._inputs.positions, self._inputs.packed())[0])

        self._graph = Graph(call, lane)

    def run_on(self, steps: Sequence[SequenceStep]) -> torch.Tensor:
        """Logits [n, vocab] after the decodes `steps`."""
        ids, positions = zip(*(_inputs(step) for step in steps), strict=True)
        self._ids[: len(steps)].copy_(torch.from_numpy(np.concatenate(ids)))
        chunks = [Chunk(step.pages, step.start, 1) for step in steps]
        self._inputs.fill(chunks, np.concatenate(positions, axis=1))
        return self._graph.run()[: len(steps)]


def _is_decode(step: SequenceStep) -> bool:
    """One row that is a token of the answer, whose next one is wanted."""
    return step.count == 1 and step.sample and step.start >= len(step.prompt.keys)


def _picked(steps: Sequence[SequenceStep], logits: torch.Tensor) -> list[int]:
    """The next token of each: sampled, but where the request says how its answer begins."""
    tokens = [0] * len(steps)
    asking: list[int] = []
    for place, step in enumerate(steps):
        begins, count = step.prompt.params.begins, len(step.outputs)
        if count < len(begins):
            tokens[place] = begins[count]
            _state(step.prompt).sampler.observe(tokens[place])
        else:
            asking.append(place)
    if not asking:
        return tokens
    rows = logits if len(asking) == len(steps) else logits[asking]
    samplers = [_state(steps[place].prompt).sampler for place in asking]
    picked = sample(rows.float(), samplers, [len(steps[place].outputs) for place in asking])
    for place, token in zip(asking, picked, strict=True):
        tokens[place] = token
    return tokens


def run_of(found: Embeddings, merge: int) -> Run:
    """The rope run of one media's embeddings; `merge` patches a side are one position."""
    if found.grid is None:
        return Run(len(found.rows))
    _, rows, columns = found.grid
    return Run(len(found.rows), rows // merge, columns // merge)


def _state(prompt: Prompt) -> _State:
    assert isinstance(prompt.state, _State)
    return prompt.state


def _inputs(step: SequenceStep) -> tuple[np.ndarray, np.ndarray]:
    """Token ids [count] and rope positions [3, count] of a sequence's rows."""
    state, end = _state(step.prompt), step.start + step.count
    length = len(state.ids)
    ids, positions = state.ids[step.start : end], state.positions[:, step.start : end]
    if end > length:
        first = max(0, step.start - length)
        ids = np.concatenate([ids, np.array(step.outputs[first : end - length], np.int64)])
        after = np.arange(first, end - length) + state.next_position
        positions = np.concatenate([positions, np.broadcast_to(after, (3, len(after)))], axis=1)
    return ids, positions


def _overlay(steps: Sequence[SequenceStep]) -> _Overlay:
    overlay, row = _Overlay(), 0
    for step in steps:
        end = step.start + step.count
        for media in _state(step.prompt).media:
            first, last = max(media.start, step.start), min(media.start + len(media.rows), end)
            if first < last:
                rows = np.arange(first, last) - step.start + row
                part = slice(first - media.start, last - media.start)
                overlay.rows.append(rows)
                overlay.values.append(media.rows[part])
                if media.deepstack is not None:
                    overlay.deep_rows.append(rows)
                    overlay.deep_values.append(media.deepstack[:, part])
        row += step.count
    return overlay


def _filled(params: PromptParams, defaults: Sampling) -> Sampling:
    """The request's sampling, with the checkpoint's defaults where it says nothing."""
    given = {name: value for name, value in structs.asdict(params.sampling).items() if value is not None}
    if params.greedy:
        given["temperature"] = 0.0
    return structs.replace(defaults, **given)
