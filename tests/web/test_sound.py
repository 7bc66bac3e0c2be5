"""What a microphone hears reaches the server unspoilt: with Chromium's own fake microphone."""

import numpy as np
import soundfile
import soxr
from stub_server import RATE
from talk_page import DATA, settings

WINDOW = RATE // 10


def speech(rate: int) -> np.ndarray:
    """A spoken question after some seconds of silence: the fake microphone may slip in its first seconds, and
    runs before the page listens."""
    samples, from_rate = soundfile.read(DATA / "spoken" / "fact-1-1.flac", dtype="float32")
    return np.concatenate([np.zeros(5 * rate, np.float32), soxr.resample(samples, from_rate, rate)])


def lag(got: np.ndarray, sent: np.ndarray) -> int:
    """Where in `sent` the sound `got` begins, in samples."""
    size = 1 << (len(sent) + len(got)).bit_length()
    products = np.fft.irfft(np.fft.rfft(sent, size) * np.conj(np.fft.rfft(got, size)), size)
    at = int(np.argmax(products))
    return at if at < len(sent) else at - size


def best(window: np.ndarray, sent: np.ndarray) -> tuple[float, float]:
    """Correlation, and gain in dB, of `window` with the part of `sent` that it is most like, the lag being in
    eighths of a sample."""
    fine = soxr.resample(sent, RATE, 8 * RATE, "VHQ")
    shifts = np.lib.stride_tricks.sliding_window_view(fine, 8 * len(window))[:, ::8]
    products = shifts @ window
    energy = np.einsum("ij,ij->i", shifts, shifts)
    own = float(np.dot(window, window))
    found = products / np.sqrt(energy * own + 1e-12)
    at = int(np.argmax(found))
    return float(found[at]), float(10 * np.log10(own / energy[at]))


def test_the_microphone_reaches_the_server_unspoilt(open_page, stub, launch, tmp_path):
    file = tmp_path / "speech.wav"
    sent = speech(48_000)
    soundfile.write(file, sent, 48_000, subtype="PCM_16")
    browser = launch(f"--use-file-for-fake-audio-capture={file}%noloop")
    raw = settings(mode="push-to-talk", echoCancellation=False, noiseSuppression=False, autoGainControl=False)
    talk = open_page(stub.url, browser=browser, stored=raw, own_microphone=False)
    # The page's context takes the device's rate: here one that is no multiple of 24 kHz.
    odd = (
        "AudioContext = class extends AudioContext { constructor(o) { super({ sampleRate: 44100, ...o }) } }"
    )
    talk.page.evaluate(f"void ({odd})")
    talk.page.locator("#main-button").click()
    talk.state("Waiting for you")
    talk.page.locator("#scroll").focus()
    talk.page.keyboard.down("Space")
    talk.page.wait_for_timeout(1000 * len(sent) / 48_000)
    talk.page.keyboard.up("Space")
    talk.state("Speaking")
    got = stub.heard()
    reference = soxr.resample(sent, 48_000, RATE)
    # The fake microphone may slip by 10 ms once: each window is sought in the neighbourhood of its place.
    offset = lag(got, reference)
    near = RATE // 60
    judged = 0
    for start in range(max(0, near - offset), len(got) - WINDOW - near, WINDOW):
        window = got[start : start + WINDOW]
        around = reference[start + offset - near : start + offset + WINDOW + near]
        if np.sqrt(np.mean(window**2)) < 0.02 or len(around) < WINDOW + 2 * near:
            continue
        correlation, gain = best(window, around)
        assert correlation > 0.99
        assert abs(gain) < 0.5
        judged += 1
    assert judged >= 6
    browser.close()
