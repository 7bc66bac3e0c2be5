"""How turns are told apart in a session of some configuration."""

from dataclasses import replace

from voice_app.server.protocol import config as cfg
from voice_app.server.session.turn_types import Rules
from voice_app.server.settings import TalkSettings

EAGERNESS = {"high": (250, 2_000), "medium": (400, 4_000), "auto": (400, 4_000), "low": (700, 8_000)}
"""semantic_vad: ms of silence that end a turn which sounds complete, and any turn (the protocol's maxima)."""


def turn_rules(config: cfg.Config, talk: TalkSettings) -> Rules:
    """Of `config`, under the operator's settings."""
    detection = config.audio.input.turn_detection
    if detection is None:
        return Rules()
    answers = detection.create_response and config.type == "realtime"
    speculate_ms = talk.speculate_ms if answers else None
    rules = Rules(
        speculate_ms=speculate_ms,
        early_ms=talk.early_ms,
        ahead_ms=talk.ahead_ms if talk.transcribes and speculate_ms is not None else None,
        onset_ms=talk.onset_ms,
        interrupt=detection.interrupt_response,
        interrupt_ms=talk.interrupt_ms,
        judge_words=talk.transcribes and speculate_ms is not None,
    )
    if isinstance(detection, cfg.SemanticVad):
        sure_ms, longest_ms = EAGERNESS[detection.eagerness]
        return replace(rules, silence_ms=longest_ms, sure_ms=sure_ms)
    return replace(
        rules,
        prefix_ms=detection.prefix_padding_ms,
        silence_ms=detection.silence_duration_ms,
        idle_ms=detection.idle_timeout_ms,
    )
