"""Layouts, the router, and what `voice-app graph` prints."""

import json
from pathlib import Path

import pytest
from pipeline_talk import config

from voice_app import cli
from voice_app.config import PackConfig, PipelineConfig
from voice_app.errors import ConfigError
from voice_app.messages import Stage
from voice_app.pipeline import graph, layout
from voice_app.pipeline.client import PipelineClient
from voice_app.pipeline.transport.base import TransportKind
from voice_app.pipeline.transport.router import Place, route

REFERENCE, SHM, IPC, MOONCAKE = TransportKind


@pytest.mark.parametrize(
    ("source", "target", "arrays", "peer_access", "expected"),
    [
        (Place("a"), Place("a"), True, True, REFERENCE),
        (Place("a", "cuda:0"), Place("a", "cuda:1"), True, True, REFERENCE),
        (Place("a"), Place("b"), True, True, SHM),
        (Place("a", "cuda:0"), Place("b"), True, True, SHM),
        (Place("a"), Place("b", "cuda:0"), True, True, SHM),
        (Place("a", "cuda:0"), Place("b", "cuda:0"), True, True, IPC),
        (Place("a", "cuda:0"), Place("b", "cuda:1"), True, True, IPC),
        (Place("a", "cuda:0"), Place("b", "cuda:1"), True, False, SHM),
        (Place("a", "cuda:0"), Place("b", "cuda:1"), False, True, SHM),
        (Place("a", host="x"), Place("b", host="y"), True, True, MOONCAKE),
        (Place("a", "cuda:0", "x"), Place("b", "cuda:0", "y"), True, True, MOONCAKE),
    ],
)
def test_route(
    source: Place, target: Place, arrays: bool, peer_access: bool, expected: TransportKind
) -> None:
    assert route(source, target, arrays=arrays, peer_access=peer_access) is expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("single", [REFERENCE] * 11),
        # Encoders, text and voice: whatever goes to the thinker or the talker changes process.
        ("cpu", [REFERENCE] * 2 + [SHM] * 3 + [REFERENCE, SHM, REFERENCE, SHM, SHM, SHM]),
        ("thinker-gpu", [REFERENCE] * 6 + [SHM, REFERENCE, SHM, SHM, SHM]),
        ("one-gpu", [SHM] * 3 + [REFERENCE] * 2 + [SHM] + [REFERENCE] * 2 + [SHM] + [REFERENCE] * 2),
        # Ids and all that comes from the CPU by shared memory, what lies on a GPU by CUDA IPC.
        ("two-gpu", [SHM] * 3 + [REFERENCE] * 2 + [SHM, IPC, IPC, SHM, IPC, IPC]),
    ],
)
def test_every_edge_of_the_named_layouts(name: str, expected: list[TransportKind]) -> None:
    places = layout.load(name)
    assert [layout.transports(edge, places) for edge in graph.EDGES] == [[kind] for kind in expected]


DESIGN = """
 1 preprocessing image_encoder shared memory
 2 preprocessing audio_encoder shared memory
 3 preprocessing thinker shared memory
 4 image_encoder thinker reference
 5 audio_encoder thinker reference
 6 thinker decode shared memory
 7 thinker talker_ar CUDA IPC
 8 talker_ar code2wav CUDA IPC
 9 preprocessing talker_ar shared memory
10 image_encoder talker_ar CUDA IPC
11 audio_encoder talker_ar CUDA IPC
"""
"""The eleven edges with thinker, encoders and code2wav on the first GPU, the talker on the second, and the
rest on the CPU: in one process by reference; from GPU to GPU by CUDA IPC what lies on one (a token's id does
not, nor does anything that the CPU sends); the rest by shared memory."""
SCHEDULERS = """
preprocessing SimpleScheduler text cpu
image_encoder SimpleScheduler thinker cuda:0
audio_encoder SimpleScheduler thinker cuda:0
thinker OmniScheduler thinker cuda:0
decode StreamingDetokenizeScheduler text cpu
talker_ar QwenTalkerScheduler talker cuda:1
code2wav Code2WavScheduler wave cuda:0
"""


def test_the_command_tells_of_two_gpus_edge_by_edge(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["graph", "--pack", "qwen3-omni", "--layout", "two-gpu", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    edges = [f"{row['edge']:2} {row['source']} {row['target']} {row['transport']}" for row in told["edges"]]
    assert edges == DESIGN.strip("\n").splitlines()
    stages = [f"{row['stage']} {row['scheduler']} {row['worker']} {row['device']}" for row in told["stages"]]
    assert stages == SCHEDULERS.strip().splitlines()
    assert {row["edge"]: row["size"] for row in told["edges"] if row["edge"] in (1, 4, 5, 6, 7, 8)} == {
        1: "896 x 896 x 3 = 2,408,448 values",
        4: "784 x 4 KB = 3,136 KB",
        5: "130 x 4 KB = 520 KB",
        6: "one number",
        7: "2,048 x 2 B = 4 KB",
        8: "10 frames x 16 = 160 numbers",
    }


def test_describe_has_all_stages_and_edges_and_is_json() -> None:
    tables = layout.describe(PipelineConfig(layout="two-gpu"))
    assert json.loads(json.dumps(tables)) == tables
    assert [row["stage"] for row in tables["stages"]] == [str(s) for s in Stage]
    assert [row["edge"] for row in tables["edges"]] == list(range(1, 12))
    assert tables["edges"][6] == {
        "edge": 7,
        "source": "thinker",
        "target": "talker_ar",
        "what": "the token's vector",
        "size": "2,048 x 2 B = 4 KB",
        "often": "every token",
        "transport": "CUDA IPC",
    }


def _write(path: Path, changes: str = "", **workers: str) -> Path:
    tables = {str(s): f'worker = "{workers.get(s, "w")}"\n' for s in Stage}
    path.write_text("".join(f"[stages.{s}]\n{t}" for s, t in tables.items()) + changes)
    return path


def test_a_file_places_stages(tmp_path: Path) -> None:
    path = _write(tmp_path / "l.toml", 'device = "cuda:1"\nhost = "localhost"\n', thinker="big")
    places = layout.load(str(path))
    assert places[Stage.CODE2WAV] == (Place("w", "cuda:1"),)
    workers = layout.workers(places)
    assert [w.name for w in workers] == ["w", "big"]
    assert list(workers[1].stages) == [Stage.THINKER]
    devices = workers[0].pack(PackConfig(threads=3))
    assert devices.threads == 3
    assert devices.devices["code2wav"] == "cuda:1"
    assert devices.devices["decode"] == "cpu"


VOICES = """
[stages.talker_ar]
worker = "voice"
device = ["cuda:1", "cuda:0"]
host = ["localhost", "10.0.0.2"]
replicas = 2
[stages.code2wav]
worker = "voice"
host = ["localhost", "10.0.0.2"]
"""


def _with_voices(path: Path, voices: str = VOICES) -> Path:
    others = "".join(f'[stages.{s}]\nworker = "text"\n' for s in tuple(Stage)[:5])
    path.write_text(others + voices)
    return path


def test_replicas_are_workers_of_their_own_with_a_device_and_a_host_each(tmp_path: Path) -> None:
    places = layout.load(str(_with_voices(tmp_path / "l.toml")))
    assert places[Stage.TALKER_AR] == (
        Place("voice", "cuda:1", replica=0),
        Place("voice", "cuda:0", "10.0.0.2", 1),
    )
    assert places[Stage.CODE2WAV] == (Place("voice", replica=0), Place("voice", "cpu", "10.0.0.2", 1))
    workers = layout.workers(places)
    assert [(w.name, w.host) for w in workers] == [
        ("text", "localhost"),
        ("voice.0", "localhost"),
        ("voice.1", "10.0.0.2"),
    ]
    assert workers[2].pack(PackConfig()).devices == {"talker_ar": "cuda:0", "code2wav": "cpu"}
    assert layout.nodes(places)[Stage.CODE2WAV] == ("voice.0", "voice.1")


def test_what_crosses_to_replicas_in_several_places(tmp_path: Path) -> None:
    places = layout.load(str(_with_voices(tmp_path / "l.toml")))
    kinds = [layout.transports(edge, places) for edge in graph.EDGES]
    # Within a replica by reference: a turn's codes never go to the other one.
    assert kinds[6:] == [[SHM, MOONCAKE], [REFERENCE], *[[SHM, MOONCAKE]] * 3]
    tables = layout.describe(PipelineConfig(layout=str(tmp_path / "l.toml")))
    row = tables["stages"][5]
    assert {key: row[key] for key in ("worker", "replicas", "device", "host")} == {
        "worker": "voice",
        "replicas": 2,
        "device": "cuda:1, cuda:0",
        "host": "localhost, 10.0.0.2",
    }
    assert tables["edges"][6]["transport"] == "shared memory, Mooncake"


def test_the_example_of_the_documentation_is_two_machines_with_four_gpus() -> None:
    example = Path(__file__).parents[2] / "docs" / "examples" / "two-machines.toml"
    tables = layout.describe(PipelineConfig(layout=str(example)))
    voice = next(row for row in tables["stages"] if row["stage"] == "talker_ar")
    assert (voice["replicas"], voice["host"], voice["device"]) == (2, "10.0.0.2", "cuda:0, cuda:1")
    crossing = [row["edge"] for row in tables["edges"] if row["transport"] == "Mooncake"]
    assert crossing == [7, 9, 10, 11]
    plane = layout.control(PipelineConfig(layout=str(example)))
    plane.check({"localhost", "10.0.0.2"})


def test_ray_without_another_host_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"--ray 10\.0\.0\.1:6379: the layout has no other host"):
        layout.check(layout.load("cpu"), ray="10.0.0.1:6379")


def test_keys_of_the_command_line_go_before_those_of_the_layout() -> None:
    example = Path(__file__).parents[2] / "docs" / "examples" / "two-machines.toml"
    assert layout.control(PipelineConfig(layout=str(example))).curve_keys == "/etc/voice-app/curve"
    given = layout.control(PipelineConfig(layout=str(example), curve_keys="/mine"))
    assert given.curve_keys == "/mine"


def test_stages_of_one_worker_agree_on_its_replicas(tmp_path: Path) -> None:
    path = _with_voices(tmp_path / "l.toml", VOICES + "replicas = 3\n")
    with pytest.raises(ConfigError, match=r"\[stages.code2wav\]: worker voice has 2 replicas already"):
        layout.load(str(path))


def _refusal(path: Path, content: str) -> str:
    path.write_text(content)
    with pytest.raises(ConfigError) as caught:
        layout.load(str(path))
    assert caught.value.param == "layout"
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    return message.removeprefix(f"{path}: ")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("not toml [", "not a layout: "),
        ("", "needs tables [stages.NAME], may have [control], and nothing else"),
        ("[other]\na = 1\n", "needs tables [stages.NAME], may have [control], and nothing else"),
        ("[stages.thinker]\n", "no table [stages.preprocessing]"),
    ],
)
def test_a_file_that_is_no_layout(tmp_path: Path, content: str, message: str) -> None:
    assert _refusal(tmp_path / "l.toml", content).startswith(message)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("worker = 3", "worker must be a text"),
        ('device = "cpu"', "worker '' must be 1 to 20 of a-z, 0-9, _ and -, and not 'server'"),
        ('worker = "server"', "worker 'server' must be 1 to 20 of"),
        ('worker = "../x"', "worker '../x' must be 1 to 20 of"),
        ('worker = "w"\ndevice = "gpu"', 'device \'gpu\' must be "cpu" or "cuda:N"'),
        ('worker = "w"\nnode = "x"', "unknown field node; there are worker, device, host, replicas"),
        ('worker = "w"\nhost = "x"', "host 'x' must be \"localhost\" or an IPv4 address"),
        ('worker = "w"\nhost = "0.0.0.0"', "host '0.0.0.0' must be"),
        ('worker = "w"\nhost = "10.0.0.2"', "worker w is on localhost already"),
        ('worker = "w"\nhost = [3]', "host must be a text, or a list of texts"),
        ('worker = "w"\nreplicas = 0', "replicas must be a number from 1 to 16"),
        ('worker = "w"\nreplicas = true', "replicas must be a number from 1 to 16"),
        ('worker = "w"\ndevice = ["cpu", "cpu"]', "device names 2, but replicas is 1: name one, or one for"),
        ('worker = "t"\nreplicas = 2', "worker t has 2 replicas, which only image_encoder, audio_encoder, "),
    ],
)
def test_a_wrong_table_names_stage_field_and_fix(tmp_path: Path, table: str, message: str) -> None:
    good = _write(tmp_path / "good.toml").read_text()
    # Last, so that the worker's other stages are placed by then.
    others = good.replace('[stages.thinker]\nworker = "w"\n', "")
    assert others != good
    refusal = _refusal(tmp_path / "l.toml", f"{others}[stages.thinker]\n{table}\n")
    assert refusal.startswith(f"[stages.thinker]: {message}")


def test_an_unknown_stage_is_named_with_those_there_are(tmp_path: Path) -> None:
    content = _write(tmp_path / "good.toml").read_text() + '[stages.vocoder]\nworker = "w"\n'
    refusal = _refusal(tmp_path / "l.toml", content)
    assert refusal.startswith("[stages.vocoder]: no such stage; there are preprocessing, image_encoder, ")


def test_an_unknown_layout_says_what_there_is() -> None:
    with pytest.raises(
        ConfigError,
        match="--layout nope: neither one of cpu, single, thinker-gpu, one-gpu, two-gpu nor a file",
    ):
        layout.load("nope")


def test_what_this_build_cannot_do_is_refused_before_anything_starts(tmp_path: Path) -> None:
    path = _write(tmp_path / "l.toml", 'host = "10.0.0.2"\n', code2wav="remote")
    with pytest.raises(ConfigError, match=r"stage code2wav: host 10\.0\.0\.2: Ray starts .*--ray ADDRESS"):
        PipelineClient(config(str(path)))
