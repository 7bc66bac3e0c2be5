"""From one box to many, and byte limits."""

import pytest

from load.simulation.fleet import Talk, need
from load.simulation.qwen3_omni import BANDWIDTH, THINKER


def test_what_a_thousand_talks_need():
    found = need(
        1000, box_talks=50, box_gpus=2, core_talks=100, talk=Talk(turn_s=10.0, hearing=0.5), spare=0.0
    )
    assert (found.boxes, found.gpus, found.server_cores) == (20, 40, 10)
    assert found.commands_s == 600
    # 48,000 bytes a second are 64,000 as base64, and 3,000 of JSON around them; half as much comes back.
    assert found.gbit_s == pytest.approx(1000 * 67_000 * 1.5 * 8 / 1e9)


def test_what_is_kept_free_costs_boxes():
    talk = Talk(turn_s=10.0, hearing=0.5)
    assert need(1000, 50, 2, 100, talk, spare=0.5).boxes == 40


@pytest.mark.parametrize(("rows", "ms"), [(1, 1.26), (100_000, 12.6)])
def test_the_thinkers_bytes(rows: int, ms: float):
    """30.5 billion parameters in two bytes are 61 GB, of which a token reads a tenth."""
    assert THINKER.bytes(rows) / BANDWIDTH * 1000 == pytest.approx(ms, rel=0.01)
