"""Ask a spoken question, print the answer and keep its sound: python talk.py QUESTION.wav ANSWER.wav"""

import asyncio
import base64
import sys

import numpy as np
import soundfile
import soxr
from openai import AsyncOpenAI


async def main(question: str, answer: str, server: str = "ws://127.0.0.1:8000/v1") -> None:
    samples, rate = soundfile.read(question, dtype="float32", always_2d=True)
    samples = soxr.resample(samples.mean(axis=1), rate, 24_000).clip(-1, 1)
    sound = bytearray()
    client = AsyncOpenAI(api_key="none", websocket_base_url=server)
    async with client.realtime.connect(model="voice-app") as talk:
        await talk.session.update(session={"type": "realtime", "audio": {"input": {"turn_detection": None}}})
        pcm = (samples * 32767).astype("<i2").tobytes()
        await talk.input_audio_buffer.append(audio=base64.b64encode(pcm).decode())
        await talk.input_audio_buffer.commit()
        await talk.response.create()
        async for event in talk:
            if event.type == "response.output_audio_transcript.delta":
                print(event.delta, end="", flush=True)
            elif event.type == "response.output_audio.delta":
                sound += base64.b64decode(event.delta)
            elif event.type == "response.done":
                break
    soundfile.write(answer, np.frombuffer(bytes(sound), "<i2"), 24_000)


asyncio.run(main(*sys.argv[1:]))
