"""libFuzzer finds no request and no answer that breaks Envoy's module."""

import itertools
import shutil
import subprocess
from pathlib import Path

import pytest

from serving.router.envoy import module

SOURCE = Path(module.__file__).parent
HARNESS = Path(__file__).parents[3] / "native" / "envoy_module" / "fuzz.c"
SECONDS = 5
REQUESTS = (
    b'{"messages":[{"role":"user","content":"a \\"b\\""}],"model":"chat","stream":true,"max_tokens":16}',
    b'{"stream":true,"stream_options":{"include_usage":true,"continuous_usage_stats": true},"prompt":"p"}',
    b'{"model":"nobody","max_completion_tokens":3.5}',
)
USAGE = b'"usage":{"prompt_tokens":7,"completion_tokens":2,"details":{"cached":0}}'
EVENTS = (
    b'data: {"choices":[{"delta":{"content":"w"}}],%s}\n\ndata: {"choices":[],%s}\r\n\r\ndata: [DONE]\n\n'
    % (USAGE, USAGE)
)
ANSWERS = (EVENTS, b'{"choices":[{"text":"w"}],%s}' % USAGE, b'data: {"choices":[{"delta":{"tool_calls":[{')
WORDS = (
    *("usage", "content", "reasoning_content", "text", "arguments", "tool_calls", "choices", "null", "true"),
    *("prompt_tokens", "completion_tokens", "stream", "stream_options", "include_usage", "model", "chat"),
)


def test_no_input_breaks_the_module(tmp_path: Path) -> None:
    if shutil.which("clang") is None:
        pytest.skip("clang is not installed: nothing fuzzes Envoy's module")
    program, corpus, words = tmp_path / "fuzz", tmp_path / "corpus", tmp_path / "words"
    flags = ["-std=c11", "-g", "-O1", "-D_POSIX_C_SOURCE=200809L", "-fno-sanitize-recover=all"]
    built = subprocess.run(
        [
            *("clang", "-fsanitize=fuzzer,address,undefined", *flags, f"-I{SOURCE}", "-o", str(program)),
            *map(str, (HARNESS, *sorted(SOURCE.glob("*.c")))),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    if built.returncode and "libclang_rt" in built.stderr:
        pytest.skip("libclang-rt is not installed: nothing fuzzes Envoy's module")
    assert not built.returncode, built.stderr
    corpus.mkdir()
    for index, (request, answer) in enumerate(itertools.product(REQUESTS, ANSWERS)):
        head = bytes([(index * 37) % 256, index % 8, 40, len(request) % 256, len(request) // 256])
        (corpus / str(index)).write_bytes(head + request + answer)
        (corpus / f"streamed-{index}").write_bytes(bytes([6, 0, 7]) + head[3:] + request + answer)
    words.write_text("".join(f'"\\"{word}\\":"\n"{word}"\n' for word in WORDS))
    run = subprocess.run(
        [str(program), f"-max_total_time={SECONDS}", "-max_len=4096", "-timeout=5", f"-dict={words}", corpus],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert run.returncode == 0, run.stderr[-4000:]
