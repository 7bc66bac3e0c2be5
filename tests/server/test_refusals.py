"""What is told to those who ask for what is not there or may not have it."""

from pathlib import Path

import httpx
import pytest
from fake_pipeline import FakePipeline, spoken, written
from running_server import server
from virtual_talk import VirtualTalk

from voice_app import messages as m
from voice_app.errors import ConfigError, InputError
from voice_app.server import auth
from voice_app.server.hub import make_hub
from voice_app.server.settings import ServerSettings


def answer(request: m.TurnRequest):
    return written("Yes.")


async def test_one_model_and_no_other():
    async with (
        server(FakePipeline(answer)) as port,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}/v1") as http,
    ):
        [card] = (await http.get("/models")).json()["data"]
        assert (await http.get(f"/models/{card['id']}")).json() == card
        other = await http.get("/models/gpt-realtime")
        assert other.status_code == 404
        assert other.json()["error"]["code"] == "model_not_found"


@pytest.mark.parametrize(
    ("headers", "code"),
    [({}, "missing_api_key"), ({"Authorization": "Bearer wrong"}, "invalid_api_key")],
)
async def test_a_client_secret_wants_a_key(headers: dict[str, str], code: str):
    settings = ServerSettings()
    hub = make_hub(FakePipeline(answer), settings, keys=auth.Keys({"0" * 64: auth.Key("alice")}))
    async with (
        server(FakePipeline(answer), settings, hub) as port,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}/v1") as http,
    ):
        refused = await http.post("/realtime/client_secrets", headers=headers, json={})
    assert refused.status_code == 401
    assert refused.json()["error"]["code"] == code


def test_a_file_of_keys_that_is_not_there(tmp_path: Path):
    path = tmp_path / "keys.toml"
    with pytest.raises(ConfigError) as caught:
        auth.load_keys(path)
    assert str(caught.value) == f"--keys {path}: No such file or directory"


def test_a_turn_that_the_pipeline_refuses_is_the_request_s_fault():
    """Clients that try again after an error of the server's would try in vain."""
    t = VirtualTalk(
        lambda request: [*spoken("Yes.")[:1], InputError("voice x: there is alloy", param="voice")]
    )
    t.speak(1)
    t.silence(2)
    error = t.last("response.done")["response"]["status_details"]["error"]
    assert (error["type"], error["code"]) == ("invalid_request_error", "invalid_input")
