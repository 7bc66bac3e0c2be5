"""What the command line makes of its options, before any model is loaded."""

import importlib.metadata
import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch

from voice_app import cli
from voice_app.cli import ask, gpu, options
from voice_app.config import PackConfig, PipelineConfig
from voice_app.errors import ConfigError
from voice_app.messages import AudioPart, ImagePart, Stage, TextDelta, TextPart
from voice_app.models import registry
from voice_app.models.local.catalogue import MODELS
from voice_app.models.local.needs import needed
from voice_app.pipeline import layout
from voice_app.pipeline.graph import STAGES
from voice_app.pipeline.transport import shm
from voice_app.server import serving

SPOKEN = Path(__file__).parents[1] / "data" / "spoken" / "fact-1-1.flac"
PICTURE = Path(__file__).parents[1] / "data" / "pictures" / "cat.jpg"


def request_of(monkeypatch: pytest.MonkeyPatch, *argv: str):
    """The TurnRequest that `voice-app ask ARGV` would submit."""
    seen = []
    monkeypatch.setattr(ask, "run", lambda arguments: seen.append(ask.build_request(arguments)) or 0)
    assert cli.main(["ask", *argv]) == 0
    return seen[0]


def test_parts_keep_the_order_given(monkeypatch):
    request = request_of(
        monkeypatch, "--image", str(PICTURE), str(SPOKEN), "--text", "and this?", "--audio", str(SPOKEN)
    )
    kinds = [type(part) for part in request.messages[-1].parts]
    assert kinds == [ImagePart, AudioPart, TextPart, AudioPart]


def test_a_bare_file_name_is_audio(monkeypatch):
    request = request_of(monkeypatch, str(SPOKEN), "--greedy")
    (part,) = request.messages[-1].parts
    assert isinstance(part, AudioPart)
    assert part.sample_rate == 16000
    assert request.greedy


def test_a_studio_recording_of_ten_minutes_fits_a_transfer(monkeypatch, tmp_path):
    path = tmp_path / "studio.wav"
    soundfile.write(path, np.zeros(96_000 * 600, np.int16), 96_000, subtype="PCM_16")
    request = request_of(monkeypatch, str(path))
    (part,) = request.messages[-1].parts
    assert part.sample_rate == 48_000
    assert len(part.samples) == pytest.approx(48_000 * 600, abs=10)
    assert part.samples.nbytes < shm.SLOT_CLASSES[-1].size


def test_option_with_equals_sign(monkeypatch):
    request = request_of(monkeypatch, "--text=one", str(SPOKEN), "--text=two")
    assert [type(part) for part in request.messages[-1].parts] == [TextPart, AudioPart, TextPart]


def test_history_and_system_come_first(monkeypatch, tmp_path):
    history = tmp_path / "history.json"
    entries = [
        {"role": "user", "content": "My name is Ada."},
        {"role": "assistant", "content": [{"type": "text", "text": "Hello Ada."}]},
        {
            "role": "user",
            "content": [{"type": "image", "file": str(PICTURE)}, {"type": "text", "text": "See?"}],
        },
    ]
    history.write_text(json.dumps(entries))
    request = request_of(monkeypatch, "--system", "Be kind.", "--history", str(history), "--text", "Hi")
    assert [message.role for message in request.messages] == ["system", "user", "assistant", "user", "user"]
    assert request.messages[2].parts == (TextPart("Hello Ada."),)
    assert isinstance(request.messages[3].parts[0], ImagePart)


@pytest.mark.parametrize(
    ("content", "named"),
    [
        ("{", "not JSON"),
        ('{"role": "user"}', "must be a list"),
        ('[{"role": "robot", "content": "x"}]', "entry 0"),
        ('[{"role": "user", "content": "x"}, {"role": "user", "content": []}]', "entry 1"),
        ('[{"role": "user", "content": [{"type": "video", "file": "x"}]}]', "a part is"),
    ],
)
def test_bad_history_names_the_entry(capsys, tmp_path, content, named):
    history = tmp_path / "history.json"
    history.write_text(content)
    assert cli.main(["ask", "--history", str(history), "--text", "Hi"]) == 2
    error = capsys.readouterr().err
    assert named in error
    assert "history.json" in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("argv", "named"),
    [
        (["ask"], "give a question"),
        (["ask", "--text", ""], "--text is empty"),
        (["ask", "--text", "x", "--text", "  "], "--text is empty"),
        (["ask", "--text", "x", "--now", "yesterday"], "--now yesterday"),
        (["ask", "--text", "x", "--recogniser", "foo"], "--recogniser foo"),
        (["ask", "--text", "x", "--voice", "/nowhere.onnx"], "--voice /nowhere.onnx"),
        (["ask", "--text", "x", "--brain", "/nowhere/model"], "--brain /nowhere/model"),
        (["ask", "--text", "x", "--brain", "./model"], "--brain ./model"),
        (["ask", "--text", "x", "--brain", "model.gguf"], "--brain model.gguf"),
        (["ask", "--text", "x", "--model", "m"], "--model m: --pack local"),
        (["ask", "--text", "x", "--pack", "qwen3-omni", "--model", "m", "--brain", "b"], "--brain b"),
        (["serve", "--pack", "qwen3-omni", "--model", "/nowhere"], "--model /nowhere"),
        (["ask", "/nowhere.wav"], "/nowhere.wav"),
        (["ask", "--image", "/nowhere.jpg"], "/nowhere.jpg"),
        (["ask", "--text", "x", "--pack", "llama"], "--pack llama"),
        (["ask", "--text", "x", "--pack", "qwen3-omni"], "--model"),
        (["ask", "--text", "x", "--threads", "0"], "--threads 0"),
        (["ask", "--text", "x", "--layout", "moon"], "moon"),
        (["ask", "--text", "x", "--threads", "99999999"], "--threads 99999999"),
        (["serve", "--max-talks", "0"], "--max-talks 0"),
        (["serve", "--talk-ttl", "0"], "--talk-ttl 0"),
        (["serve", "--talk-ttl", "99999999999"], "--talk-ttl 99999999999"),
        (["serve", "--min-speech", "-20"], "--min-speech -20"),
        (["serve", "--interrupt-after", "60000"], "--interrupt-after 60000"),
        (["serve", "--port", "99999"], "--port 99999"),
        (["serve", "--port", "-1"], "--port -1"),
        (["serve", "--origin", ""], "--origin"),
        (["serve", "--origin", "example.org"], "--origin"),
        (["serve", "--origin", "https://example.org/page"], "--origin"),
        (["serve", "--redis", "foo"], "--redis foo"),
        (["serve", "--redis", "redis://localhost:many"], "--redis redis://localhost:many"),
        (["serve", "--data", "/etc/passwd"], "--data /etc/passwd"),
        (["serve", "--data", "/etc/passwd/deeper"], "/etc/passwd is a file"),
        (["serve", "--turn-model", "/nowhere.onnx"], "--turn-model /nowhere.onnx"),
        (["serve", "--curve-keys", "/nowhere"], "--curve-keys /nowhere"),
        (["serve", "--start-timeout", "nan"], "--start-timeout nan"),
        (["serve", "--start-timeout", "inf"], "--start-timeout inf"),
        (["ask", "--text", "x", "--start-timeout", "0"], "--start-timeout 0"),
        (["ask", "--text", "x", "--brain", "b", "--dtype", "bf16"], "--dtype bf16: choose one of float32"),
        (["ask", "--text", "x", "--dtype", "float32"], "--dtype float32: the packaged brain"),
        (["ask", "--text", "x", "--max-tokens", "-5"], "max_tokens -5"),
        (["ask", "--text", "x", "--max-frames", "-1"], "max_frames -1"),
        (["ask", "--text", "x", "--temperature", "-1"], "temperature -1"),
        (["ask", "--text", "x", "--temperature", "nan"], "temperature nan"),
    ],
)
def test_a_wrong_option_is_one_line_and_exit_code_2(capsys, argv, named):
    assert cli.main(argv) == 2
    error = capsys.readouterr().err
    assert named in error
    assert error.count("\n") == 1
    assert "Traceback" not in error


def test_an_unknown_option_is_refused(capsys):
    with pytest.raises(SystemExit) as exit_info:
        cli.main(["ask", "--loud", "--text", "x"])
    assert exit_info.value.code == 2
    assert "--loud" in capsys.readouterr().err


@pytest.mark.parametrize("variable", ["VOICE_APP_LOG", "VOICE_APP_LOG_FORMAT"])
@pytest.mark.parametrize("command", [["ask", "--text", "x"], ["serve", "--port", "0"], ["graph"]])
def test_a_wrong_log_setting_is_one_line_and_exit_code_2(capsys, monkeypatch, variable, command):
    monkeypatch.setenv(variable, "verbose")
    assert cli.main(command) == 2
    error = capsys.readouterr().err
    assert f"{variable}=verbose" in error
    assert error.count("\n") == 1


def test_missing_models_are_fetched_before_any_worker_starts(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("VOICE_APP_HOME", str(tmp_path))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setattr(ask, "PipelineClient", lambda *_, **__: pytest.fail("the workers were to start"))
    assert cli.main(["ask", "--text", "x", "--json"]) == 2
    error = capsys.readouterr().err
    assert "cannot fetch" in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("config", "not_needed"),
    [
        (PackConfig(), {"moonshine"}),
        (PackConfig(recogniser="moonshine"), {"whisper"}),
        (PackConfig(recogniser="/a/folder"), {"moonshine", "whisper"}),
        (PackConfig(brain="a/model", voice="a.onnx"), {"moonshine", "smollm2", "voice"}),
    ],
)
def test_only_the_models_that_will_be_opened_are_fetched(config, not_needed):
    assert set(needed(config)) == set(MODELS) - not_needed


@pytest.mark.parametrize("devices", [0, 1])
@pytest.mark.parametrize(
    ("config", "on_a_gpu"),
    [
        (PackConfig(), "cpu"),
        (PackConfig("qwen3-omni", "folder"), "one-gpu"),
        (PackConfig(brain="a/model"), "thinker-gpu"),
    ],
)
def test_the_default_layout_is_one_that_runs_here(monkeypatch, config, on_a_gpu, devices):
    monkeypatch.setattr(gpu, "usable", lambda: devices > 0)
    name = options.default_layout(config)
    assert name == (on_a_gpu if devices else "cpu")
    layout.check(layout.load(name))


def test_a_gpu_is_looked_for_without_torch():
    code = "import sys; from voice_app.cli import gpu; print(gpu.usable()); assert 'torch' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(torch.cuda.is_available())


def test_every_talk_has_room_for_its_turns(monkeypatch):
    seen: list[PipelineConfig] = []
    monkeypatch.setattr(registry, "bring", lambda *_: None)
    monkeypatch.setattr(serving, "serve", lambda config, _: seen.append(config) or 0)
    assert cli.main(["serve", "--max-talks", "200"]) == 0
    assert seen[0].max_turns >= 2 * 200, "one that is answered, one that is begun meanwhile"


def test_the_operator_says_how_long_talks_are_kept(monkeypatch):
    seen: list[serving.ServeOptions] = []
    monkeypatch.setattr(registry, "bring", lambda *_: None)
    monkeypatch.setattr(serving, "serve", lambda _, given: seen.append(given) or 0)
    assert cli.main(["serve"]) == cli.main(["serve", "--talk-ttl", "60"]) == 0
    assert [given.settings.talk_ttl_s for given in seen] == [1800, 60]


def test_the_operator_says_what_is_speech_and_what_interrupts(monkeypatch):
    seen: list[serving.ServeOptions] = []
    monkeypatch.setattr(registry, "bring", lambda *_: None)
    monkeypatch.setattr(serving, "serve", lambda _, given: seen.append(given) or 0)
    assert cli.main(["serve", "--min-speech", "100", "--interrupt-after", "0"]) == 0
    talk = seen[0].settings.talk
    assert (talk.onset_ms, talk.interrupt_ms, talk.speculate_ms, talk.resumes) == (100, 0, 160, True)
    assert talk.languages == registry.offer(PackConfig()).languages == ("en",)
    assert cli.main(["serve", "--no-reply-resume"]) == 0
    assert not seen[1].settings.talk.resumes
    assert cli.main(["serve", "--no-early-start"]) == 0
    assert [given.settings.talk.early_ms for given in seen] == [80, 80, None]


@pytest.mark.parametrize(
    ("config", "named"),
    [
        (PackConfig(devices={"thinker": "cuda:0"}), "stage thinker"),
        (PackConfig(brain="a/model", devices={"audio_encoder": "cuda:0"}), "stage audio_encoder"),
    ],
)
def test_the_local_pack_refuses_devices_that_it_cannot_use(config, named):
    with pytest.raises(ConfigError, match=f"{named}: device cuda:0: .*--layout cpu"):
        registry.create(config, lambda _: None)


def test_a_device_must_be_cpu_or_cuda():
    with pytest.raises(ConfigError, match="stage thinker: device 'gpu' must be"):
        PackConfig(devices={"thinker": "gpu"})


@pytest.mark.parametrize("columns", [60, 80, 100, None])
def test_the_graph_shows_every_name_whole(capsys, monkeypatch, columns):
    """None: piped."""
    if columns is not None:
        monkeypatch.setenv("FORCE_COLOR", "1")
        monkeypatch.setenv("COLUMNS", str(columns))
    assert cli.main(["graph"]) == 0
    shown = re.sub(r"\x1b\[[\d;]*m", "", capsys.readouterr().out)
    for name in (*map(str, Stage), *(str(spec.scheduler) for spec in STAGES.values()), "shared memory"):
        assert name in shown
    assert "…" not in shown
    assert max(map(len, shown.splitlines())) <= (140 if columns is None else max(columns, 80))


def test_a_checkpoint_that_has_no_place_is_one_line_and_exit_code_2(capsys, tmp_path):
    (tmp_path / "file").write_text("")
    assert cli.main(["make-tiny-checkpoint", str(tmp_path / "file" / "x")]) == 2
    error = capsys.readouterr().err
    assert str(tmp_path / "file" / "x") in error
    assert error.count("\n") == 1


def test_the_version_is_the_installed_one(capsys):
    with pytest.raises(SystemExit) as exit_info:
        cli.main(["--version"])
    assert exit_info.value.code == 0
    assert capsys.readouterr().out == f"voice-app {importlib.metadata.version('voice-app')}\n"


def test_without_a_command_they_are_listed(capsys):
    assert cli.main([]) == 2
    shown = capsys.readouterr().out
    assert all(name in shown for name in ("serve", "ask", "graph", "pull", "make-tiny-checkpoint", "bench"))


@pytest.mark.parametrize(
    ("number", "code", "word"), [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")]
)
def test_a_signal_while_modules_are_imported(number, code, word):
    # An audit hook is called as `command` is about to be imported: the moment is not left to chance.
    script = f"""
import os, signal, sys
def strike(event, arguments):
    if event == "import" and arguments[0] == "voice_app.cli.command":
        os.kill(os.getpid(), {int(number)})
sys.addaudithook(strike)
from voice_app.cli import main
sys.exit(main(["graph"]))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (code, "", f"voice-app: {word}\n")


def test_being_told_to_end_again_does_not_cut_the_way_out_short():
    script = """
import os, signal, sys
from voice_app.cli import command, main
def run(argv):
    try:
        os.kill(os.getpid(), signal.SIGTERM)
    finally:
        os.kill(os.getpid(), signal.SIGTERM)
        print("cleared up")
command.run = run
sys.exit(main([]))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (143, "cleared up\n", "voice-app: terminated\n")


class _Interrupted:
    """A pipeline whose user interrupts in the middle of the words."""

    def __init__(self, *_, **__) -> None:
        pass

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_) -> None:
        pass

    async def submit(self, _request):
        yield TextDelta("The answer", (1, 2))
        raise KeyboardInterrupt


def test_an_interrupt_in_the_middle_of_the_words_starts_a_new_line(capsys, monkeypatch):
    monkeypatch.setattr(registry, "bring", lambda *_: None)
    monkeypatch.setattr(ask, "PipelineClient", _Interrupted)
    assert cli.main(["ask", "--text", "x"]) == 130
    out, error = capsys.readouterr()
    assert out == "The answer\n"
    assert error == "voice-app: interrupted\n"
