"""Layouts: which workers run each stage, on which device and host. Loads no model."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple, get_args

import msgspec
import numpy as np

from voice_app.config import PackConfig, PipelineConfig
from voice_app.errors import ConfigError
from voice_app.messages import Stage
from voice_app.pipeline import graph, layout_file
from voice_app.pipeline.graph import EdgeSpec
from voice_app.pipeline.network import ControlPlane, is_here
from voice_app.pipeline.transport.base import TransportKind
from voice_app.pipeline.transport.router import Place, route

_S = Stage

Layout = dict[Stage, tuple[Place, ...]]
"""Where each of the seven stages runs: in one place, or in one for each of its worker's replicas."""


def _of(*places: tuple[Place, tuple[Stage, ...]]) -> Layout:
    return {stage: (place,) for place, stages in places for stage in stages}


_ENCODERS = (_S.IMAGE_ENCODER, _S.AUDIO_ENCODER)

LAYOUTS: dict[str, Layout] = {
    # Recogniser and thinker are in different processes: beside each other in one, each call takes a fifth
    # longer, since the threads hand Python's lock to and fro.
    "cpu": _of(
        (Place("encoders"), (_S.PREPROCESSING, *_ENCODERS)),
        (Place("text"), (_S.THINKER, _S.DECODE)),
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
    return layout_file.read(path)[0]


def control(config: PipelineConfig) -> ControlPlane:
    """How control reaches the workers of `config`; what the command line says goes before the layout's file.
    Raises ConfigError."""
    plane = ControlPlane() if config.layout in LAYOUTS else layout_file.read(Path(config.layout))[1]
    return replace(plane, curve_keys=config.curve_keys or plane.curve_keys)


def check(layout: Layout, *, ray: str | None = None) -> None:
    """Refuse a layout that this build cannot run, with the Ray cluster at `ray` or without one. Raises
    ConfigError. What its transports need of a machine is for that machine's workers to find."""
    if ray is not None and all(is_here(place.host) for places in layout.values() for place in places):
        raise ConfigError(
            f"--ray {ray}: the layout has no other host; give one in a layout file: --layout FILE",
            param="ray",
        )
    for stage, places in layout.items():
        for host in {place.host for place in places}:
            if ray is None and not is_here(host):
                raise ConfigError(
                    f"stage {stage}: host {host}: Ray starts the workers on other hosts: --ray ADDRESS",
                    param="layout",
                )


class Crossing(NamedTuple):
    """One way that an edge's data may take: between which places, and by what."""

    edge: EdgeSpec
    source: Place
    target: Place
    transport: TransportKind


def crossings(edge: EdgeSpec, layout: Layout) -> list[Crossing]:
    """All ways of `edge` in `layout`: several where stages have replicas."""
    arrays = _carries_arrays(edge)
    return [
        Crossing(edge, source, target, route(source, target, arrays=arrays))
        for source, target in _pairs(layout[edge.source], layout[edge.target])
    ]


def transports(edge: EdgeSpec, layout: Layout) -> list[TransportKind]:
    """What `edge` crosses by in `layout`; several where replicas are in different places."""
    return list(dict.fromkeys(crossing.transport for crossing in crossings(edge, layout)))


@dataclass(frozen=True, slots=True)
class WorkerSpec:
    """One worker process of a layout: its stages in the graph's order, and where each runs."""

    name: str
    host: str
    stages: dict[Stage, Place]

    def pack(self, config: PackConfig) -> PackConfig:
        """`config` with this worker's devices."""
        devices = {str(stage): place.device for stage, place in self.stages.items()}
        return msgspec.structs.replace(config, devices=devices)


def workers(layout: Layout) -> list[WorkerSpec]:
    """The workers of `layout`, each replica by itself, in the order of their first stages."""
    found: dict[str, WorkerSpec] = {}
    for stage in graph.STAGES:
        for place in layout[stage]:
            found.setdefault(place.node, WorkerSpec(place.node, place.host, {})).stages[stage] = place
    return list(found.values())


def describe(config: PipelineConfig) -> dict[str, list[dict[str, object]]]:
    """Rows of the tables "stages" and "edges" for this configuration."""
    layout = load(config.layout)
    stages: list[dict[str, object]] = [
        {
            "stage": str(spec.name),
            "scheduler": str(spec.scheduler),
            "batch": spec.batch,
            "worker": layout[spec.name][0].worker,
            "replicas": len(layout[spec.name]),
            "device": _listed([place.device for place in layout[spec.name]]),
            "host": _listed([place.host for place in layout[spec.name]]),
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
            "transport": _listed([str(kind) for kind in transports(edge, layout)]),
        }
        for edge in graph.EDGES
    ]
    return {"stages": stages, "edges": edges}


def nodes(layout: Layout) -> dict[Stage, tuple[str, ...]]:
    """The names of the workers that each stage is in."""
    return {stage: tuple(place.node for place in places) for stage, places in layout.items()}


def _pairs(sources: tuple[Place, ...], targets: tuple[Place, ...]) -> Iterator[tuple[Place, Place]]:
    """Between which places a turn's data may pass: it stays within one replica of a worker."""
    for source in sources:
        for target in targets:
            if source.worker != target.worker or source.node == target.node:
                yield source, target


def _listed(values: list[str]) -> str:
    """All of them, or the one that they all are."""
    return values[0] if len(set(values)) == 1 else ", ".join(values)


def _carries_arrays(edge: EdgeSpec) -> bool:
    return any(
        np.ndarray in (kind.type, *get_args(kind.type))
        for payload in edge.payloads
        for kind in msgspec.structs.fields(payload)
    )
