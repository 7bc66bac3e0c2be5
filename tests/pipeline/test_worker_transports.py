"""The transports of a worker: which pool each edge gets, and what a machine lacks."""

import logging
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import cast

import needs
import numpy as np
import pytest
import torch
from pipeline_talk import config
from transport_ends import FakeDevice, LoopbackDevice

from voice_app.arrays import Array
from voice_app.errors import ConfigError, TransferFailed
from voice_app.messages import Embeddings, Media, Stage, TokenVector
from voice_app.pipeline import graph, layout
from voice_app.pipeline.client import PipelineClient
from voice_app.pipeline.layout import Layout
from voice_app.pipeline.transport import mooncake
from voice_app.pipeline.transport.base import Parcel, TransportKind
from voice_app.pipeline.transport.cuda_ipc import CudaIpcOut, Device, DeviceError
from voice_app.pipeline.transport.mooncake import MooncakeOut
from voice_app.pipeline.transport.router import Place
from voice_app.pipeline.transport.shm import SharedMemoryOut
from voice_app.pipeline.transports import Transports

RUN = f"test{os.getpid()}"
POOLS = {
    TransportKind.SHARED_MEMORY: SharedMemoryOut,
    TransportKind.CUDA_IPC: CudaIpcOut,
    TransportKind.MOONCAKE: MooncakeOut,
}
THINKER, TALKER = Stage.THINKER, Stage.TALKER_AR
TWO_GPU = layout.load("two-gpu")


@pytest.fixture
def gpu(tmp_path: Path) -> Callable[[int], Device]:
    return lambda index: FakeDevice(tmp_path)


def _transports(node: str, places: Layout, gpu: Callable[[int], Device]) -> Transports:
    transports = Transports(RUN, node, 0, places, "127.0.0.1", gpu)
    transports.start()
    return transports


@pytest.mark.parametrize("node", ["text", "thinker", "talker", "wave"])
def test_each_edge_of_two_gpus_gets_the_routers_transport(node: str, gpu: Callable[[int], Device]) -> None:
    transports = _transports(node, TWO_GPU, gpu)
    for edge in graph.EDGES:
        (crossing,) = layout.crossings(edge, TWO_GPU)
        if crossing.source.node == node and crossing.transport is not TransportKind.REFERENCE:
            pool = transports.pool(edge.source, edge.target, crossing.target.node)
            assert type(pool) is POOLS[crossing.transport], edge
    transports.close()


def test_a_tensor_goes_from_gpu_to_gpu_by_the_pool_of_its_edge(gpu: Callable[[int], Device]) -> None:
    thinker, talker = _transports("thinker", TWO_GPU, gpu), _transports("talker", TWO_GPU, gpu)
    vector = torch.arange(2048, dtype=torch.bfloat16)
    sent = TokenVector(7, cast(Array, vector))
    pool = thinker.pool(THINKER, TALKER, "talker")
    assert pool.wants(sent)
    assert not pool.wants(TokenVector(7, np.ones(2048, np.float32)))
    parcel = pool.pack(sent)
    assert parcel is not None
    opened = talker.incoming.open(Parcel(parcel.head, parcel.slot, TALKER))
    assert isinstance(opened, TokenVector)
    assert isinstance(opened.vector, torch.Tensor)
    assert torch.equal(opened.vector, vector)
    talker.incoming.forget("thinker")
    thinker.close()
    talker.close()


class _Counting(FakeDevice):
    """A GPU that counts what comes to it."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.loads = 0

    def load(self, address: int, size: int) -> object:
        self.loads += 1
        return super().load(address, size)


EYES = Place("eyes", "cuda:0")
BOTH = dict.fromkeys(Stage, (Place("both"),)) | {
    Stage.IMAGE_ENCODER: (EYES,),
    THINKER: (Place("both", "cuda:0"),),
    TALKER: (Place("both", "cuda:1"),),
}
"""A worker with two GPUs, to each of which another worker's GPU sends."""


def _seen(eyes: Transports, target: Stage, tensor: torch.Tensor) -> Parcel:
    """What `eyes` sends to `target`, as it is before it is opened."""
    sent = Embeddings(Media("k", "image"), cast(Array, tensor), text="")
    parcel = eyes.pool(Stage.IMAGE_ENCODER, target, "both").pack(sent)
    assert parcel is not None
    return Parcel(parcel.head, parcel.slot, target)


def _rows(transports: Transports, parcel: Parcel) -> torch.Tensor:
    opened = transports.incoming.open(parcel)
    assert isinstance(opened, Embeddings)
    assert isinstance(opened.rows, torch.Tensor)
    return opened.rows


def test_each_stage_of_a_worker_with_two_gpus_gets_its_tensors_on_its_own(tmp_path: Path) -> None:
    eyes = _transports("eyes", BOTH, lambda index: FakeDevice(tmp_path))
    gpus = {index: _Counting(tmp_path) for index in (0, 1)}
    both = _transports("both", BOTH, gpus.__getitem__)
    rows = torch.arange(40, dtype=torch.float16).reshape(4, 10)
    for target, loads in ((THINKER, (1, 0)), (TALKER, (1, 1)), (TALKER, (1, 2))):
        assert torch.equal(_rows(both, _seen(eyes, target, rows)), rows)
        assert (gpus[0].loads, gpus[1].loads) == loads
    for nobody in (None, Stage.DECODE):
        parcel = _seen(eyes, THINKER, rows)
        with pytest.raises(TransferFailed, match="from GPU to GPU"):
            both.incoming.open(Parcel(parcel.head, parcel.slot, nobody))
    both.incoming.forget("eyes")
    eyes.close()
    both.close()


@pytest.mark.gpu
def test_each_stage_of_a_worker_with_two_real_gpus_gets_its_tensors_on_its_own() -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    eyes = _transports("eyes", BOTH, LoopbackDevice)
    both = _transports("both", BOTH, LoopbackDevice)
    rows = torch.arange(40, dtype=torch.float16, device="cuda:0").reshape(4, 10)
    for target, gpu in ((THINKER, "cuda:0"), (TALKER, "cuda:1")):
        opened = _rows(both, _seen(eyes, target, rows))
        assert opened.device == torch.device(gpu)
        assert torch.equal(opened.cpu(), rows.cpu())
    both.incoming.close()
    eyes.close()
    both.close()


class _Stuck(FakeDevice):
    """A GPU that does not let go of other processes' memory."""

    def detach(self, address: int) -> None:
        raise DeviceError("cuIpcCloseMemHandle: CUDA_ERROR_INVALID_VALUE")


def test_memory_of_a_dead_sender_that_stays_mapped_costs_no_turn(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    gpus = {index: _Stuck(tmp_path) for index in (0, 1)}
    both = _transports("both", BOTH, gpus.__getitem__)
    rows = torch.ones(4, 10)
    for incarnation in range(2):
        eyes = Transports(RUN, "eyes", incarnation, BOTH, "127.0.0.1", lambda index: FakeDevice(tmp_path))
        eyes.start()
        assert torch.equal(_rows(both, _seen(eyes, TALKER, rows)), rows)
        caplog.clear()
        with caplog.at_level(logging.WARNING, "voice_app"):
            both.incoming.forget("eyes")
        assert [record.getMessage() for record in caplog.records] == [
            f"GPU memory of eyes.{incarnation}, which is gone, stays mapped: "
            "cuIpcCloseMemHandle: CUDA_ERROR_INVALID_VALUE"
        ]
        eyes.close()
    both.incoming.close()
    both.close()


class _Full(FakeDevice):
    """A GPU without room for what comes."""

    def load(self, address: int, size: int) -> object:
        raise DeviceError("the GPU is full")


def test_a_full_gpu_fails_the_transfer_alone(tmp_path: Path) -> None:
    eyes = _transports("eyes", BOTH, lambda index: FakeDevice(tmp_path))
    gpus = {0: FakeDevice(tmp_path), 1: _Full(tmp_path)}
    both = _transports("both", BOTH, gpus.__getitem__)
    rows = torch.ones(4, 10)
    with pytest.raises(TransferFailed, match="the GPU is full"):
        both.incoming.open(_seen(eyes, TALKER, rows))
    assert torch.equal(_rows(both, _seen(eyes, THINKER, rows)), rows)
    eyes.close()
    both.close()


class _Alone(FakeDevice):
    """A GPU whose memory no other GPU reaches."""

    def reaches(self, index: int) -> bool:
        return index == 0


class _Closed(FakeDevice):
    """A GPU whose memory cannot be shared, as in some virtual machines."""

    def export(self, address: int) -> bytes:
        raise DeviceError("cuIpcGetMemHandle: CUDA_ERROR_NOT_SUPPORTED")


@pytest.mark.parametrize(
    ("device", "warning"),
    [
        (_Alone, "GPUs 0 and 1 do not reach each other's memory"),
        (_Closed, "GPU 0 shares no memory (cuIpcGetMemHandle: CUDA_ERROR_NOT_SUPPORTED)"),
    ],
)
def test_where_gpus_share_no_memory_the_edge_falls_back_with_one_warning(
    device: type[FakeDevice], warning: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "voice_app"):
        transports = _transports("thinker", TWO_GPU, lambda index: device(tmp_path))
    for source in (THINKER, Stage.IMAGE_ENCODER, Stage.AUDIO_ENCODER):
        assert isinstance(transports.pool(source, TALKER, "talker"), SharedMemoryOut)
    assert [record.getMessage() for record in caplog.records] == [
        f"{warning}: what crosses from there to another process goes by shared memory"
    ]
    transports.close()
    assert not list(tmp_path.iterdir()), "memory of the GPU is left"


def test_without_a_gpu_the_layout_is_refused_at_start_in_one_line() -> None:
    script = (
        "from voice_app.pipeline import layout\n"
        "from voice_app.pipeline.transports import Transports\n"
        "from voice_app.errors import ConfigError\n"
        "transports = Transports('run', 'talker', 0, layout.load('two-gpu'), '127.0.0.1')\n"
        "try:\n    transports.start()\n"
        "except ConfigError as error:\n    print(error)\n"
    )
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment)
    assert done.stdout.startswith("device cuda:1: this machine has 0 CUDA devices; choose another layout")
    assert done.stdout.count("\n") == 1


async def test_a_worker_tells_the_server_what_its_machine_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    client = PipelineClient(config("two-gpu"))
    with pytest.raises(ConfigError, match=r"device cuda:\d: this machine has 0 CUDA devices"):
        await client.start()


def test_the_server_needs_no_torch_for_any_of_it() -> None:
    script = (
        "import sys\n"
        "from voice_app.pipeline import client, transports\n"
        "print([name for name in ('torch', 'mooncake', 'ray') if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_replicas_on_two_hosts_get_a_pool_each(gpu: Callable[[int], Device]) -> None:
    try:
        mooncake.load()
    except ConfigError as error:
        needs.missing("Mooncake", str(error))
    near, far = Place("voice", replica=0), Place("voice", host="127.0.0.2", replica=1)
    places = dict.fromkeys(Stage, (Place("text"),)) | {TALKER: (near, far), Stage.CODE2WAV: (near, far)}
    transports = _transports("text", places, gpu)
    assert isinstance(transports.pool(THINKER, TALKER, "voice.0"), SharedMemoryOut)
    assert isinstance(transports.pool(THINKER, TALKER, "voice.1"), MooncakeOut)
    transports.close()
