"""Names of voices that client apps ask for because another service has them; in lower case."""

OPENAI = frozenset(
    ("alloy", "ash", "ballad", "cedar", "coral", "echo", "fable", "marin", "nova", "onyx", "sage", "shimmer")
) | {"verse"}
"""OpenAI's."""
QWEN3_OMNI = frozenset(("aiden", "chelsie", "ethan"))
"""Of Qwen3-Omni's published weights; DashScope has them too."""
DASHSCOPE = frozenset(
    ("cherry", "dylan", "elias", "eric", "jada", "jennifer", "katerina", "kiki", "li", "marcus", "nofish")
) | {"peter", "rocky", "roy", "ryan", "serena", "sunny"}
"""DashScope's that no published weights have."""

STAND_INS = {"local": OPENAI | QWEN3_OMNI | DASHSCOPE, "qwen3-omni": OPENAI | DASHSCOPE}
"""By pack: names to which it answers with its own voice."""
