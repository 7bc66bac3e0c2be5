"""The words of the tiny checkpoint: its special tokens, its chat template, and what its BPE learns from."""

SPECIAL_TOKENS = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|vision_pad|>",
    "<|image_pad|>",
    "<|video_pad|>",
    "<|audio_start|>",
    "<|audio_end|>",
    "<tts_pad>",
    "<tts_text_bos>",
    "<tts_text_eod>",
    "<tts_text_bos_single>",
    "<|audio_pad|>",
)
"""Named as in the published tokenizer."""

ROLES = ("system", "user", "assistant")

CHAT_TEMPLATE = """\
{%- if tools %}
{{- '<|im_start|>system\\n' }}
{%- if messages[0].role == 'system' %}
{{- messages[0].content if messages[0].content is string else messages[0].content[0].text }}{{- '\\n\\n' }}
{%- endif %}
{{- '# Tools\\n<tools>' }}
{%- for tool in tools %}{{- '\\n' }}{{- tool | tojson }}{%- endfor %}
{{- '\\n</tools><|im_end|>\\n' }}
{%- elif messages[0].role == 'system' %}
{{- '<|im_start|>system\\n' }}
{{- messages[0].content if messages[0].content is string else messages[0].content[0].text }}
{{- '<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
{%- if message.role != 'system' %}
{{- '<|im_start|>' + ('user' if message.role == 'tool' else message.role) + '\\n' }}
{%- if message.role == 'tool' %}{{- '<tool_response>\\n' }}{%- endif %}
{%- if message.content is string %}
{{- message.content }}
{%- else %}
{%- for part in message.content or [] %}
{%- if part.type == 'image' %}
{{- '<|vision_start|><|image_pad|><|vision_end|>' }}
{%- elif part.type == 'audio' %}
{{- '<|audio_start|><|audio_pad|><|audio_end|>' }}
{%- elif part.type == 'text' %}
{{- part.text }}
{%- endif %}
{%- endfor %}
{%- endif %}
{%- if message.role == 'tool' %}{{- '\\n</tool_response>' }}{%- endif %}
{%- for call in message.tool_calls or [] %}
{{- '<tool_call>\\n{"name": "' + call.function.name + '", "arguments": ' }}
{{- call.function.arguments if call.function.arguments is string else call.function.arguments | tojson }}
{{- '}\\n</tool_call>' }}
{%- endfor %}
{{- '<|im_end|>\\n' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}
"""
"""The published template's form: system, tools, turns with media places, the assistant's header."""

CORPUS = [
    "system\nuser\nassistant\n" * 20,
    "The weather is fine today, and the answer is ready. What do you see in the picture? I see a small "
    "house, a tree and two people who walk along the river. How are you? I am well, thank you. Please "
    "tell me the time. It is ten past nine in the morning. Could you repeat that, please? Yes, of course.",
    "One two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen.",
    "A voice assistant listens, thinks and speaks while its words are still being made. When it is "
    "interrupted it stops at once. The user may go on, ask again, or say nothing at all for a while.",
    "Monday Tuesday Wednesday Thursday Friday Saturday Sunday January February March April May June July",
    "Grüße aus Zürich. Où est la gare? ¿Dónde está la biblioteca? Привет. こんにちは。你好。🙂🎉",
    '{"name": "get_weather", "arguments": {"city": "Paris", "unit": "celsius"}}',
]
