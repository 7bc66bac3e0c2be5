"""What one response is to be: the session's configuration with what the client overrides."""

import msgspec

from voice_app.messages import Sampling, ToolSpec
from voice_app.server.protocol.client_events import ResponseAudioOutput, ResponseParams
from voice_app.server.protocol.config import Config, FunctionTool, SamplingConfig
from voice_app.server.protocol.errors import ProtocolError
from voice_app.server.session.response import ResponseSpec


def response_spec(config: Config, params: ResponseParams | None = None) -> ResponseSpec:
    """Raises ProtocolError if `params` demands a tool that is not there."""
    given = params or ResponseParams()
    output = (given.audio.output if given.audio else None) or ResponseAudioOutput()
    voice = output.voice or config.audio.output.voice
    tools = config.tools if given.tools is None else given.tools
    choice = given.tool_choice or config.tool_choice
    name = choice if isinstance(choice, str) else choice.name
    if not isinstance(choice, str) and all(tool.name != name for tool in tools):
        if given.tool_choice is not None:
            raise ProtocolError(
                "invalid_value", f"Tool choice '{name}' is none of the tools.", param="response.tool_choice"
            )
        # The session's choice may come in an earlier update than its tools.
        name = "auto"
    return ResponseSpec(
        spoken=(given.output_modalities or config.output_modalities) == ["audio"],
        instructions=config.instructions if given.instructions is None else given.instructions,
        audio_format=output.format or config.audio.output.format,
        voice=voice if isinstance(voice, str) else voice.id,
        speed=config.audio.output.speed,
        tools=tuple(_tool(tool) for tool in tools),
        tool_choice=name,
        max_tokens=given.max_output_tokens or config.max_output_tokens,
        metadata=given.metadata,
        in_conversation=given.conversation != "none",
        sampling=_sampling(config.sampling),
        word_times=config.extensions.word_times,
        binary=config.extensions.binary_audio,
        timing=config.extensions.timing,
    )


def _sampling(given: SamplingConfig | None) -> Sampling:
    return Sampling() if given is None else Sampling(**given.model_dump())


def _tool(tool: FunctionTool) -> ToolSpec:
    return ToolSpec(tool.name, tool.description, msgspec.json.encode(tool.parameters).decode())
