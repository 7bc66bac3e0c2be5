"""Layouts: which worker runs each stage, on which device and host. Loads no model.

A layout file is TOML with one table a stage; `device` and `host` may be left out:

    [stages.thinker]
    worker = "text"
    device = "cuda:0"
    host = "localhost"
"""

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

import msgspec
import numpy as np

from voice_app.config import DEVICE, PackConfig, PipelineConfig
from voice_app.errors import ConfigError
from voice_app.messages import Stage
from voice_app.pipeline import graph
from voice_app.pipeline.control import SERVER
from voice_app.pipeline.graph import EdgeSpec
from voice_app.pipeline.transport.base import TransportKind
from voice_app.pipeline.transport.router import AVAILABLE, Place, route

_S = Stage
_WORKER = re.compile(r"[a-z0-9][a-z0-9_-]{0,19}")
_FIELDS = ("worker", "device", "host")

Layout = dict[Stage, Place]
"""Where each of the seven stages runs."""


def _of(*places: tuple[Place, tuple[Stage, ...]]) -> Layout:
    return {stage: place for place, stages in places for stage in stages}


_ENCODERS = (_S.IMAGE_ENCODER, _S.AUDIO_ENCODER)

LAYOUTS: dict[str, Layout] = {
    "cpu": _of(
        (Place("text"), (_S.PREPROCESSING, *_ENCODERS, _S.THINKER, _S.DECODE)),
        (Place("voice"), (_S.TALKER_AR, _S.CODE2WAV)),
    ),
    "single": _of((Place("all"), tuple(Stage))),
    "thinker-gpu": _of(
        (Place("text"), (_S.PREPROCESSING, *_ENCODERS, _S.DECODE)),
        (Place("text", "cuda:0"), (_S.THINKER,)),
        (Place("voice"), (_S.TALKER_AR, _S.CODE2WAV)),
    ),
    "one-gpu": _of(
        (Place("text"), (_S.PREPROCESSING, _S.DECODE)),
        (Place("gpu0", "cuda:0"), (*_ENCODERS, _S.THINKER, _S.TALKER_AR, _S.CODE2WAV)),
    ),
    "two-gpu": _of(
        (Place("text"), (_S.PREPROCESSING, _S.DECODE)),
        (Place("thinker", "cuda:0"), (*_ENCODERS, _S.THINKER)),
        (Place("talker", "cuda:1"), (_S.TALKER_AR,)),
        (Place("wave", "cuda:0"), (_S.CODE2WAV,)),
    ),
}


def load(name: str) -> Layout:
    """A layout by its name or its file. Raises ConfigError that names file, field and fix."""
    if name in LAYOUTS:
        return LAYOUTS[name]
    path = Path(name)
    if not path.is_file():
        known = ", ".join(LAYOUTS)
        raise ConfigError(f"--layout {name}: neither one of {known} nor a file", param="layout")
    return _read(path)


def check(layout: Layout) -> None:
    """Refuse a layout that this build cannot run. Raises ConfigError."""
    for stage, place in layout.items():
        if place.host != "localhost":
            raise ConfigError(
                f"stage {stage}: host {place.host}: workers are started on localhost only", param="layout"
            )
    for edge in graph.EDGES:
        kind = transport(edge, layout)
        if kind not in AVAILABLE:
            raise ConfigError(
                f"edge {edge.number}, {edge.source} → {edge.target}, needs {kind}, which is not there: "
                "put the two stages into one worker, or on the CPU of one host (--layout one-gpu, cpu)",
                param="layout",
            )


def transport(edge: EdgeSpec, layout: Layout) -> TransportKind:
    """What `edge` crosses by in `layout`."""
    return route(layout[edge.source], layout[edge.target], arrays=_carries_arrays(edge))


@dataclass(frozen=True, slots=True)
class WorkerSpec:
    """One worker of a layout: its stages in the graph's order, and where each runs."""

    name: str
    host: str
    stages: dict[Stage, Place]

    def pack(self, config: PackConfig) -> PackConfig:
        """`config` with this worker's devices."""
        devices = {str(stage): place.device for stage, place in self.stages.items()}
        return msgspec.structs.replace(config, devices=devices)


def workers(layout: Layout) -> list[WorkerSpec]:
    """The workers of `layout`, in the order of their first stages."""
    found: dict[str, WorkerSpec] = {}
    for stage in graph.STAGES:
        place = layout[stage]
        found.setdefault(place.worker, WorkerSpec(place.worker, place.host, {})).stages[stage] = place
    return list(found.values())


def describe(config: PipelineConfig) -> dict[str, list[dict[str, object]]]:
    """Rows of the tables "stages" and "edges" for this configuration."""
    layout = load(config.layout)
    stages: list[dict[str, object]] = [
        {
            "stage": str(spec.name),
            "scheduler": str(spec.scheduler),
            "batch": spec.batch,
            "worker": layout[spec.name].worker,
            "device": layout[spec.name].device,
            "host": layout[spec.name].host,
            "takes": spec.takes,
            "gives": spec.gives,
        }
        for spec in graph.STAGES.values()
    ]
    edges: list[dict[str, object]] = [
        {
            "edge": edge.number,
            "source": str(edge.source),
            "target": str(edge.target),
            "what": edge.what,
            "size": edge.size,
            "often": edge.often,
            "transport": str(transport(edge, layout)),
        }
        for edge in graph.EDGES
    ]
    return {"stages": stages, "edges": edges}


def _carries_arrays(edge: EdgeSpec) -> bool:
    return any(
        np.ndarray in (kind.type, *get_args(kind.type))
        for payload in edge.payloads
        for kind in msgspec.structs.fields(payload)
    )


def _read(path: Path) -> Layout:
    try:
        content = tomllib.loads(path.read_text())
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{path}: not a layout: {error}", param="layout") from error
    tables = content.pop("stages", None)
    if content or not isinstance(tables, dict):
        raise ConfigError(f"{path}: needs tables [stages.NAME] and nothing else", param="layout")
    missing = [str(stage) for stage in Stage if str(stage) not in tables]
    if missing:
        raise ConfigError(f"{path}: no table [stages.{missing[0]}]", param="layout")
    layout = {}
    for name, table in tables.items():
        where = f"{path}: [stages.{name}]"
        if name not in list(Stage):
            raise ConfigError(f"{where}: no such stage; there are {', '.join(Stage)}", param="layout")
        layout[Stage(name)] = _place(where, table)
    _check_hosts(path, layout)
    return layout


def _place(where: str, table: object) -> Place:
    if not isinstance(table, dict):
        raise ConfigError(f"{where}: must be a table with {', '.join(_FIELDS)}", param="layout")
    for key, value in table.items():
        if key not in _FIELDS:
            raise ConfigError(f"{where}: unknown field {key}; there are {', '.join(_FIELDS)}", param="layout")
        if not isinstance(value, str):
            raise ConfigError(f"{where}: {key} must be a text", param="layout")
    place = Place(**{"worker": ""} | table)
    if not _WORKER.fullmatch(place.worker) or place.worker == SERVER:
        raise ConfigError(
            f"{where}: worker {place.worker!r} must be 1 to 20 of a-z, 0-9, _ and -, and not {SERVER!r}",
            param="layout",
        )
    if not DEVICE.fullmatch(place.device):
        raise ConfigError(f'{where}: device {place.device!r} must be "cpu" or "cuda:N"', param="layout")
    return place


def _check_hosts(path: Path, layout: Layout) -> None:
    hosts: dict[str, str] = {}
    for stage, place in layout.items():
        if hosts.setdefault(place.worker, place.host) != place.host:
            raise ConfigError(
                f"{path}: [stages.{stage}]: worker {place.worker} is on {hosts[place.worker]} already; "
                "give each host a worker of its own",
                param="layout",
            )
