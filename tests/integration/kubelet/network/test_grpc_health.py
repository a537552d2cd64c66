"""A gRPC probe asks a real server for its health."""

import grpc
import pytest

from serving.embedded.kubelet.pod import grpc_health
from tests.programs import grpc_replica
from tests.rig.machine.addresses import own

ADDRESS, ABSENT = f"{own(78)}:9000", f"{own(79)}:9000"


async def test_health_is_asked_by_grpc() -> None:
    server = await grpc_replica.serve(ADDRESS)
    try:
        assert await grpc_health.problem(f"ipv4:{ADDRESS}", "", 5) is None
        assert await grpc_health.problem(f"ipv4:{ADDRESS}", "tests.Echo", 5) is None
        problem = await grpc_health.problem(f"ipv4:{ADDRESS}", grpc_replica.UNHEALTHY, 5)
        assert problem == "the server says that it is not serving"
    finally:
        await server.stop(None)


@pytest.mark.parametrize(
    ("answer", "starts"),
    [(None, "UNIMPLEMENTED "), (b"\xff", "not a HealthCheckResponse: "), (b"", "the server says that")],
)
async def test_other_answers_are_problems(answer: bytes | None, starts: str) -> None:
    server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
    if answer is not None:

        async def check(_request: bytes, _context: object) -> bytes:
            return answer

        handlers = {"Check": grpc.unary_unary_rpc_method_handler(check)}
        server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler("grpc.health.v1.Health", handlers),)
        )
    server.add_insecure_port(ADDRESS)
    await server.start()
    try:
        problem = await grpc_health.problem(f"ipv4:{ADDRESS}", "", 5)
        assert problem is not None
        assert problem.startswith(starts)
    finally:
        await server.stop(None)


async def test_server_that_does_not_listen_is_a_problem_at_once() -> None:
    problem = await grpc_health.problem(f"ipv4:{ABSENT}", "", 60)
    assert problem is not None
    assert problem.startswith("UNAVAILABLE ")
