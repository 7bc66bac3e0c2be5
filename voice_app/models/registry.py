"""From a pack's name to its factory. Imports a pack only when it is asked for: they are heavy."""

import importlib

from voice_app.config import PackConfig
from voice_app.errors import ConfigError
from voice_app.models.base import Offer, Pack, PackFactory, Report


def create(config: PackConfig, report: Report) -> Pack:
    """The pack that `config.pack` names. Raises ConfigError."""
    return _factory(config.pack)(config, report)


def bring(config: PackConfig, report: Report) -> None:
    """Fetch the files that the pack brings by itself and that are missing: at leisure, with progress, and
    ended by whatever ends the caller. Cheap when there is nothing to do; a pack may fetch later still.

    Raises ModelFileError."""
    if config.pack == "local":
        from voice_app.models.local.needs import bring

        bring(config, report)


def offer(config: PackConfig) -> Offer:
    """What the pack offers, without opening its models; of a pack of the user's own nothing is known. Raises
    ModelFileError."""
    if config.pack == "local":
        from voice_app.models.local.offer import offer

        return offer(config)
    if config.pack == "qwen3-omni":
        from voice_app.models.qwen3_omni.offer import offer

        return offer(config)
    return Offer()


def _factory(name: str) -> PackFactory:
    if name == "local":
        from voice_app.models.local.pack import create

        return create
    if name == "qwen3-omni":
        from voice_app.models.qwen3_omni.pack import create

        return create
    module_name, _, factory_name = name.partition(":")
    try:
        return vars(importlib.import_module(module_name))[factory_name]
    except (ImportError, KeyError) as error:
        raise ConfigError(
            f"--pack {name}: {error}; name an importable MODULE:FACTORY", param="pack"
        ) from error
