"""Conversation items as a client writes them."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field


def without_nulls(value: Any) -> Any:
    """Clients write an optional key that they leave out as null: the same thing here."""
    if isinstance(value, dict):
        return {key: without_nulls(entry) for key, entry in value.items() if entry is not None}
    if isinstance(value, list):
        return [without_nulls(entry) for entry in value]
    return value


class Model(BaseModel):
    """Strict, and closed: an unknown key is an error, as it is with the real API."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class InputTextPart(Model):
    type: Literal["input_text"]
    text: str


class InputAudioPart(Model):
    """`audio`: base64 in the session's input format."""

    type: Literal["input_audio"]
    audio: str | None = None
    transcript: str | None = None


class InputImagePart(Model):
    """`image_url`: a data URL of a JPEG, PNG or WebP picture."""

    type: Literal["input_image"]
    image_url: str
    detail: Literal["auto", "low", "high"] = "auto"


class OutputTextPart(Model):
    type: Literal["output_text"]
    text: str


class OutputAudioPart(Model):
    """An earlier spoken answer; only its words go into the prompt."""

    type: Literal["output_audio"]
    transcript: str = ""
    audio: str | None = None


class _Item(Model):
    id: Annotated[str, Field(min_length=1, max_length=64)] | None = None
    object: Literal["realtime.item"] | None = None
    status: Literal["completed", "incomplete", "in_progress"] | None = None


class UserItem(_Item):
    type: Literal["message"]
    role: Literal["user"]
    content: list[Annotated[InputTextPart | InputAudioPart | InputImagePart, Field(discriminator="type")]]


class AssistantItem(_Item):
    type: Literal["message"]
    role: Literal["assistant"]
    content: list[Annotated[OutputTextPart | OutputAudioPart, Field(discriminator="type")]]


class SystemItem(_Item):
    type: Literal["message"]
    role: Literal["system"]
    content: list[InputTextPart]


class FunctionCallItem(_Item):
    type: Literal["function_call"]
    name: str
    arguments: str
    call_id: str | None = None


class FunctionCallOutputItem(_Item):
    type: Literal["function_call_output"]
    call_id: str
    output: str


class ItemReference(Model):
    """In the input of a response: an item of the conversation, by its id."""

    type: Literal["item_reference"]
    id: str


MessageItem = Annotated[UserItem | AssistantItem | SystemItem, Field(discriminator="role")]
ClientItem = Annotated[MessageItem | FunctionCallItem | FunctionCallOutputItem, Field(discriminator="type")]
NewItem = Annotated[ClientItem, BeforeValidator(without_nulls)]
"""What `conversation.item.create` may add."""
InputItem = Annotated[
    Annotated[
        MessageItem | FunctionCallItem | FunctionCallOutputItem | ItemReference,
        Field(discriminator="type"),
    ],
    BeforeValidator(without_nulls),
]
"""What the input of a response may hold."""
