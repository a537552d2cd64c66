import os
import threading

from hypothesis import given
from hypothesis import strategies as st

from serving.system.network import descriptors


@given(st.binary(min_size=1, max_size=2_000_000), st.integers(0, 3))
def test_content_and_open_files_arrive_as_they_were_sent(content: bytes, count: int) -> None:
    ours, theirs = descriptors.pair()
    pipes = [os.pipe() for _ in range(count)]
    sender = threading.Thread(target=descriptors.send, args=(ours, content, [writer for _, writer in pipes]))
    sender.start()
    received, passed = descriptors.receive(theirs)
    sender.join()
    assert received == content
    for (reader, _), writer in zip(pipes, passed, strict=True):
        os.write(writer, b"x")
        assert os.read(reader, 9) == b"x"
        assert not os.get_inheritable(writer)
    for fd in (ours, theirs, *passed, *(fd for pair in pipes for fd in pair)):
        os.close(fd)
