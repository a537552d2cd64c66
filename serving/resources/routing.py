"""How the requests of an Inference are distributed, repeated and bounded: `spec.routing`, and its parts in a
Route.

A field that is not set has the default in its description, or else the gateway's
(`serving.settings.GatewaySettings`). Timeouts and `consecutiveServerErrors` have no default: unset, they do
not apply.
"""

from typing import Annotated, Literal

from pydantic import Field

from serving.resources.base import ATOMIC, Base, Duration, rules

RetryCause = Literal["Unsent", "Lost", "Unavailable"]
"""A failure after which a request may be tried again; `Retries.on` describes each."""

_AT_MOST_A_DAY = rules(("duration(self) <= duration('24h')", "must be at most 24h"))


class StickyRouting(Base):
    """Sends the requests of one caller to the same predictor."""

    header: Annotated[
        str,
        Field(
            pattern=r"^[A-Za-z0-9][A-Za-z0-9-]*$",
            max_length=64,
            description="Request header that identifies the caller, such as x-user-id.",
        ),
    ]


class AnswerTimeout(Base):
    """The timeout of a predictor's answers."""

    request: Annotated[
        Duration | None,
        Field(
            description="Time until the last byte of the answer to one try at this predictor; 0s is no"
            " timeout. A try that exceeds it is Lost; without a retry the request is 504 or, if the answer"
            " has begun, cut.",
            json_schema_extra=_AT_MOST_A_DAY,
        ),
    ] = None


class Timeouts(Base):
    """The timeouts of a request. They begin when the gateway has its last byte."""

    model_config = {
        **Base.model_config,
        "json_schema_extra": rules(
            (
                (
                    "!has(self.perTry) || !has(self.request) || duration(self.request) == duration('0s') ||"
                    " duration(self.perTry) <= duration(self.request)"
                ),
                "perTry must not exceed request",
            ),
        ),
    }
    request: Annotated[
        Duration | None,
        Field(
            description="Time until the last byte of an answer, including retries and the wait for a replica;"
            " 0s is no timeout. An answer that exceeds it is 504 or, if it has begun, cut.",
            json_schema_extra=_AT_MOST_A_DAY,
        ),
    ] = None
    per_try: Annotated[
        Duration | None,
        Field(
            description="Time until the first byte of a replica's answer to one try, so that it suits"
            " streams of an hour; 0s is no timeout. Not applied while a predictor has no replica, as requests"
            " wait for one.",
            json_schema_extra=_AT_MOST_A_DAY,
        ),
    ] = None


class Retries(Base):
    """Which requests are tried again. No request is, once its answer has begun."""

    attempts: Annotated[
        int | None, Field(ge=0, le=10, description="Further tries of one request; 0 is no retry.")
    ] = None
    on: Annotated[
        list[RetryCause] | None,
        Field(
            max_length=3,
            description="Unsent: the replica got nothing of the request. Lost: the replica died, or exceeded"
            " timeouts.perTry, without an answer, and may have worked on the request. Unavailable: the"
            " replica answered 502, 503 or 504. By default Unsent and Lost; for framework custom, whose"
            " requests may have effects, Unsent alone.",
            json_schema_extra=ATOMIC,
        ),
    ] = None
    budget_percent: Annotated[
        int | None,
        Field(
            ge=0,
            le=100,
            description="Most concurrent retries, in percent of the requests in flight at a predictor.",
        ),
    ] = None
    across_predictors: Annotated[
        bool | None,
        Field(
            description="A retry goes to another predictor with weight, if there is one, so that the loss of"
            " a predictor's only replica fails no request. By default true, unless callers are sticky."
        ),
    ] = None


class Ejection(Base):
    """When a replica that fails gets no requests for a while."""

    consecutive_failures: Annotated[
        int | None,
        Field(
            ge=0,
            le=1000,
            description="Tries in a row that failed without an answer: connection refused or lost, or"
            " timeouts.perTry exceeded; 0 ejects none. Without effect where consecutiveServerErrors is above"
            " 0.",
        ),
    ] = None
    consecutive_server_errors: Annotated[
        int | None,
        Field(
            ge=0,
            le=1000,
            description="Answers in a row with a status of 500 to 599; 0 ejects none. Above 0, tries without"
            " an answer count too.",
        ),
    ] = None
    duration: Annotated[
        Duration | None,
        Field(
            description="Time without requests, multiplied by the number of ejections in a row.",
            json_schema_extra=rules(
                (
                    "duration(self) >= duration('1s') && duration(self) <= duration('1h')",
                    "must be between 1s and 1h",
                )
            ),
        ),
    ] = None
    max_percent: Annotated[
        int | None,
        Field(ge=0, le=100, description="Most replicas of a predictor that are ejected at once."),
    ] = None


class Limits(Base):
    """Bounds of the load of one predictor."""

    requests: Annotated[
        int | None,
        Field(
            ge=1,
            le=1_000_000,
            description="Concurrent requests, including those that wait for a replica; more are answered with"
            " 429 and Retry-After.",
        ),
    ] = None


class Routing(Base):
    """How requests are distributed over the predictors, repeated and bounded."""

    sticky: StickyRouting | None = None
    timeouts: Timeouts = Timeouts()
    retries: Retries = Retries()
    ejection: Ejection = Ejection()
    limits: Annotated[Limits, Field(description="The limits of each predictor.")] = Limits()


class PredictorRouting(Base):
    """Fields that replace those of the Inference for one predictor; `retries` applies to requests whose first
    try is at this predictor.
    """

    timeouts: AnswerTimeout = AnswerTimeout()
    retries: Retries = Retries()
    ejection: Ejection = Ejection()
    limits: Limits = Limits()
