"""From the graph's `SchedulerKind` to the class that runs it."""

from typing import cast

from voice_app.pipeline.graph import SchedulerKind, StageSpec
from voice_app.schedulers.base import (
    AnyRunner,
    Code2WavRunner,
    OnePassRunner,
    Outbox,
    StageScheduler,
    TalkerRunner,
    ThinkerRunner,
    TokenDecoder,
)
from voice_app.schedulers.code2wav import Code2WavScheduler
from voice_app.schedulers.omni import OmniScheduler
from voice_app.schedulers.omni_overlapped import OverlappedOmniScheduler
from voice_app.schedulers.simple import SimpleScheduler
from voice_app.schedulers.streaming_detokenize import StreamingDetokenizeScheduler
from voice_app.schedulers.talker import QwenTalkerScheduler


def make_scheduler(spec: StageSpec, runner: AnyRunner, outbox: Outbox) -> StageScheduler:
    """The scheduler of stage `spec` around `runner`, which a pack built for that very stage."""
    match spec.scheduler:
        case SchedulerKind.SIMPLE:
            return SimpleScheduler(cast(OnePassRunner, runner), outbox, spec.batch)
        case SchedulerKind.OMNI:
            thinker = cast(ThinkerRunner, runner)
            loop = OverlappedOmniScheduler if thinker.overlaps else OmniScheduler
            return loop(thinker, outbox, spec.batch)
        case SchedulerKind.TALKER:
            return QwenTalkerScheduler(cast(TalkerRunner, runner), outbox, spec.batch)
        case SchedulerKind.STREAMING_DETOKENIZE:
            return StreamingDetokenizeScheduler(cast(TokenDecoder, runner), outbox)
        case SchedulerKind.CODE2WAV:
            return Code2WavScheduler(cast(Code2WavRunner, runner), outbox, spec.batch)
