"""A checkpoint on disk: its folder, its JSON files, its tensors by name. Knows no model code.

The published layout: config.json, generation_config.json, preprocessor_config.json, a chat template, a
tokenizer, and safetensors shards with `model.safetensors.index.json`. Every problem is one
`ModelFileError` that names the file, the field or tensor, and the fix.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import torch
from huggingface_hub import hf_hub_download, snapshot_download
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError
from safetensors import SafetensorError, safe_open

from voice_app.errors import ConfigError, ModelFileError

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"
ARCHITECTURE = "Qwen3OmniMoeForConditionalGeneration"
MODEL_TYPE = "qwen3_omni_moe"


class Checkpoint:
    """A local folder, or a hub id whose small files are fetched at once and shards when read."""

    def __init__(self, model: str | None) -> None:
        if not model:
            raise ConfigError(
                "--model is missing: the qwen3-omni pack needs a checkpoint folder or hub id", param="model"
            )
        self.name = model
        self._hub_id: str | None = None
        self.folder = Path(model)
        if not self.folder.is_dir():
            self.folder = self._fetch_small_files(model)
        self.config = self._read("config.json")
        found = self.config.get("model_type")
        if found != MODEL_TYPE:
            raise ModelFileError(
                f"{self.folder / 'config.json'}: model_type is {found!r}, not {MODEL_TYPE!r}; "
                "give a Qwen3-Omni checkpoint",
                param="model",
            )
        self.generation = self._read("generation_config.json", optional=True)
        self._files = self._index()

    def field(self, path: str) -> object:
        """The value at `path` of config.json, its steps joined by dots."""
        value: object = self.config
        for step in path.split("."):
            if not isinstance(value, dict) or step not in value:
                raise ModelFileError(
                    f"{self.folder / 'config.json'}: field {path} is missing; "
                    "take config.json from the published checkpoint",
                    param="model",
                )
            value = value[step]
        return value

    def integer(self, path: str) -> int:
        """As `field`, for a whole number."""
        value = self.field(path)
        if not isinstance(value, int) or isinstance(value, bool):
            raise ModelFileError(
                f"{self.folder / 'config.json'}: field {path} is {value!r}, not a whole number", param="model"
            )
        return value

    def chat_template(self) -> str | None:
        """The template that stands beside the tokenizer, if one does (it wins over the tokenizer's own)."""
        plain = self.folder / "chat_template.jinja"
        if plain.is_file():
            return plain.read_text(encoding="utf-8")
        template = self._read("chat_template.json", optional=True).get("chat_template")
        return template if isinstance(template, str) else None

    def has(self, tensor: str) -> bool:
        """Whether the checkpoint lists `tensor`."""
        return tensor in self._files

    @contextmanager
    def reader(self, device: torch.device) -> Iterator["TensorReader"]:
        """Reads tensors straight to `device`; its files are closed at the end."""
        with ExitStack() as stack:
            yield TensorReader(self, device, stack)

    def shard(self, tensor: str) -> Path:
        """The file that holds `tensor`, fetched first where the checkpoint is on the hub."""
        if tensor not in self._files:
            raise ModelFileError(
                f"{self.folder}: tensor {tensor} is missing; the checkpoint is incomplete "
                "or not a Qwen3-Omni model: download it again",
                param="model",
            )
        name = self._files[tensor]
        path = self.folder / name
        if not path.is_file() and self._hub_id is not None:
            path = Path(_hub(self._hub_id, lambda hub_id: hf_hub_download(hub_id, name)))
        if not path.is_file():
            raise ModelFileError(
                f"{path}: missing, though {INDEX} names it for {tensor}; download this shard again",
                param="model",
            )
        return path

    def _fetch_small_files(self, model: str) -> Path:
        if model.count("/") != 1 or model.startswith((".", "/", "~")):
            raise ModelFileError(
                f"{model}: no such folder; give a folder with config.json or a hub id like owner/name",
                param="model",
            )
        self._hub_id = model
        patterns = ["*.json", "*.jinja", "*.txt"]
        return Path(_hub(model, lambda hub_id: snapshot_download(hub_id, allow_patterns=patterns)))

    def _read(self, name: str, optional: bool = False) -> dict[str, object]:
        path = self.folder / name
        if not path.is_file():
            if optional:
                return {}
            raise ModelFileError(f"{path}: missing; give a Qwen3-Omni checkpoint's folder", param="model")
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            raise ModelFileError(f"{path}: not JSON ({error}); download it again", param="model") from error
        if not isinstance(content, dict):
            raise ModelFileError(f"{path}: not a JSON object; download it again", param="model")
        return content

    def _index(self) -> dict[str, str]:
        index = self._read(INDEX, optional=True).get("weight_map")
        if isinstance(index, dict):
            return index
        single = self.folder / SINGLE
        if not single.is_file():
            raise ModelFileError(
                f"{self.folder}: neither {INDEX} nor {SINGLE} is there; download the weights", param="model"
            )
        with _opened(single, torch.device("cpu")) as file:
            return dict.fromkeys(file.keys(), SINGLE)


class TensorReader:
    """Keeps each shard that it needed open until it is closed."""

    def __init__(self, checkpoint: Checkpoint, device: torch.device, stack: ExitStack) -> None:
        self.checkpoint = checkpoint
        self._device = device
        self._stack = stack
        self._open: dict[Path, safe_open] = {}

    def read(self, tensor: str, shape: Iterable[int], dtype: torch.dtype) -> torch.Tensor:
        """`tensor` on the device, of `dtype`; `shape` is what the config promises."""
        path = self.checkpoint.shard(tensor)
        if path not in self._open:
            self._open[path] = self._stack.enter_context(_opened(path, self._device))
        try:
            value: torch.Tensor = self._open[path].get_tensor(tensor)
        except SafetensorError as error:
            raise ModelFileError(
                f"{path}: tensor {tensor} cannot be read ({error}); download this shard again", param="model"
            ) from error
        if tuple(value.shape) != tuple(shape):
            raise ModelFileError(
                f"{path}: tensor {tensor} is {tuple(value.shape)}, config.json says {tuple(shape)}; "
                "they are of different models; take both from one checkpoint",
                param="model",
            )
        return value.to(dtype)


def _opened(path: Path, device: torch.device) -> safe_open:
    try:
        return safe_open(path, framework="pt", device=str(device))
    except (SafetensorError, OSError) as error:
        raise ModelFileError(
            f"{path}: not a safetensors file ({error}); download it again", param="model"
        ) from error


def _hub(hub_id: str, fetch: Callable[[str], str]) -> str:
    try:
        return fetch(hub_id)
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        reason = str(error).splitlines()[0]
        raise ModelFileError(
            f"{hub_id}: no such folder, and the hub does not give it ({reason}); "
            "give a folder or check the name and the network",
            param="model",
        ) from error
