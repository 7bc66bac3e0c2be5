"""The talker's tensors: prompt rows, a frame of codes from input rows, and that frame captured in graphs."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from voice_app.models.paged_attention import Chunk, KVPool, PackedBatch, pack
from voice_app.models.qwen3_omni.adapter import Decoder, Module
from voice_app.models.qwen3_omni.code_predictor import CodePredictor
from voice_app.models.qwen3_omni.code_sampler import CodeSampler, Draws, Row, numbers_for
from voice_app.models.qwen3_omni.facts import TalkerFacts
from voice_app.models.qwen3_omni.graphs import SIZES, DecodeInputs, Graph, Lane, size_for
from voice_app.models.qwen3_omni.talker_prompt import TalkerPlan


@dataclass(frozen=True, slots=True)
class Parked:
    """What the device held of a turn under way, on the host."""

    kv: torch.Tensor
    """[layers, positions, 2, kv_heads, head_dim]"""
    frame: torch.Tensor
    """[hidden]: what its last frame is fed back as."""
    history: torch.Tensor
    """As the sampler's."""


class TalkerModel:
    """`slots` turns at most; the one behind them fills batches up."""

    def __init__(
        self, talker: Module, text_embedding: nn.Embedding, facts: TalkerFacts, pool: KVPool, slots: int
    ) -> None:
        self.pool = pool
        self.facts = facts
        self.embed_text = text_embedding
        self._spare = slots
        self._decoder = Decoder(talker.model, talker.model.codec_embedding)
        self._text_projection: Module = talker.text_projection
        self._hidden_projection: Module = talker.hidden_projection
        self._predictor = CodePredictor(talker.code_predictor, facts.groups)
        head: torch.Tensor = talker.codec_head.weight
        self.dtype, self.device = head.dtype, head.device
        self.sampler = CodeSampler(facts, slots + 1, self.device)
        self._head = head[self.sampler.allowed].detach()
        # What each slot's next step is fed beside its text: the sum of its last frame's embeddings.
        self._sums = torch.zeros((slots + 1, facts.decoder.hidden), dtype=self.dtype, device=self.device)
        self._graphs: dict[int, FrameGraph] = {}
        marks = [facts.tokens.tts_bos, facts.tokens.tts_eos, facts.tokens.tts_pad]
        with torch.inference_mode():
            self._bos, self.text_end, self.text_pad = self._project_ids(marks).unbind(0)

    def text_rows(self, vectors: Sequence[torch.Tensor]) -> torch.Tensor:
        """What the talker makes of the thinker's `vectors`: [n, hidden]."""
        return self._text_projection(torch.stack(list(vectors)))

    def prompt_rows(
        self, plan: TalkerPlan, speaker: int, heard: torch.Tensor, first: torch.Tensor
    ) -> torch.Tensor:
        """Inputs [n + 9, hidden] of the user's turns and the answer's start. `heard`: the thinker's hidden
        states at the plan's `heard` positions, in order; `first`: the answer's first vector."""
        facts = self.facts
        user = self._project_ids(plan.ids)
        places = np.flatnonzero(plan.heard >= 0)
        if len(places):
            user[self.ids(places)] = self._hidden_projection(heard)
        codec = [facts.nothink, facts.think_bos, facts.think_eos, speaker, facts.codec_pad, facts.codec_bos]
        answer = torch.cat(
            [
                self._project_ids(plan.header),
                self.text_pad.expand(4, -1),
                self._bos.unsqueeze(0),
                self.text_rows([first]),
            ]
        )
        answer[len(plan.header) :] += self._decoder.embed(self.ids(codec))
        return torch.cat([user, answer])

    def frames(
        self,
        prompts: Sequence[torch.Tensor],
        text: torch.Tensor,
        chunks: Sequence[Chunk],
        positions: np.ndarray,
        rows: Sequence[Row],
    ) -> np.ndarray:
        """Codes [n, groups] int64 of each row's next frame; the first is the EOS where the voice ends.

        First those that are fed back, `text` [fed back, hidden] being their next text, then `prompts`.
        `positions` [3, all rows]: rope positions."""
        graph = self._graphs.get(size_for(len(rows)) or 0)
        if graph is not None and not prompts:
            return graph.run_on(text, chunks, positions, rows)
        draws = Draws.of(rows, self.facts.groups, self.device)
        back = self.fed_back(draws.slots[: len(text)], text)
        packed = pack(self.pool, chunks)
        places = torch.from_numpy(np.ascontiguousarray(positions)).to(self.device)
        return self.frame(torch.cat([back, *prompts]), places, packed, draws).cpu().numpy()

    def frame(
        self, inputs: torch.Tensor, positions: torch.Tensor, packed: PackedBatch, draws: Draws
    ) -> torch.Tensor:
        """Codes [n, groups]; what they are fed back as is kept in the rows' slots."""
        hidden = self._decoder.forward(inputs, positions, packed)[0][packed.last_rows]
        picked = self.sampler.first(F.linear(hidden, self._head), draws)
        first = self.sampler.allowed[picked]
        others, sums = self._predictor.predict(hidden, self._decoder.embed(first), self.sampler.others(draws))
        self._sums[draws.slots] = sums
        return torch.cat((first.unsqueeze(1), others), dim=1)

    def capture(self, lane: Lane, positions: int) -> None:
        """From now on make frames that follow on frames at fixed addresses, for every size in `SIZES` up
        to the number of slots, captured if there is CUDA."""
        for size in SIZES:
            if size <= self._spare:
                self._graphs[size] = FrameGraph(self, lane, size, positions, self._spare)

    def take_out(self, slot: int, pages: Sequence[int], length: int) -> Parked:
        """All that is kept for the turn in `slot`, whose first `length` positions lie in `pages`."""
        kv = self.pool.read(pages, length)
        return Parked(kv, self._sums[slot].to("cpu", copy=True), self.sampler.history(slot))

    def put_back(self, slot: int, pages: Sequence[int], parked: Parked) -> None:
        """Undo `take_out`, in another slot and other pages."""
        self.pool.write(pages, parked.kv)
        self._sums[slot] = parked.frame.to(self.device)
        self.sampler.recall(slot, parked.history)

    def fed_back(self, slots: torch.Tensor, text: torch.Tensor) -> torch.Tensor:
        """Inputs [n, hidden] of frames that follow on those last made in `slots`."""
        return self._sums[slots] + text

    def ids(self, ids: Sequence[int] | np.ndarray) -> torch.Tensor:
        """Numbers as an index on the device."""
        return torch.from_numpy(np.array(ids, np.int64)).to(self.device)

    def _project_ids(self, ids: Sequence[int] | np.ndarray) -> torch.Tensor:
        return self._text_projection(self.embed_text(self.ids(ids)))


class FrameGraph:
    """A frame for up to `size` voices that each follow on a frame. `spare`: the slot of rows without one."""

    def __init__(self, model: TalkerModel, lane: Lane, size: int, positions: int, spare: int) -> None:
        device, groups = model.device, model.facts.groups
        self._groups = groups
        self._spare = spare
        self._inputs = DecodeInputs(model.pool, size, positions)
        self._text = torch.zeros((size, model.facts.decoder.hidden), dtype=model.dtype, device=device)
        self._slots = torch.full((size,), spare, device=device)
        self._numbers = torch.zeros((groups, size), dtype=torch.float64, device=device)
        self._greedy = torch.ones(size, dtype=torch.bool, device=device)
        draws = Draws(self._slots, self._numbers, self._greedy)

        def call() -> torch.Tensor:
            rows = model.fed_back(self._slots, self._text)
            return model.frame(rows, self._inputs.positions, self._inputs.packed(), draws)

        self._graph = Graph(call, lane)

    def run_on(
        self, text: torch.Tensor, chunks: Sequence[Chunk], positions: np.ndarray, rows: Sequence[Row]
    ) -> np.ndarray:
        """As `TalkerModel.frames`, without prompts."""
        count = len(rows)
        self._inputs.fill(chunks, positions)
        self._text[:count].copy_(text)
        self._slots.fill_(self._spare)
        self._slots[:count].copy_(torch.tensor([row.slot for row in rows]))
        self._greedy[:count].copy_(torch.tensor([row.greedy for row in rows]))
        if not all(row.greedy for row in rows):
            self._numbers[:, :count].copy_(numbers_for(rows, self._groups))
        return self._graph.run()[:count].cpu().numpy()
