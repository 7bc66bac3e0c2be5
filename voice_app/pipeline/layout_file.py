"""Layout files: TOML with one table a stage, and one for control where there are other hosts:

[stages.talker_ar]
worker = "voice"                        # stages of one worker are in one process
replicas = 2                            # so many processes alike
device = ["cuda:1", "cuda:0"]           # one for each replica, or one text for all; "cpu" if left out
host = ["localhost", "10.0.0.2"]        # the same; "localhost" if left out

[control]                               # each may be left out; `network.ControlPlane` says what they mean
address = "10.0.0.1"
port = 47600
curve_keys = "/etc/voice-app/curve"
private_network = false
"""

import ipaddress
import re
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from voice_app.config import DEVICE
from voice_app.errors import ConfigError
from voice_app.messages import Stage
from voice_app.pipeline.control import SERVER
from voice_app.pipeline.network import ControlPlane
from voice_app.pipeline.transport.router import LOCALHOST, Place

REPLICABLE = (Stage.IMAGE_ENCODER, Stage.AUDIO_ENCODER, Stage.TALKER_AR, Stage.CODE2WAV)
"""Stages that keep nothing beyond a turn. The thinker has the prefix cache of every talk."""
MAX_REPLICAS = 16

_WORKER = re.compile(r"[a-z0-9][a-z0-9_-]{0,19}")
_FIELDS = ("worker", "device", "host", "replicas")
_CONTROL_FIELDS: dict[str, tuple[type, str]] = {
    "address": (str, "a text"),
    "port": (int, "a number"),
    "curve_keys": (str, "a text"),
    "private_network": (bool, "true or false"),
}


def read(path: Path) -> tuple[dict[Stage, tuple[Place, ...]], ControlPlane]:
    """The places of each stage (one for each replica, in their order), and how control reaches them. Raises
    ConfigError that names file, field and fix."""
    try:
        content = tomllib.loads(path.read_text())
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{path}: not a layout: {error}", param="layout") from error
    tables, control = content.pop("stages", None), content.pop("control", {})
    if content or not isinstance(tables, dict):
        raise ConfigError(
            f"{path}: needs tables [stages.NAME], may have [control], and nothing else", param="layout"
        )
    missing = [str(stage) for stage in Stage if str(stage) not in tables]
    if missing:
        raise ConfigError(f"{path}: no table [stages.{missing[0]}]", param="layout")
    entries = [_entry(f"{path}: [stages.{name}]", name, table) for name, table in tables.items()]
    counts = _replicas(entries)
    layout = {entry.stage: entry.places(counts[entry.worker]) for entry in entries}
    _check_hosts(path, layout)
    return layout, _control(path, control)


@dataclass(frozen=True, slots=True)
class _Entry:
    """One table, its fields checked each by itself."""

    where: str
    stage: Stage
    worker: str
    replicas: int | None
    devices: tuple[str, ...]
    hosts: tuple[str, ...]

    def places(self, count: int) -> tuple[Place, ...]:
        """One for each of `count` replicas."""
        replicas = range(count) if count > 1 else (None,)
        devices, hosts = (
            self._for_each("device", self.devices, count),
            self._for_each("host", self.hosts, count),
        )
        return tuple(
            Place(self.worker, device, host, replica)
            for device, host, replica in zip(devices, hosts, replicas, strict=True)
        )

    def _for_each(self, field: str, values: tuple[str, ...], count: int) -> tuple[str, ...]:
        if len(values) not in (1, count):
            raise ConfigError(
                f"{self.where}: {field} names {len(values)}, but replicas is {count}: name one, or one for "
                "each",
                param="layout",
            )
        return values if len(values) == count else values * count


def _entry(where: str, name: str, table: object) -> _Entry:
    if name not in list(Stage):
        raise ConfigError(f"{where}: no such stage; there are {', '.join(Stage)}", param="layout")
    if not isinstance(table, dict):
        raise ConfigError(f"{where}: must be a table with {', '.join(_FIELDS)}", param="layout")
    for key in table:
        if key not in _FIELDS:
            raise ConfigError(f"{where}: unknown field {key}; there are {', '.join(_FIELDS)}", param="layout")
    return _Entry(
        where,
        Stage(name),
        _worker(where, table.get("worker", "")),
        _count(where, table.get("replicas")),
        tuple(_texts(where, "device", table.get("device", "cpu"), DEVICE.fullmatch, '"cpu" or "cuda:N"')),
        tuple(
            _texts(where, "host", table.get("host", LOCALHOST), _is_host, f'"{LOCALHOST}" or an IPv4 address')
        ),
    )


def _worker(where: str, value: object) -> str:
    if not isinstance(value, str):
        raise ConfigError(f"{where}: worker must be a text", param="layout")
    if not _WORKER.fullmatch(value) or value == SERVER:
        raise ConfigError(
            f"{where}: worker {value!r} must be 1 to 20 of a-z, 0-9, _ and -, and not {SERVER!r}",
            param="layout",
        )
    return value


def _count(where: str, value: object) -> int | None:
    if value is None or (type(value) is int and 1 <= value <= MAX_REPLICAS):
        return value
    raise ConfigError(f"{where}: replicas must be a number from 1 to {MAX_REPLICAS}", param="layout")


def _texts(where: str, field: str, value: object, fits: Callable[[str], object], what: str) -> Iterator[str]:
    for text in value if isinstance(value, list) else [value]:
        if not isinstance(text, str):
            raise ConfigError(f"{where}: {field} must be a text, or a list of texts", param="layout")
        if not fits(text):
            raise ConfigError(f"{where}: {field} {text!r} must be {what}", param="layout")
        yield text


def _is_host(text: str) -> bool:
    if text == LOCALHOST:
        return True
    try:
        return not ipaddress.IPv4Address(text).is_unspecified
    except ValueError:
        return False


def _control(path: Path, table: object) -> ControlPlane:
    where = f"{path}: [control]"
    if not isinstance(table, dict):
        raise ConfigError(f"{where}: must be a table with {', '.join(_CONTROL_FIELDS)}", param="layout")
    for key, value in table.items():
        if key not in _CONTROL_FIELDS:
            known = ", ".join(_CONTROL_FIELDS)
            raise ConfigError(f"{where}: unknown field {key}; there are {known}", param="layout")
        kind, what = _CONTROL_FIELDS[key]
        if type(value) is not kind:
            raise ConfigError(f"{where}: {key} must be {what}", param="layout")
    plane = ControlPlane(**table)
    if not _is_host(plane.address) or plane.address == LOCALHOST:
        raise ConfigError(f"{where}: address {plane.address!r} must be an IPv4 address", param="layout")
    if not 1024 <= plane.port <= 65535:
        raise ConfigError(f"{where}: port {plane.port} must be between 1024 and 65535", param="layout")
    return plane


def _replicas(entries: list[_Entry]) -> dict[str, int]:
    """How many replicas each worker has: one of its stages says it for all."""
    counts: dict[str, int] = {}
    for entry in entries:
        if entry.replicas is None:
            continue
        if counts.setdefault(entry.worker, entry.replicas) != entry.replicas:
            raise ConfigError(
                f"{entry.where}: worker {entry.worker} has {counts[entry.worker]} replicas already; "
                "say it once, or give each stage a worker of its own",
                param="layout",
            )
    for entry in entries:
        count = counts.setdefault(entry.worker, 1)
        if count > 1 and entry.stage not in REPLICABLE:
            raise ConfigError(
                f"{entry.where}: worker {entry.worker} has {count} replicas, which only "
                f"{', '.join(REPLICABLE)} can have; give {entry.stage} a worker of its own",
                param="layout",
            )
    return counts


def _check_hosts(path: Path, layout: dict[Stage, tuple[Place, ...]]) -> None:
    hosts: dict[str, str] = {}
    for stage, places in layout.items():
        for place in places:
            if hosts.setdefault(place.node, place.host) != place.host:
                raise ConfigError(
                    f"{path}: [stages.{stage}]: worker {place.node} is on {hosts[place.node]} already; "
                    "give each host a worker of its own",
                    param="layout",
                )
