"""Built-in functions: what a small model gets wrong and a rule gets right.

`plan` decides from the words alone whether a question asks for one of them; `TOOLS` offers the same ones to
models that call functions by themselves.
"""

from voice_app.models.functions.plan import ALL, EXACT, FunctionResult, plan
from voice_app.models.functions.tools import TOOLS, Tool

__all__ = ["ALL", "EXACT", "TOOLS", "FunctionResult", "Tool", "plan"]
