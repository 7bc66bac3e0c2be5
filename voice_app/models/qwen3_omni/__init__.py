"""Qwen3-Omni as published, served stage by stage."""

import logging

# transformers warns of rope's `mrope_section`, a key that it does read, at every load of a config.
logging.getLogger("transformers.modeling_rope_utils").setLevel(logging.ERROR)
